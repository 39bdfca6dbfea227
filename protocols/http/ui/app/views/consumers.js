// Consumers and their queues.

import { path } from "../api.js";
import { h } from "../dom.js";
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
      COLUMNS,
      found,
      ({ consumer_tag: tag, queue, channel_details: channel }) =>
        JSON.stringify([queue?.vhost, queue?.name, channel?.name, tag]),
      at,
    ),
};

const COLUMNS = [
  ["Tag", (each) => [each.consumer_tag, warned(each)], { sort: "consumer_tag" }],
  [
    "Queue",
    ({ queue }) =>
      queue && [
        h("a", { href: queueLink(queue.vhost, queue.name) }, queue.name),
        !host() && h("small", { class: "hint" }, ` ${queue.vhost}`),
      ],
    { sort: "queue.name" },
  ],
  [
    "Channel",
    ({ channel_details: channel }) =>
      channel?.name && h("a", { href: link(["channels", channel.name]) }, channel.name),
    { sort: "channel_details.name" },
  ],
  ["Acknowledges", ({ ack_required: acks }) => (acks ? "yes" : "no")],
  ["Prefetch", ({ prefetch_count: most }) => String(most ?? 0), { sort: "prefetch_count", number: true }],
  ["Exclusive", ({ exclusive }) => exclusive && badge("exclusive")],
  ["Active", ({ active }) => (active === false ? badge("waiting", "warning") : "yes")],
];
