// Dead letters among messages that are looked at: those that are picked go back to the queues that they came from.

import { path, post } from "./api.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { messages } from "./messages.js";
import { attempt, confirmed, notice } from "./notices.js";

const originOf = ({ properties }) => properties?.headers?.["x-first-death-queue"];

/** Shows messages; above dead letters stands a box, and above all what is done with the picked. `again` looks anew. */
export function returnable(host, name, found, again) {
  if (!found.some((each) => originOf(each))) return [messages(found)];
  const boxes = new Map();
  const box = (each) => {
    const input = h("input", { type: "checkbox", onchange: count });
    boxes.set(input, each);
    return h("label", { class: "check" }, input, h("span", {}, `From queue “${originOf(each)}”`));
  };
  const picked = () => [...boxes].filter(([input]) => input.checked).map(([, each]) => each);
  const send = h(
    "button",
    { type: "button", disabled: true, onclick: () => sendBack(host, name, picked(), again) },
    "Send back",
  );
  function count() {
    send.disabled = !picked().length;
    send.textContent = picked().length ? `Send ${plural(picked().length, "message")} back` : "Send back";
  }
  const all = (on) => {
    for (const input of boxes.keys()) input.checked = on;
    count();
  };
  return [
    h(
      "div",
      { class: "row pager", role: "group", "aria-label": "Dead letters" },
      send,
      h("button", { type: "button", class: "plain", onclick: () => all(true) }, "Select all"),
      h("button", { type: "button", class: "plain", onclick: () => all(false) }, "Select none"),
      h("span", { class: "hint" }, "to the queues that they came from"),
    ),
    messages(found, "", (each) => originOf(each) && box(each)),
  ];
}

async function sendBack(host, name, chosen, again) {
  const queues = [...new Set(chosen.map(originOf))].map((each) => `“${each}”`).join(", ");
  const asked = `Send ${plural(chosen.length, "message")} back to ${queues}?`;
  if (!(await confirmed(asked, "Send back", "They arrive behind those that wait there."))) return;
  await attempt(async () => {
    const positions = chosen.map(({ position }) => position);
    const { returned, stayed } = await post(path`leveret/queues/${host}/${name}/return`, { positions });
    for (const [reason, number] of Object.entries(stayed))
      notice(`${plural(number, "message")} stayed: ${reason}`, "failed");
    await again();
    return returned ? `${plural(returned, "message")} went back` : null;
  });
  document.dispatchEvent(new Event("leveret:changed"));
}
