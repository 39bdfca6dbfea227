// The last lines of the node's log, the newest first.

import { get, put, query } from "../api.js";
import { h } from "../dom.js";
import { form, panel } from "../forms.js";
import { clock, dayTime } from "../format.js";
import { link } from "../routes.js";
import { badge, unseen } from "../tables.js";

const SHOWN = 300; // lines
const LEVELS = ["debug", "info", "warning", "error"];
const KINDS = { warning: "warning", error: "failed", critical: "failed" };
const DAY_MS = 86_400_000;
const TYPED_MS = 300;

export const log = {
  title: () => "Log",

  async load(at, signal) {
    const { level = "info", category = "", text = "" } = at.query;
    const [found, levels] = await Promise.all([
      get(`leveret/log/lines${query({ level, category, text, count: SHOWN })}`, signal),
      get("leveret/log", signal),
    ]);
    return { ...found, levels };
  },

  draw: (found, at) => [
    h("div", { class: "row tools" }, asking(found, at), h("p", { class: "hint" }, told(found))),
    found.lines.length
      ? h("ol", { class: "log card" }, [...found.lines].reverse().map(line))
      : h("p", { class: "empty" }, "No line suits."),
    panel("Change what is logged", changing(found.levels)),
  ],
};

const told = ({ lines, first, last }) =>
  `${lines.length} lines of the ${last - first + 1} that are kept; the newest first.`;

const asking = ({ levels }, at) =>
  h(
    "div",
    { class: "row" },
    choice("level", "Least level", at, LEVELS.map((name) => [name, name === "debug" ? "all levels" : `${name} and above`]), "info"),
    choice(
      "category",
      "Category",
      at,
      [["", "all categories"], ...Object.keys(levels.levels).map((name) => [name, name])],
      "",
    ),
    h("input", {
      type: "search",
      class: "search",
      placeholder: "Search the log",
      "aria-label": "Search the log",
      value: at.query.text ?? "",
      "data-key": "search log",
      spellcheck: "false",
      autocapitalize: "none",
      oninput: (event) => typed(event.currentTarget, at),
    }),
  );

const go = (at, more) => location.replace(link(at.names, { ...at.query, ...more }));

const choice = (name, label, at, options, otherwise) =>
  h(
    "select",
    { "aria-label": label, "data-key": name, onchange: (event) => go(at, { [name]: event.currentTarget.value }) },
    options.map(([value, text]) =>
      h("option", { value, selected: value === (at.query[name] ?? otherwise) }, text),
    ),
  );

let typing = null;

function typed(input, at) {
  clearTimeout(typing);
  typing = setTimeout(() => go(at, { text: input.value }), TYPED_MS);
}

function line({ id, time, level, logger, message, exception, connection, user, vhost }) {
  const from = [
    ["connection", connection],
    ["user", user],
    ["virtual host", vhost],
  ].filter(([, said]) => said && !message.includes(said));
  return h(
    "li",
    { "data-key": `line ${id}` },
    h("time", { datetime: time, title: time }, at(Date.parse(time))),
    badge(level, KINDS[level]),
    h("span", { class: "hint" }, logger.replace("leveret.", "")),
    h(
      "span",
      { class: "said" },
      message,
      from.map(([name, said]) => h("span", { class: "hint" }, ` ${name} ${said}`)),
      exception &&
        h(
          "details",
          { "data-key": `trace ${id}` },
          h("summary", {}, "Traceback", unseen(` of line ${id}`)),
          h("pre", { tabindex: "0", "aria-label": "Traceback" }, exception),
        ),
    ),
  );
}

const at = (ms) => (Date.now() - ms < DAY_MS ? clock(ms) : dayTime(ms));

const changing = ({ level, levels }) =>
  form(
    "Set level",
    [
      {
        name: "category",
        label: "Of",
        type: "select",
        options: [["", `the whole log (${level})`], ...Object.entries(levels).map(([name, now]) => [name, `${name} (${now})`])],
      },
      { name: "level", label: "Level", type: "select", value: level, options: [...LEVELS, "none"] },
    ],
    async ({ category, level: wanted }) => {
      await put(`leveret/log/level/${wanted}${query({ category })}`);
      return `${category || "The log"} is at level ${wanted} until the next reload or start`;
    },
  );
