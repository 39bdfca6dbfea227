// An exchange: its rates and bindings, and publishing to it.

import { get, path, query, remove } from "../api.js";
import { arriving, binding, bindingFrom, leaving, some, written } from "../bindings.js";
import { SAMPLED, flows } from "../charts.js";
import { h } from "../dom.js";
import { panel } from "../forms.js";
import { publishing } from "../messages.js";
import { attempt, confirmed, warned } from "../notices.js";
import { DEFAULT_EXCHANGE, exchangeLink, link } from "../routes.js";
import { facts, section } from "../tables.js";
import { deduplication } from "./deduplication.js";
import { features } from "./queues.js";

const isDefault = (name) => name === DEFAULT_EXCHANGE;

export const exchange = {
  title: ({ names: [, , name] }) => (isDefault(name) ? "Default exchange" : `Exchange ${name}`),

  async load(at, signal) {
    const [, host, name] = at.names;
    const ends = isDefault(name)
      ? []
      : [
          some(path`exchanges/${host}/${name}/bindings/source`, at, "from", signal),
          some(path`exchanges/${host}/${name}/bindings/destination`, at, "to", signal),
        ];
    const [found, from, to] = await Promise.all([
      get(path`exchanges/${host}/${name}` + query(SAMPLED), signal),
      ...ends,
    ]);
    return { found, from, to };
  },

  draw: ({ found, from, to }, at, [, host, name] = at.names) => [
    h("p", { class: "hint" }, `${found.type} exchange in virtual host ${host} `, features(found)),
    warned(found),
    h(
      "div",
      { class: "charts" },
      flows("Message rates", found.message_stats, [
        ["publish_in", "In"],
        ["publish_out", "Out"],
      ]),
    ),
    section("Details", details(found, host, name)),
    isDefault(name)
      ? section("Bindings", h("p", {}, "Every queue is bound to the default exchange with its name."))
      : bindings(from, to, at),
    panel("Publish a message", publishing(host, name)),
    !isDefault(name) &&
      !name.startsWith("amq.") &&
      h(
        "div",
        { class: "row ends" },
        h("button", { type: "button", class: "danger", onclick: () => drop(host, name) }, "Delete exchange"),
      ),
  ],
};

const details = (found, host, name) =>
  facts([
    [
      "Alternate exchange",
      found.arguments?.["alternate-exchange"] &&
        h(
          "a",
          { href: exchangeLink(host, found.arguments["alternate-exchange"]) },
          String(found.arguments["alternate-exchange"]),
        ),
    ],
    ["Policy", found.policy],
    ...deduplication(found, "exchanges", host, name),
    ["Arguments", written(found.arguments)],
    [
      "Drawing",
      h(
        "a",
        { href: link(["topology"], { vhost: host, exchange: isDefault(name) ? "" : name }) },
        "Where messages go from here",
      ),
    ],
  ]);

const bindings = (from, to, at, [, host, name] = at.names) => [
  leaving(from, at),
  bindingFrom(host, name),
  arriving(to, at),
  binding(host, name, "exchange"),
];

async function drop(host, name) {
  if (!(await confirmed(`Delete exchange “${name}” and its bindings?`, "Delete"))) return;
  if (await attempt(() => remove(path`exchanges/${host}/${name}`), `Exchange “${name}” is deleted`))
    location.hash = link(["exchanges"]);
}
