// Limits of a virtual host or a user: showing, setting and clearing them.

import { put, remove } from "./api.js";
import { h } from "./dom.js";
import { form } from "./forms.js";
import { count } from "./format.js";
import { attempt, confirmed } from "./notices.js";
import { section, table } from "./tables.js";

/** `where` is the path of all limits, `found` the limits that are set, by name, `names` those that can be set. */
export const limits = (where, found, names) =>
  section(
    "Limits",
    Object.keys(found).length
      ? table(
          [
            ["Limit", ([name]) => name],
            ["At most", ([, most]) => (most < 0 ? "no limit" : count(most)), { number: true }],
            ["", ([name]) => h("button", { type: "button", onclick: () => clear(where, name) }, "Clear")],
          ],
          Object.entries(found),
          ([name]) => name,
        )
      : h("p", { class: "empty" }, "There are none."),
    setting(where, names),
  );

const setting = (where, names) =>
  form(
    "Set limit",
    [
      { name: "name", label: "Limit", type: "select", options: names },
      { name: "value", label: "At most", type: "number", min: 0, required: true },
    ],
    async ({ name, value }) => {
      await put(`${where}/${name}`, { value });
      return `${name} is ${value} now`;
    },
  );

async function clear(where, name) {
  if (!(await confirmed(`Clear the limit ${name}?`, "Clear"))) return;
  await attempt(() => remove(`${where}/${name}`), "The limit is cleared");
  document.dispatchEvent(new Event("leveret:changed"));
}
