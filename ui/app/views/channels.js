// Channels of AMQP 0-9-1, and sessions of 1.0 and 0-10.

import { get, path, query } from "../api.js";
import { SAMPLED } from "../charts.js";
import { h } from "../dom.js";
import { count, rate, value } from "../format.js";
import { link, queueLink } from "../routes.js";
import { host } from "../session.js";
import { badge, facts, hostColumn, list, page, section, table } from "../tables.js";
import { messages } from "./overview.js";

export const channels = {
  title: () => "Channels",
  load: (at, signal) => page(host() ? path`vhosts/${host()}/channels` : "channels", at.query, {}, signal),
  draw: (found, at) => list("channels", columns(), found, ({ name }) => name, at),
};

/** Shows the name that the client has given its connection, above the channel's own; without one, that. */
function clientOf({ name, connection_details: { user_provided_name: client } = {} }) {
  const shown = client ? value(client) : name;
  return [
    h("a", { href: link(["channels", name]) }, shown),
    client && h("div", { class: "hint" }, name),
  ];
}

const mode = ({ confirm, transactional }) => [
  confirm && badge("confirms"),
  transactional && badge("transactions"),
];

const columns = () => [
  ["Client", clientOf, { sort: "connection_details.user_provided_name" }],
  ...hostColumn(),
  ["User", ({ user }) => user, { sort: "user" }],
  ["Mode", mode],
  ["State", ({ state }) => state ?? "–", { sort: "state" }],
  [
    "Unacknowledged",
    (each) => count(each.messages_unacknowledged),
    { sort: "messages_unacknowledged", number: true },
  ],
  ["Prefetch", (each) => count(each.prefetch_count), { sort: "prefetch_count", number: true }],
  ["Consumers", (each) => count(each.consumer_count), { sort: "consumer_count", number: true }],
  [
    "Published",
    ({ message_stats: stats }) => rate(stats?.publish_details?.rate ?? 0),
    { sort: "message_stats.publish_details.rate", number: true },
  ],
  [
    "Delivered",
    ({ message_stats: stats }) => rate(stats?.deliver_get_details?.rate ?? 0),
    { sort: "message_stats.deliver_get_details.rate", number: true },
  ],
];

export const channel = {
  title: ({ names: [, name] }) => `Channel ${name}`,

  load: ({ names: [, name] }, signal) => get(path`channels/${name}` + query(SAMPLED), signal),

  draw: (found) => [
    h("div", { class: "charts" }, messages(found.message_stats)),
    section("Details", facts(details(found))),
    section(
      "Consumers",
      found.consumer_details?.length
        ? table(READS, found.consumer_details, (each) => each.consumer_tag)
        : h("p", { class: "empty" }, "There are none."),
    ),
  ],
};

const details = (found) => [
  [
    "Connection",
    found.connection_details?.name &&
      h("a", { href: link(["connections", found.connection_details.name]) }, found.connection_details.name),
  ],
  ["Client", clientOf(found)],
  ["User", found.user],
  ["Virtual host", found.vhost],
  ["State", found.state],
  ["Mode", mode(found).some(Boolean) && mode(found)],
  ["Unacknowledged", count(found.messages_unacknowledged)],
  ["Unconfirmed", count(found.messages_unconfirmed)],
  ["Uncommitted", count(found.messages_uncommitted)],
  ["Acknowledgements uncommitted", count(found.acks_uncommitted)],
  ["Prefetch of each consumer", count(found.prefetch_count)],
  ["Prefetch of all together", count(found.global_prefetch_count)],
];

const READS = [
  ["Tag", ({ consumer_tag: tag }) => tag],
  ["Queue", ({ queue }) => queue && h("a", { href: queueLink(queue.vhost, queue.name) }, queue.name)],
  ["Acknowledges", ({ ack_required: acks }) => (acks ? "yes" : "no")],
  ["Prefetch", ({ prefetch_count: most }) => String(most ?? 0), { number: true }],
];
