// All queues, a page at a time, and declaring one.

import { path, put } from "../api.js";
import { h } from "../dom.js";
import { form, panel } from "../forms.js";
import { count, rate, value } from "../format.js";
import { queueLink } from "../routes.js";
import { host, oneHost } from "../session.js";
import { LENGTHS, level } from "../sparks.js";
import { badge, list, page } from "../tables.js";

const COLUMNS = [
  "name",
  "vhost",
  "type",
  "durable",
  "auto_delete",
  "exclusive",
  "arguments",
  "policy",
  "state",
  "messages_ready",
  "messages_unacknowledged",
  "messages",
  "messages_details",
  "consumers",
  "message_stats.publish_details.rate",
  "message_stats.deliver_get_details.rate",
  "message_stats.ack_details.rate",
].join();
const ARGUMENTS = [
  "x-message-ttl",
  "x-expires",
  "x-max-length",
  "x-max-length-bytes",
  "x-overflow",
  "x-max-priority",
  "x-dead-letter-exchange",
  "x-dead-letter-routing-key",
  "x-single-active-consumer",
  "x-delivery-limit",
  "x-max-age",
];

export const queues = {
  title: () => "Queues",

  load: (at, signal) =>
    page(host() ? path`queues/${host()}` : "queues", at.query, { columns: COLUMNS, ...LENGTHS }, signal),

  draw: (found, at) => [
    list("queues", columns(), found, ({ vhost, name }) => JSON.stringify([vhost, name]), at),
    panel("Declare a queue", declaring()),
  ],
};

const columns = () => [
  [
    "Name",
    (queue) => [
      h("a", { href: queueLink(queue.vhost, queue.name) }, queue.name || "(no name)"),
      place(queue),
    ],
    { sort: "name" },
  ],
  ["Type", (queue) => [queue.type, " ", features(queue)], { sort: "type" }],
  ["State", ({ state }) => state ?? "–", { sort: "state" }],
  ["Ready", (queue) => count(queue.messages_ready), { sort: "messages_ready", number: true }],
  [
    "Unacknowledged",
    (queue) => count(queue.messages_unacknowledged),
    { sort: "messages_unacknowledged", number: true },
  ],
  ["Total", (queue) => count(queue.messages), { sort: "messages", number: true }],
  ["Last 10 min", (queue) => level("Messages", queue.messages_details, queue.messages, count)],
  ["Consumers", (queue) => count(queue.consumers), { sort: "consumers", number: true }],
  [
    "In",
    ({ message_stats: stats }) => rate(stats?.publish_details?.rate ?? 0),
    { sort: "message_stats.publish_details.rate", number: true },
  ],
  [
    "Out",
    ({ message_stats: stats }) => rate(stats?.deliver_get_details?.rate ?? 0),
    { sort: "message_stats.deliver_get_details.rate", number: true },
  ],
];

/** The virtual host, if several are listed. */
export const place = ({ vhost }) => !host() && h("small", { class: "hint" }, ` ${vhost}`);

/** Features of a queue or an exchange in short words. */
export function features(thing) {
  const told = [
    !thing.durable && "transient",
    thing.auto_delete && "auto-delete",
    thing.exclusive && "exclusive",
    thing.internal && "internal",
  ].filter(Boolean);
  const given = Object.entries(thing.arguments ?? {}).filter(([name]) => name !== "x-queue-type");
  return [
    told.map((each) => badge(each)),
    given.length > 0 &&
      h(
        "span",
        { class: "badge", title: given.map(([name, set]) => `${name} = ${value(set)}`).join("\n") },
        `${given.length} arg`,
      ),
    thing.policy && badge(thing.policy, "policy"),
  ];
}

const declaring = () =>
  form(
    "Declare",
    [
      { name: "vhost", label: "Virtual host", value: oneHost(), required: true },
      { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", type: "select", options: ["default", "classic", "quorum", "stream"] },
      { name: "durable", label: "Survives a restart", type: "checkbox", value: true },
      { name: "auto_delete", label: "Deleted with its last consumer", type: "checkbox" },
      {
        name: "arguments",
        label: "Arguments",
        type: "table",
        offers: ARGUMENTS,
        hint: "One a line: name = value",
      },
    ],
    async ({ vhost, name, type, durable, auto_delete: autoDelete, arguments: given }) => {
      const kind = type === "default" ? {} : { "x-queue-type": type };
      await put(path`queues/${vhost}/${name}`, {
        durable,
        auto_delete: autoDelete,
        arguments: { ...kind, ...given },
      });
      location.hash = queueLink(vhost, name);
      return `Queue “${name}” is declared`;
    },
  );
