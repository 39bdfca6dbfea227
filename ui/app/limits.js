// Limits of a virtual host or a user: a form with all of them, as they are.

import { put, remove } from "./api.js";
import { form } from "./forms.js";
import { count } from "./format.js";
import { section } from "./tables.js";

/** `where` is the path of all limits, `found` the limits that are set, by name, `names` those that can be set. */
export const limits = (where, found, names) =>
  section(
    "Limits",
    form(
      "Save limits",
      names.map((name) => ({
        name,
        label: title(name),
        type: "number",
        min: 0,
        value: found[name] >= 0 ? found[name] : "",
        placeholder: "no limit",
      })),
      (values) => saved(where, found, values),
    ),
  );

const TITLES = { "max-publish-rate": "Most messages published a second" };
const title = (name) => TITLES[name] ?? name.replace("max-", "Most ");

/** Sets what has changed, and clears what is empty now. */
async function saved(where, found, values) {
  const told = [];
  for (const [name, value] of Object.entries(values)) {
    const before = found[name] >= 0 ? found[name] : undefined;
    if (value === before) continue;
    if (value === undefined) await remove(`${where}/${name}`);
    else await put(`${where}/${name}`, { value });
    told.push(`${name} is ${value === undefined ? "no limit" : count(value)} now`);
  }
  return told.join("; ") || "Nothing has changed";
}
