// A queue: its contents, consumers and bindings, and actions on it.

import { get, path, post, put, query, remove } from "../api.js";
import { arriving, binding, some, written } from "../bindings.js";
import { SAMPLED } from "../charts.js";
import { h } from "../dom.js";
import { form, panel } from "../forms.js";
import { count, octets, plural, value } from "../format.js";
import { messages as shownMessages, publishing } from "../messages.js";
import { namesOf } from "../names.js";
import { attempt, confirmed, warned } from "../notices.js";
import { returnable } from "../returning.js";
import { DEFAULT_EXCHANGE, link } from "../routes.js";
import { facts, section, table } from "../tables.js";
import { browsing } from "./browsing.js";
import { deduplication } from "./deduplication.js";
import { delayed, loadDelayed } from "./delayed.js";
import { messages, queued } from "./overview.js";
import { features } from "./queues.js";

const ACKS = [
  ["ack_requeue_true", "put them back"],
  ["ack_requeue_false", "take them out"],
  ["reject_requeue_true", "reject, put back"],
  ["reject_requeue_false", "reject, drop or dead-letter"],
];

export const queue = {
  title: ({ names: [, , name] }) => `Queue ${name}`,

  async load(at, signal) {
    const [, host, name] = at.names;
    const [found, bindings] = await Promise.all([
      get(path`queues/${host}/${name}` + query(SAMPLED), signal),
      some(path`queues/${host}/${name}/bindings`, at, "to", signal),
    ]);
    return { found, bindings, later: await loadDelayed(host, name, found, signal) };
  },

  draw: ({ found, bindings, later }, at, [, host, name] = at.names) => [
    h("p", { class: "hint" }, `${found.type ?? "classic"} queue in virtual host ${host} `, features(found)),
    warned(found),
    h("div", { class: "charts" }, queued(found), messages(found.message_stats)),
    section("Details", details(found, host, name)),
    delayed(later, host, name),
    section("Consumers", readers(found)),
    arriving(bindings, at),
    binding(host, name, "queue"),
    panel("Look at messages", found.type === "stream" ? browsing(host, name) : peeking(host, name)),
    found.type === "stream" ? null : panel("Get messages", getting(host, name)),
    panel("Publish to this queue", publishing(host, DEFAULT_EXCHANGE, name)),
    found.type === "stream" ? null : panel("Move messages", moving(host, name)),
    ends(found, host, name),
  ],
};

const held = (found) =>
  `${count(found.messages_dlx)} (${octets(found.message_bytes_dlx)}): ${found.dead_letters_wait ?? "on their way"}`;

const unreadable = (found, host, name) => [
  h("b", { class: "dropped" }, `${count(found.messages_unreadable)}; they stay in the store `),
  h("button", { type: "button", onclick: () => reread(host, name) }, "Read again"),
];

async function reread(host, name) {
  await attempt(async () => {
    const { rereading } = await put(path`queues/${host}/${name}/reread`, {});
    return `${plural(rereading, "message")} of “${name}” is read again`;
  });
  document.dispatchEvent(new Event("leveret:changed"));
}

const details = (found, host, name) =>
  facts([
    ["State", found.state],
    ["Ready", count(found.messages_ready)],
    ["Unacknowledged", count(found.messages_unacknowledged)],
    ["For later", found.messages_delayed > 0 && count(found.messages_delayed)],
    ["Dead letters held", found.messages_dlx > 0 && held(found)],
    ["Cannot be read", found.messages_unreadable > 0 && unreadable(found, host, name)],
    [
      "Unacknowledged bodies",
      found.message_bytes_unacknowledged > 0 && octets(found.message_bytes_unacknowledged),
    ],
    ["Bodies", Number.isFinite(found.message_bytes) && octets(found.message_bytes)],
    ["In memory", Number.isFinite(found.message_bytes_ram) && octets(found.message_bytes_ram)],
    ["Policy", found.policy],
    ["Operator policy", found.operator_policy],
    ...deduplication(found, "queues", host, name),
    ["Connection that owns it", found.owner_pid_details?.name],
    ["Arguments", written(found.arguments)],
    ["Policy’s settings", written(found.effective_policy_definition)],
  ]);

function readers({ consumer_details: found }) {
  if (!found?.length) return h("p", { class: "empty" }, "Nobody reads this queue.");
  return table(
    [
      ["Tag", (each) => [each.consumer_tag, warned(each)]],
      [
        "Channel",
        ({ channel_details: channel }) =>
          channel?.name && h("a", { href: link(["channels", channel.name]) }, channel.name),
      ],
      ["Client", ({ channel_details: channel }) => channel?.user_provided_name && value(channel.user_provided_name)],
      ["Acknowledges", ({ ack_required: acks }) => (acks ? "yes" : "no")],
      ["Prefetch", ({ prefetch_count: most }) => String(most ?? 0), { number: true }],
      ["Exclusive", ({ exclusive }) => (exclusive ? "yes" : "no")],
      ["Active", ({ active, slow }) => (active === false ? "waiting" : slow ? "yes, but slow" : "yes")],
    ],
    found,
    ({ consumer_tag: tag, channel_details: channel }) => JSON.stringify([channel?.name, tag]),
  );
}

