// Bindings of a queue or an exchange: the list, adding one, removing one.

import { path, post, remove } from "./api.js";
import { h } from "./dom.js";
import { form, panel } from "./forms.js";
import { count, octets, value } from "./format.js";
import { attempt, confirmed } from "./notices.js";
import { namesOf } from "./names.js";
import { exchangeLink, queueLink } from "./routes.js";
import { badge, page, pager, section, table } from "./tables.js";

const letter = ({ destination_type: type }) => (type === "queue" ? "q" : "e");

const where = (binding) =>
  path`bindings/${binding.vhost}/e/${binding.source}/${letter(binding)}/${binding.destination}`;

/** Loads a page of bindings; `name` is the parameter of the link that has the page. There may be very many. */
export const some = (where, { query }, name, signal) => page(where, { page: query[name] }, {}, signal);

/** Shows the bindings from an exchange. */
export const leaving = (found, at) =>
  section("Bindings from here", list(found.items, "To", target), pages(found, at, "from"));

/** Shows the bindings to a queue or an exchange. */
export const arriving = (found, at) =>
  section("Bindings to here", list(found.items, "From", source), pages(found, at, "to"));

const pages = (found, at, name) =>
  found.page_count > 1 && [
    h("p", { class: "hint" }, `${found.items.length} of ${count(found.total_count)} bindings.`),
    pager(found, at, name),
  ];

function list(found, heading, end) {
  if (!found.length) return h("p", { class: "empty" }, "There are none.");
  return table(
    [
      [heading, end],
      ["Routing key", ({ routing_key: key }) => h("code", {}, key)],
      ["Arguments", ({ arguments: given }) => written(given)],
      [
        "",
        (binding) =>
          binding.source !== "" && h("button", { type: "button", onclick: () => unbind(binding) }, "Remove"),
      ],
    ],
    found,
    (binding) =>
      JSON.stringify([binding.source, binding.destination_type, binding.destination, binding.properties_key]),
  );
}

const source = ({ vhost, source: name }) =>
  h("a", { href: exchangeLink(vhost, name) }, name || "(default exchange)");

const target = ({ vhost, destination: name, destination_type: type }) =>
  type === "queue"
    ? h("a", { href: queueLink(vhost, name) }, name)
    : [h("a", { href: exchangeLink(vhost, name) }, name), " ", badge("exchange")];

/** Returns a table of arguments or settings as lines of one element, or null if it is empty. */
export function written(given) {
  const found = Object.entries(given ?? {});
  if (!found.length) return null;
  return h(
    "div",
    {},
    found.map(([name, each]) =>
      h("div", {}, h("code", {}, `${name} = ${value(each)}`), inBytes(name, each)),
    ),
  );
}

/** Tells a long number of bytes in its largest unit, too. */
const inBytes = (name, given) =>
  name.endsWith("bytes") && given >= 1024 && h("span", { class: "hint" }, ` ${octets(given)}`);

async function unbind(binding) {
  const asked = `Remove the binding from “${binding.source}” to “${binding.destination}” with key “${binding.routing_key}”?`;
  if (!(await confirmed(asked, "Remove"))) return;
  await attempt(
    () => remove(`${where(binding)}/${encodeURIComponent(binding.properties_key)}`),
    "The binding is removed",
  );
  document.dispatchEvent(new Event("leveret:changed"));
}

const FIELDS = [
  { name: "key", label: "Routing key" },
  { name: "arguments", label: "Arguments", type: "table", hint: "One a line: name = value" },
];

/** Returns the form that binds a queue (or, as `exchange`, an exchange) to a source. */
export const binding = (vhost, destination, type) =>
  panel(
    "Bind to an exchange",
    form(
      "Bind",
      [{ name: "source", label: "Exchange", required: true, complete: namesOf("exchanges", vhost) }, ...FIELDS],
      ({ source: from, key, arguments: given }) =>
        bind({ vhost, source: from, destination, destination_type: type }, key, given),
    ),
  );

/** Returns the form that binds a queue or an exchange to this exchange. */
export const bindingFrom = (vhost, from) =>
  panel(
    "Bind something to this exchange",
    form(
      "Bind",
      [
        { name: "type", label: "What", type: "select", options: ["queue", "exchange"] },
        {
          name: "destination",
          label: "Name",
          required: true,
          complete: namesOf((filled) => (filled.elements.type.value === "queue" ? "queues" : "exchanges"), vhost),
        },
        ...FIELDS,
      ],
      ({ type, destination, key, arguments: given }) =>
        bind({ vhost, source: from, destination, destination_type: type }, key, given),
    ),
  );

async function bind(wanted, key, given) {
  await post(where(wanted), { routing_key: key, arguments: given });
  return `“${wanted.destination}” is bound to “${wanted.source}”`;
}
