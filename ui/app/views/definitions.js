// Definitions as a file: export and import.

import { get, path, post } from "../api.js";
import { h } from "../dom.js";
import { attempt, confirmed } from "../notices.js";
import { has, host } from "../session.js";
import { section } from "../tables.js";

export const definitions = {
  title: () => "Definitions",
  load: async () => null,
  draw: () =>
    has()
      ? [exporting(), section("Import", importing()), report && reported(report)]
      : h("p", { class: "empty" }, "These are for administrators."),
};

const exporting = () =>
  section(
    "Export",
    h(
      "p",
      {},
      "Virtual hosts, users and what they may, queues, exchanges, bindings and policies; no messages.",
    ),
    h(
      "div",
      { class: "row" },
      h(
        "button",
        { type: "button", class: "main", onclick: download },
        host() ? `Download those of ${host()}` : "Download",
      ),
    ),
  );

const where = () => (host() ? path`definitions/${host()}` : "definitions");

async function download() {
  await attempt(async () => {
    const text = JSON.stringify(await get(where()), null, 2);
    const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    h("a", { href: address, download: "definitions.json" }).click();
    URL.revokeObjectURL(address);
  }, "Definitions exported");
}

const importing = () => [
  h("p", {}, "What the file has and the node lacks is added; what is there stays."),
  h(
    "form",
    { "data-keep": true, "data-key": "import", onsubmit: submitted },
    h(
      "label",
      {},
      h("span", {}, "File"),
      h("input", { type: "file", name: "file", accept: ".json,application/json", required: true }),
    ),
    h(
      "div",
      { class: "row" },
      h("button", { type: "submit", name: "does", value: "try" }, "Try, and change nothing"),
      h("button", { type: "submit", name: "does", value: "import", class: "main" }, "Import"),
    ),
  ),
];

async function submitted(event) {
  event.preventDefault();
  const chosen = new FormData(event.currentTarget).get("file");
  const tries = event.submitter?.value === "try";
  const question = `Import “${chosen.name}”${host() ? ` into “${host()}”` : ""}?`;
  if (!(tries || (await confirmed(question, "Import")))) return;
  await attempt(
    async () => {
      const told = await post(
        `leveret/${where()}${tries ? "?dry_run=true" : ""}`,
        parsed(await chosen.text()),
      );
      report = { file: chosen.name, ...told };
    },
    tries ? "Definitions tried; nothing was changed" : "Definitions imported",
  );
  document.dispatchEvent(new Event("leveret:changed"));
}

let report = null; // of the last import since the page was loaded

const reported = ({ file, dry_run: tried, imported, ignored, changed, problems, problem_count: count }) =>
  section(
    tried ? `What an import of ${file} would do` : `The import of ${file}`,
    h(
      "p",
      {},
      Object.entries(imported)
        .map(([name, number]) => `${number} ${number === 1 ? singular(name) : name}`.replace("_", " "))
        .join(", ") || "nothing",
      tried ? " would be imported." : " imported.",
    ),
    listed(`Refused (${count})`, problems),
    listed("Ignored, because it has no effect here", ignored),
    listed("Works otherwise here", changed),
  );

const singular = (name) => name.replace(/ies$/, "y").replace(/s$/, "");

const listed = (title, sentences) =>
  sentences.length > 0 && [
    h("h3", {}, title),
    h(
      "ul",
      {},
      sentences.map((each) => h("li", {}, each)),
    ),
  ];

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("the file is not JSON");
  }
}
