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
      ? [exporting(), section("Import", importing())]
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
    h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Import")),
  ),
];

async function submitted(event) {
  event.preventDefault();
  const chosen = new FormData(event.currentTarget).get("file");
  if (!(await confirmed(`Import “${chosen.name}”${host() ? ` into “${host()}”` : ""}?`, "Import"))) return;
  await attempt(async () => post(where(), parsed(await chosen.text())), "Definitions imported");
  document.dispatchEvent(new Event("leveret:changed"));
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("the file is not JSON");
  }
}
