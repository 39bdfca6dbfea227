// The broker at a glance.

import { get, query } from "../api.js";
import { flows, lengths, ranges, sampledFor } from "../charts.js";
import { h } from "../dom.js";
import { count, duration, octets, rate } from "../format.js";
import { link } from "../routes.js";
import { has } from "../session.js";
import { facts, section, table } from "../tables.js";
import { cluster } from "./cluster.js";

export const overview = {
  title: () => "Overview",

  async load(at, signal) {
    const nodes = has("monitoring") ? get(`nodes${query(sampledFor(at, "node_stats"))}`, signal) : [];
    const asked = `overview${query(sampledFor(at, "lengths", "msg_rates"))}`;
    const others = has("monitoring") ? get("cluster", signal) : null;
    const [found, known, shared] = await Promise.all([get(asked, signal), nodes, others]);
    return { found, nodes: known, shared };
  },

  draw: ({ found, nodes, shared }, at) => [
    tiles(found),
    ranges(at),
    h(
      "div",
      { class: "charts" },
      queued(found.queue_totals),
      messages(found.message_stats),
      churn(found.churn_rates),
      nodes.slice(0, 1).map((node) => [processor(node), memory(node)]),
    ),
    cluster(shared),
    nodes.map(resources),
    listeners(found.listeners ?? []),
  ],
};

const tiles = ({ queue_totals: totals = {}, message_stats: stats = {}, object_totals: objects = {} }) => [
  h(
    "div",
    { class: "tiles large" },
    tile("Ready, with streams", count(totals.messages_ready ?? 0), "queues"),
    tile("Unacknowledged", count(totals.messages_unacknowledged ?? 0), "queues"),
    tile("Published", rate(stats.publish_details?.rate ?? 0), "exchanges"),
    tile("Delivered", rate(stats.deliver_get_details?.rate ?? 0), "consumers"),
  ),
  h(
    "div",
    { class: "tiles" },
    ["connections", "channels", "consumers", "exchanges", "queues"].map((name) =>
      tile(name[0].toUpperCase() + name.slice(1), count(objects[name]), name),
    ),
  ),
];

const tile = (label, shown, view) =>
  h(
    "a",
    { class: "tile", href: link([view]), "data-key": `tile ${label}` },
    h("span", {}, label),
    h("b", {}, shown),
  );

export const queued = (totals) =>
  lengths("Queued messages", totals, [
    ["messages_ready", "Ready"],
    ["messages_unacknowledged", "Unacknowledged"],
    ["messages", "Total"],
  ]);

export const messages = (stats) =>
  flows("Message rates", stats, [
    ["publish", "Published"],
    ["deliver_get", "Delivered"],
    ["ack", "Acknowledged"],
    ["redeliver", "Redelivered"],
    ["return_unroutable", "Returned"],
  ]);

const churn = (rates) =>
  flows("Coming and going", rates, [
    ["connection_created", "Connections opened"],
    ["connection_closed", "Connections closed"],
    ["queue_declared", "Queues declared"],
    ["queue_deleted", "Queues deleted"],
  ]);

// A thousand milliseconds of processor time in a second are one processor.
const processor = (node) =>
  flows("Processor time", node, [["processor_ms", "Of one processor"]], (ms) => percent(ms / 1000));

const memory = (node) => lengths("Memory", node, [["mem_used", "Used"]], octets);

const percent = (part) => (Number.isFinite(part) ? `${(part * 100).toFixed(part < 0.1 ? 1 : 0)} %` : "–");

const resources = (node) =>
  section(
    `Node ${node.name}`,
    h(
      "div",
      { class: "gauges" },
      gauge("Memory", node.mem_used, node.mem_limit, octets, node.mem_alarm),
      gauge("Files", node.fd_used, node.fd_total, count),
      gauge("Sockets", node.sockets_used, node.sockets_total, count),
    ),
    facts([
      [
        "Disk free",
        node.disk_free_limit > 0 && `${octets(node.disk_free)} (limit ${octets(node.disk_free_limit)})`,
      ],
      ["Up for", duration(node.uptime)],
      ["Process", node.os_pid],
      ["Processors", node.processors],
    ]),
  );

function gauge(label, used, most, told, alarm = false) {
  if (!Number.isFinite(used)) return null;
  return h(
    "div",
    { class: `gauge ${alarm ? "alarm" : ""}` },
    h("span", {}, label),
    h("b", {}, told(used)),
    Number.isFinite(most) &&
      most > 0 && [
        h("meter", {
          min: 0,
          max: most,
          value: Math.min(used, most),
          high: most * 0.8,
          optimum: 0,
          "aria-label": label,
        }),
        h("small", {}, `of ${told(most)}`),
      ],
  );
}

const listeners = (found) =>
  section(
    "Listeners",
    table(
      [
        ["Protocol", ({ protocol }) => protocol],
        ["Address", ({ ip_address: address }) => address],
        ["Port", ({ port }) => String(port), { number: true }],
      ],
      found,
      ({ protocol, ip_address: address, port }) => `${protocol} ${address} ${port}`,
    ),
  );