// A form's result stays in an element of its own: both are left alone when the page refreshes.
function showing(make, drawn = (found) => [shownMessages(found)]) {
  const shown = h("div", { "aria-live": "polite" });
  return h(
    "div",
    { "data-keep": true, "data-key": "showing" },
    make((found) => shown.replaceChildren(...drawn(found))),
    shown,
  );
}

const amount = (value = 10) => ({
  name: "count",
  label: "How many at most",
  type: "number",
  value,
  min: 1,
  max: 1000,
  required: true,
});

const peeking = (host, name) => [
  h("p", { class: "hint" }, "They stay where they are, and are not marked as redelivered."),
  looking(host, name),
];

function looking(host, name) {
  let look = async () => {}; // once more, at as many
  const ask = (most) => get(path`leveret/queues/${host}/${name}/peek` + query({ count: most, truncate: 50000 }));
  return showing(
    (show) =>
      form("Look", [amount()], ({ count: most }) => {
        look = async () => show(await ask(most));
        return look();
      }),
    (found) => returnable(host, name, found, () => look()),
  );
}

const getting = (host, name) =>
  showing((show) =>
    form(
      "Get",
      [
        amount(1),
        { name: "ackmode", label: "Then", type: "select", options: ACKS },
        {
          name: "encoding",
          label: "Bodies as",
          type: "select",
          options: [
            ["auto", "text if they are"],
            ["base64", "base64"],
          ],
        },
      ],
      async ({ count: most, ackmode, encoding }) => {
        if (
          !ackmode.endsWith("true") &&
          !(await confirmed(`Take up to ${most} messages out of “${name}”?`, "Take out"))
        )
          return;
        show(
          await post(path`queues/${host}/${name}/get`, { count: most, ackmode, encoding, truncate: 50000 }),
        );
      },
    ),
  );

const moving = (host, name) =>
  form("Move", [{ name: "to", label: "To the queue", required: true, complete: namesOf("queues", host) }], async ({ to }) => {
    const asked = `Move ${plural(await ready(host, name), "ready message")} of “${name}” to “${to}”?`;
    if (!(await confirmed(asked, "Move"))) return null;
    const moved = await post(path`leveret/queues/${host}/${name}/move`, { to });
    return Number.isFinite(moved?.moved)
      ? `${plural(moved.moved, "message")} moved to “${to}”`
      : `Messages moved to “${to}”`;
  });

const ends = (found, host, name) =>
  h(
    "div",
    { class: "row ends" },
    h("button", { type: "button", onclick: () => pause(host, name, found) }, isPaused(found) ? "Resume" : "Pause"),
    found.type !== "stream" &&
      h("button", { type: "button", class: "danger", onclick: () => purge(host, name) }, "Purge"),
    h("button", { type: "button", class: "danger", onclick: () => drop(host, name, found) }, "Delete queue"),
  );

const isPaused = ({ state }) => state === "paused";

async function pause(host, name, found) {
  const resuming = isPaused(found);
  const asked = `Pause queue “${name}”? Its consumers get nothing until it is resumed.`;
  if (!resuming && !(await confirmed(asked, "Pause"))) return;
  const verb = resuming ? "resume" : "pause";
  await attempt(
    () => put(path`queues/${host}/${name}/${verb}`, {}),
    `Queue “${name}” ${resuming ? "delivers again" : "is paused"}`,
  );
  document.dispatchEvent(new Event("leveret:changed"));
}

/** Returns how many messages are ready now: what is shown is some seconds old. */
const ready = async (host, name) =>
  (await get(path`queues/${host}/${name}` + query({ columns: "messages_ready" }))).messages_ready ?? 0;

async function purge(host, name) {
  await attempt(async () => {
    const held = await ready(host, name);
    if (!(await confirmed(`Throw away ${plural(held, "ready message")} of “${name}”?`, "Purge"))) return null;
    await remove(path`queues/${host}/${name}/contents`);
    return `Queue “${name}” is purged`;
  });
  document.dispatchEvent(new Event("leveret:changed"));
}

async function drop(host, name, { messages: held }) {
  if (
    !(await confirmed(
      `Delete queue “${name}”?`,
      "Delete",
      held ? `${plural(held, "message")} in it ${held === 1 ? "is" : "are"} lost.` : null,
    ))
  )
    return;
  if (await attempt(() => remove(path`queues/${host}/${name}`), `Queue “${name}” is deleted`))
    location.hash = link(["queues"]);
}
