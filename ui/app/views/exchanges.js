// All exchanges, a page at a time, and declaring one.

import { get, path, put } from "../api.js";
import { h } from "../dom.js";
import { form, panel } from "../forms.js";
import { rate } from "../format.js";
import { exchangeLink } from "../routes.js";
import { host, oneHost } from "../session.js";
import { hostColumn, list, page } from "../tables.js";
import { features } from "./queues.js";

const TYPES = ["direct", "fanout", "topic", "headers"];

export const exchanges = {
  title: () => "Exchanges",

  async load(at, signal) {
    const [found, { exchange_types: types }] = await Promise.all([
      page(host() ? path`exchanges/${host()}` : "exchanges", at.query, {}, signal),
      get("overview", signal),
    ]);
    return { found, types: (types ?? []).map(({ name }) => name) };
  },

  draw: ({ found, types }, at) => [
    panel("Declare an exchange", declaring([...new Set([...TYPES, ...types])])),
    list("exchanges", columns(), found, ({ vhost, name }) => JSON.stringify([vhost, name]), at),
  ],
};

const columns = () => [
  [
    "Name",
    ({ vhost, name }) => h("a", { href: exchangeLink(vhost, name) }, name || "(default exchange)"),
    { sort: "name" },
  ],
  ...hostColumn(),
  ["Type", ({ type }) => type, { sort: "type" }],
  ["Features", features],
  [
    "In",
    ({ message_stats: stats }) => rate(stats?.publish_in_details?.rate ?? 0),
    { sort: "message_stats.publish_in_details.rate", number: true },
  ],
  [
    "Out",
    ({ message_stats: stats }) => rate(stats?.publish_out_details?.rate ?? 0),
    { sort: "message_stats.publish_out_details.rate", number: true },
  ],
];

const declaring = (types) =>
  form(
    "Declare",
    [
      { name: "vhost", label: "Virtual host", value: oneHost(), required: true },
      { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", type: "select", options: types },
      { name: "durable", label: "Survives a restart", type: "checkbox", value: true },
      { name: "auto_delete", label: "Deleted with its last binding", type: "checkbox" },
      { name: "internal", label: "Internal: takes messages from exchanges only", type: "checkbox" },
      {
        name: "arguments",
        label: "Arguments",
        type: "table",
        offers: ["alternate-exchange"],
        hint: "One a line: name = value",
      },
    ],
    async ({ vhost, name, ...wanted }) => {
      await put(path`exchanges/${vhost}/${name}`, wanted);
      location.hash = exchangeLink(vhost, name);
      return `Exchange “${name}” is declared`;
    },
  );
