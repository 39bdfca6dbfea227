// Shovels: from where to where, how far they are, and what holds them up.

import { get, path, put, remove } from "../api.js";
import { h } from "../dom.js";
import { form, panel } from "../forms.js";
import { count } from "../format.js";
import { namesOf } from "../names.js";
import { attempt, confirmed } from "../notices.js";
import { has, host, oneHost } from "../session.js";
import { badge, hostColumn, section, table } from "../tables.js";

const KINDS = { running: "good", starting: "warning", terminated: "failed" };

export const shovels = {
  title: () => "Shovels",

  load: (_, signal) => get(host() ? path`shovels/${host()}` : "shovels", signal),

  draw: (found) => [
    h(
      "p",
      { class: "hint" },
      "A shovel takes messages from a queue or an exchange, here or at another broker, and publishes them to another. ",
    ),
    has("policymaker") && panel("Add or replace a shovel", setting()),
    section(
      "Shovels",
      found.length
        ? table(columns(), found, ({ vhost, name }) => JSON.stringify([vhost, name]))
        : h("p", { class: "empty" }, "There are no shovels."),
    ),
  ],
};

const KIND = {
  type: "select",
  options: [
    ["queue", "queue"],
    ["exchange", "exchange"],
    ["address", "address, of another broker over AMQP 1.0"],
  ],
};
const URI_HINT = "amqp:// is this node; amqps://user:password@host/vhost another broker";

const setting = () =>
  form(
    "Set",
    [
      { name: "vhost", label: "Virtual host", value: oneHost(), required: true },
      { name: "name", label: "Name", required: true },
      { name: "src-uri", label: "From the broker at", value: "amqp://", required: true, hint: URI_HINT },
      { name: "src-kind", label: "From a", ...KIND },
      { name: "src-name", label: "Its name", required: true, complete: namesOf(kindIn, hostIn) },
      { name: "src-key", label: "Routing key, of an exchange" },
      { name: "dest-uri", label: "To the broker at", value: "amqp://", required: true, hint: URI_HINT },
      { name: "dest-kind", label: "To a", ...KIND },
      { name: "dest-name", label: "Its name there", required: true },
      { name: "dest-key", label: "Routing key, of an exchange" },
      {
        name: "ack-mode",
        label: "A message leaves the source when it is",
        type: "select",
        options: [
          ["on-confirm", "confirmed by the destination"],
          ["on-publish", "published"],
          ["no-ack", "delivered to the shovel"],
        ],
      },
      {
        name: "src-delete-after",
        label: "The shovel ends",
        type: "select",
        options: [
          ["never", "never"],
          ["queue-length", "when it has moved what is there now"],
        ],
      },
    ],
    async (given) => {
      const { vhost, name } = given;
      const whole = { "ack-mode": given["ack-mode"], "src-delete-after": given["src-delete-after"] };
      await put(path`parameters/shovel/${vhost}/${name}`, {
        value: { ...whole, ...endOf(given, "src"), ...endOf(given, "dest") },
      });
      return `Shovel “${name}” is set`;
    },
  );

const hostIn = (filled) => filled.elements.vhost.value;
const kindIn = (filled) => {
  const kind = filled.elements["src-kind"].value;
  return kind === "address" ? null : `${kind}s`; // addresses of other brokers are not known
};

/** Returns the keys of one end of a shovel. */
function endOf(given, end) {
  const [uri, kind, name, key] = ["uri", "kind", "name", "key"].map((part) => given[`${end}-${part}`]);
  return {
    [`${end}-uri`]: uri,
    [`${end}-${kind}`]: name,
    ...(kind === "address" && { [`${end}-protocol`]: "amqp10" }),
    ...(kind === "exchange" && key && { [`${end}-exchange-key`]: key }),
  };
}

const columns = () => [
  ["Name", ({ name }) => name],
  ...hostColumn(),
  ["State", ({ state, blocked_status: held, reason }) => [
    badge(state, KINDS[state] ?? "warning"),
    held === "flow" && badge("held up", "warning"),
    reason && h("p", { class: "warned" }, reason),
  ]],
  ["From", (each) => end(each, "src")],
  ["To", (each) => end(each, "dest")],
  ["Moved", ({ forwarded }) => count(forwarded), { number: true }],
  ["Left", ({ remaining }) => (remaining === undefined ? "–" : count(remaining)), { number: true }],
  ["Acknowledges", ({ ack_mode: mode }) => mode],
  ["", (each) => has() && actions(each)],
];

function end(each, which) {
  const told = (name) => each[`${which}_${name}`];
  const key = told("exchange_key");
  const kind = ["queue", "exchange", "address"].find(told);
  const where = kind ? `${kind} ${told(kind)}` : "its own exchange";
  return [where, key ? ` with key ${key}` : "", h("div", { class: "hint" }, h("code", {}, told("uri")))];
}

const actions = (each) =>
  h(
    "div",
    { class: "row" },
    h("button", { type: "button", onclick: () => restart(each) }, "Restart"),
    h("button", { type: "button", class: "danger", onclick: () => drop(each) }, "Delete"),
  );

const where = ({ vhost, name }) => path`shovels/vhost/${vhost}/${name}`;

async function restart(each) {
  await attempt(() => remove(`${where(each)}/restart`), `Shovel “${each.name}” starts again`);
  document.dispatchEvent(new Event("leveret:changed"));
}

async function drop(each) {
  if (!(await confirmed(`Delete shovel “${each.name}”?`, "Delete", "Messages on their way are back at their source."))) return;
  await attempt(() => remove(where(each)), `Shovel “${each.name}” is deleted`);
  document.dispatchEvent(new Event("leveret:changed"));
}
