// All queues, a page at a time, and declaring one.

import { get, path, put, remove } from "../api.js";
import { h } from "../dom.js";
import { form, panel } from "../forms.js";
import { count, cut, plural, rate, value } from "../format.js";
import { confirmed } from "../notices.js";
import { forEach, picking } from "../picking.js";
import { queueLink } from "../routes.js";
import { host, oneHost } from "../session.js";
import { LENGTHS, level } from "../sparks.js";
import { badge, hostColumn, list, page } from "../tables.js";

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
    panel("Declare a queue", declaring()),
    list("queues", columns(found.items), found, keyOf, at, bar()),
  ],
};

const keyOf = ({ vhost, name }) => JSON.stringify([vhost, name]);
const picked = picking(keyOf, ({ name }) => name);

const columns = (shown) => [
  [picked.all(shown), picked.box, { box: true }],
  ["Name", ({ vhost, name }) => h("a", { href: queueLink(vhost, name) }, name || "(no name)"), { sort: "name" }],
  ...hostColumn(),
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

/** What can be done with the queues that are picked. */
function bar() {
  const rows = picked.rows();
  if (!rows.length) return null;
  return h(
    "div",
    { class: "row bar", role: "group", "aria-label": "Selected queues" },
    h("span", {}, `${plural(rows.length, "queue")}, ${plural(sum(rows, "messages"), "message")}`),
    h("button", { type: "button", class: "danger", onclick: () => purgeAll(rows) }, "Purge"),
    h("button", { type: "button", class: "danger", onclick: () => dropAll(rows) }, "Delete"),
    h("button", { type: "button", class: "plain", onclick: picked.clear }, "Select none"),
  );
}

const sum = (rows, column) => rows.reduce((total, each) => total + (each[column] ?? 0), 0);
const where = ({ vhost, name }) => path`queues/${vhost}/${name}`;

/** Returns the rows as they are now, without those that are gone. */
const current = (rows) =>
  Promise.all(
    rows.map((row) =>
      get(`${where(row)}?columns=vhost,name,type,messages,messages_ready`).catch(() => null),
    ),
  ).then((found) => found.filter(Boolean));

async function purgeAll(chosen) {
  const rows = (await current(chosen)).filter(({ type }) => type !== "stream");
  const asked = `Throw away ${plural(sum(rows, "messages_ready"), "ready message")} of ${plural(rows.length, "queue")}?`;
  if (!(await confirmed(asked, "Purge", named(rows)))) return;
  await forEach(rows, (row) => remove(`${where(row)}/contents`), (done) => `${plural(done, "queue")} purged`);
  finished();
}

async function dropAll(chosen) {
  const rows = await current(chosen);
  const held = sum(rows, "messages");
  const lost = held ? `${plural(held, "message")} in them are lost. ` : "";
  if (!(await confirmed(`Delete ${plural(rows.length, "queue")}?`, "Delete", lost + named(rows)))) return;
  await forEach(rows, (row) => remove(where(row)), (done) => `${plural(done, "queue")} deleted`);
  finished();
}

function finished() {
  picked.clear();
  document.dispatchEvent(new Event("leveret:changed"));
}

const NAMED = 5;
const named = (rows) =>
  rows
    .slice(0, NAMED)
    .map(({ name }) => `“${cut(name, 40)}”`)
    .join(", ") + (rows.length > NAMED ? ` and ${rows.length - NAMED} more.` : ".");

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
