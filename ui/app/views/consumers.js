// Consumers and their queues.

import { path } from "../api.js";
import { h } from "../dom.js";
import { count, value } from "../format.js";
import { warned } from "../notices.js";
import { link, queueLink } from "../routes.js";
import { host } from "../session.js";
import { badge, list, page } from "../tables.js";

export const consumers = {
  title: () => "Consumers",
  load: (at, signal) => page(host() ? path`consumers/${host()}` : "consumers", at.query, {}, signal),
  draw: (found, at) =>
    list(
      "consumers",
      columns(),
      found,
      ({ consumer_tag: tag, queue, channel_details: channel }) =>
        JSON.stringify([queue?.vhost, queue?.name, channel?.name, tag]),
      at,
    ),
};

const columns = () => [
  ["Tag", (each) => [each.consumer_tag, warned(each)], { sort: "consumer_tag" }],
  [
    "Queue",
    ({ queue }) => queue && h("a", { href: queueLink(queue.vhost, queue.name) }, queue.name),
    { sort: "queue.name" },
  ],
  ...(host() ? [] : [["Virtual host", ({ queue }) => queue?.vhost, { sort: "queue.vhost" }]]),
  [
    "Client",
    ({ channel_details: channel }) => channel?.user_provided_name && value(channel.user_provided_name),
    { sort: "channel_details.user_provided_name" },
  ],
  [
    "Channel",
    ({ channel_details: channel }) =>
      channel?.name && h("a", { href: link(["channels", channel.name]) }, channel.name),
    { sort: "channel_details.name" },
  ],
  ["Acknowledges", ({ ack_required: acks }) => (acks ? "yes" : "no")],
  ["Prefetch", ({ prefetch_count: most }) => count(most ?? 0), { sort: "prefetch_count", number: true }],
  ["Exclusive", ({ exclusive }) => exclusive && badge("exclusive")],
  ["Active", ({ active }) => (active === false ? badge("waiting", "warning") : "yes")],
];
