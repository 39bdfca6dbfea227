// The messages of a queue that wait for a time: after a delivery that failed, or because they were published for later.

import { get, path, post, query, remove } from "../api.js";
import { h } from "../dom.js";
import { count, moment, octets } from "../format.js";
import { attempt, confirmed } from "../notices.js";
import { section, table } from "../tables.js";

const SHOWN = 50;

/** Loads the messages that are due first, if any wait. */
export const loadDelayed = (host, name, { messages_delayed: waiting }, signal) =>
  waiting > 0 ? get(path`leveret/queues/${host}/${name}/delayed` + query({ count: SHOWN }), signal) : null;

export function delayed(found, host, name) {
  if (!found?.messages.length) return null;
  const { total, messages } = found;
  const all = total > 1 ? `all ${count(total)}` : "it";
  return section(
    "Messages for later",
    h(
      "p",
      { class: "hint" },
      messages.length < total ? `${count(messages.length)} of ${count(total)}, those that are due first.` : null,
    ),
    table(
      [
        ["Due", ({ due }) => moment(due)],
        ["Expires", ({ expires }) => (expires === null ? "never" : moment(expires))],
        ["Body", ({ payload_bytes: size }) => octets(size), { number: true }],
        ["Failed deliveries", ({ delivery_count: failed }) => count(failed), { number: true }],
        ["Position", ({ position }) => String(position), { number: true }],
        ["", ({ position }) => buttons(host, name, position)],
      ],
      messages,
      ({ position }) => String(position),
    ),
    h(
      "div",
      { class: "row" },
      h("button", { type: "button", onclick: () => deliver(host, name, null, all) }, "Deliver all now"),
      h("button", { type: "button", class: "danger", onclick: () => cancel(host, name, null, all) }, "Cancel all"),
    ),
  );
}

const buttons = (host, name, position) =>
  h(
    "div",
    { class: "row" },
    h("button", { type: "button", onclick: () => deliver(host, name, position) }, "Deliver now"),
    h("button", { type: "button", class: "danger", onclick: () => cancel(host, name, position) }, "Cancel"),
  );

async function deliver(host, name, position, all) {
  if (position === null && !(await confirmed(`Deliver ${all} now, before the time?`, "Deliver"))) return;
  await attempt(
    () =>
      post(path`leveret/queues/${host}/${name}/delayed/deliver`, position === null ? {} : { positions: [position] }),
    position === null ? "They are delivered" : "The message is delivered",
  );
  document.dispatchEvent(new Event("leveret:changed"));
}

async function cancel(host, name, position, all) {
  const asked = position === null ? `Drop ${all}?` : `Drop the message at position ${position}?`;
  if (!(await confirmed(asked, "Drop", "It is lost."))) return;
  const where = path`leveret/queues/${host}/${name}/delayed`;
  await attempt(
    () => remove(position === null ? where : `${where}/${position}`),
    position === null ? "They are dropped" : "The message is dropped",
  );
  document.dispatchEvent(new Event("leveret:changed"));
}
