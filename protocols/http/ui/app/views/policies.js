// Policies and operator policies, which take precedence.

import { get, path, put, remove } from "../api.js";
import { written } from "../bindings.js";
import { h } from "../dom.js";
import { form, panel } from "../forms.js";
import { attempt, confirmed, warned } from "../notices.js";
import { has, host, oneHost } from "../session.js";
import { section, table } from "../tables.js";

const KINDS = {
  policies: { title: "Policies", one: "policy", key: "policy", add: "Add a policy" },
  "operator-policies": {
    title: "Operator policies",
    one: "operator policy",
    key: "operator-policy",
    add: "Add an operator policy",
  },
};
const DEFINITIONS = [
  "max-length",
  "max-length-bytes",
  "overflow",
  "message-ttl",
  "expires",
  "delivery-limit",
  "dead-letter-exchange",
  "dead-letter-routing-key",
  "alternate-exchange",
  "max-age",
];

export const policies = {
  title: () => "Policies",

  async load(_, signal) {
    const [own, operators] = await Promise.all(
      Object.keys(KINDS).map((kind) => get(host() ? `${kind}/${encodeURIComponent(host())}` : kind, signal)),
    );
    return { policies: own, "operator-policies": operators };
  },

  draw: (found) =>
    Object.keys(KINDS).map((kind) => [
      section(KINDS[kind].title, listed(kind, found[kind])),
      mayChange(kind) && panel(KINDS[kind].add, adding(kind)),
    ]),
};

const mayChange = (kind) => (kind === "policies" ? has("policymaker") : has());

function listed(kind, found) {
  if (!found.length) return h("p", { class: "empty" }, "There are none.");
  return table(
    [
      ["Name", ({ name }) => name],
      ["Virtual host", ({ vhost }) => vhost],
      ["Names that match", ({ pattern }) => h("code", {}, pattern)],
      ["Applies to", (each) => each["apply-to"]],
      ["Definition", (each) => [written(each.definition), warned(each)]],
      ["Priority", ({ priority }) => String(priority), { number: true }],
      [
        "",
        (each) =>
          mayChange(kind) && h("button", { type: "button", onclick: () => drop(kind, each) }, "Delete"),
      ],
    ],
    found,
    ({ vhost, name }) => JSON.stringify([vhost, name]),
  );
}

async function drop(kind, { vhost, name }) {
  const { one } = KINDS[kind];
  if (!(await confirmed(`Delete ${one} “${name}”?`, "Delete"))) return;
  await attempt(() => remove(kind + path`/${vhost}/${name}`), `The ${one} is deleted`);
  document.dispatchEvent(new Event("leveret:changed"));
}

const adding = (kind) =>
  form(
    KINDS[kind].add,
    [
      { name: "vhost", label: "Virtual host", value: oneHost(), required: true },
      { name: "name", label: "Name", required: true },
      { name: "pattern", label: "Names that match (regular expression)", value: ".*", required: true },
      {
        name: "apply",
        label: "Applies to",
        type: "select",
        options: kind === "policies" ? ["all", "queues", "exchanges"] : ["queues"],
      },
      { name: "priority", label: "Priority", type: "number", value: 0 },
      {
        name: "definition",
        label: "Definition",
        type: "table",
        offers: DEFINITIONS,
        hint: "One a line: name = value",
        required: true,
      },
    ],
    async ({ vhost, name, pattern, apply, priority = 0, definition }) => {
      await put(kind + path`/${vhost}/${name}`, { pattern, "apply-to": apply, priority, definition });
      return `${name} applies now`;
    },
  );
