// Connections, and closing them.

import { get, path, query, remove } from "../api.js";
import { SAMPLED, flows } from "../charts.js";
import { h } from "../dom.js";
import { count, moment, octetRate, octets, rate, value } from "../format.js";
import { form, panel } from "../forms.js";
import { link } from "../routes.js";
import { has, host, whoever } from "../session.js";
import { OCTETS, pace } from "../sparks.js";
import { badge, facts, hostColumn, list, page, section, table } from "../tables.js";

const LISTED = [
  "name",
  "vhost",
  "user",
  "client_properties.connection_name",
  "client_properties.product",
  "protocol",
  "ssl",
  "websocket",
  "state",
  "channels",
  "recv_oct_details",
  "send_oct_details",
].join();

export const connections = {
  title: () => "Connections",
  load: (at, signal) =>
    page(
      host() ? path`vhosts/${host()}/connections` : "connections",
      at.query,
      { columns: LISTED, ...OCTETS },
      signal,
    ),
  draw: (found, at) => list("connections", columns(), found, ({ name }) => name, at),
};

/** Shows a client by the name that it has given itself, above its address; without one, by that. */
function client({ name, client_properties: told }) {
  const given = [told?.connection_name, told?.product].filter(Boolean).map(value);
  const shown = told?.connection_name ? given.shift() : name;
  const more = [...given, ...(shown === name ? [] : [name])].join(" · ");
  return [h("a", { href: link(["connections", name]) }, shown), more && h("div", { class: "hint" }, more)];
}

const columns = () => [
  ["Client", client, { sort: "client_properties.connection_name" }],
  ...hostColumn(),
  ["User", ({ user }) => user, { sort: "user" }],
  ["Protocol", ({ protocol, ssl, websocket }) => [protocol, " ", ssl && badge("TLS"), websocket && badge("WebSocket")], { sort: "protocol" }],
  ["State", ({ state }) => (state === "running" ? state : badge(state ?? "–", "warning")), { sort: "state" }],
  ["Channels", ({ channels }) => count(channels), { sort: "channels", number: true }],
  [
    "In",
    ({ recv_oct_details: given }) => octetRate(given?.rate ?? 0),
    { sort: "recv_oct_details.rate", number: true },
  ],
  [
    "Out",
    ({ send_oct_details: given }) => octetRate(given?.rate ?? 0),
    { sort: "send_oct_details.rate", number: true },
  ],
  [
    "Last 10 min",
    (each) =>
      pace(
        [
          ["In", each.recv_oct_details],
          ["Out", each.send_oct_details],
        ],
        octetRate,
      ),
  ],
];

export const connection = {
  title: ({ names: [, name] }) => `Connection ${name}`,

  async load({ names: [, name] }, signal) {
    const [found, channels] = await Promise.all([
      get(path`connections/${name}` + query({ ...SAMPLED, data_rates_age: 600, data_rates_incr: 5 }), signal),
      get(path`connections/${name}/channels`, signal),
    ]);
    return { found, channels };
  },

  draw: ({ found, channels }, { names: [, name] }) => [
    h(
      "div",
      { class: "charts" },
      flows(
        "Bytes per second",
        found,
        [
          ["recv_oct", "Received"],
          ["send_oct", "Sent"],
        ],
        octetRate,
      ),
    ),
    section("Details", facts(details(found))),
    section(
      "Client",
      facts(Object.entries(found.client_properties ?? {}).map(([key, given]) => [key, property(given)])),
    ),
    section(
      "Channels",
      channels.length
        ? table(CHANNELS, channels, (each) => each.name)
        : h("p", { class: "empty" }, "There are none."),
    ),
    (has() || found.user === whoever().name) && panel("Close this connection", closing(name)),
  ],
};

/** Returns a property of a client; a table of switches, such as the capabilities, as the names of those that are on. */
function property(given) {
  const switches = Object.entries(given ?? {});
  const isTable = typeof given === "object" && switches.length > 0;
  if (!isTable || !switches.every(([, on]) => typeof on === "boolean")) return value(given);
  return switches
    .filter(([, on]) => on)
    .map(([name]) => value(name.replaceAll("_", " ")))
    .join(", ");
}

const details = (found) => [
  ["User", found.user],
  ["Virtual host", found.vhost],
  ["Protocol", found.protocol],
  ["State", found.state],
  ["Connected", moment(found.connected_at)],
  ["From", Number.isFinite(found.peer_port) && `${found.peer_host}:${found.peer_port}`],
  ["Process", found.peer_process && `${found.peer_process.pid} of user ${found.peer_process.uid}`],
  ["Logged in by", found.auth_mechanism],
  ["TLS", found.ssl ? (found.ssl_protocol ?? "yes") : "no"],
  ["Certificate of", found.peer_cert_subject],
  ["Heartbeat", Number.isFinite(found.timeout) && `${found.timeout} s`],
  ["Largest frame", Number.isFinite(found.frame_max) && octets(found.frame_max)],
  ["Received", octets(found.recv_oct)],
  ["Sent", octets(found.send_oct)],
];

const CHANNELS = [
  ["Channel", (each) => h("a", { href: link(["channels", each.name]) }, String(each.number ?? each.name))],
  [
    "Mode",
    ({ confirm, transactional }) => [confirm && badge("confirms"), transactional && badge("transactions")],
  ],
  ["Unacknowledged", (each) => count(each.messages_unacknowledged), { number: true }],
  ["Consumers", (each) => count(each.consumer_count), { number: true }],
  ["Published", ({ message_stats: stats }) => rate(stats?.publish_details?.rate ?? 0), { number: true }],
];

const closing = (name) =>
  form(
    "Close",
    [
      {
        name: "reason",
        label: "Reason that the client is told",
        value: "Closed from the web page",
        required: true,
      },
    ],
    async ({ reason }) => {
      await remove(path`connections/${name}`, { "X-Reason": header(reason) });
      location.hash = link(["connections"]);
      return "The connection is closed";
    },
  );

/** Returns what a header can hold (RFC 9110, section 5.5). */
function header(text) {
  if (!/^[\x20-\x7e]*$/.test(text)) throw new Error("a reason has letters, digits and signs of ASCII only");
  return text;
}
