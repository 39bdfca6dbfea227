// Shovels: from where to where, how far they are, and what holds them up.

import { get, path, remove } from "../api.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { attempt, confirmed } from "../notices.js";
import { has, host } from "../session.js";
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
      "It is set with leveret shovel set, or as a parameter of the component shovel.",
    ),
    section(
      "Shovels",
      found.length
        ? table(columns(), found, ({ vhost, name }) => JSON.stringify([vhost, name]))
        : h("p", { class: "empty" }, "There are no shovels."),
    ),
  ],
};

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
  const where = told("queue") ? `queue ${told("queue")}` : told("exchange") ? `exchange ${told("exchange")}` : "its own exchange";
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
