// Browses a stream, some messages at a time, from any offset or time on. Nothing is consumed.
//
// The messages shown stay until the reader asks for others: the page's refreshing leaves them alone.

import { get, path, query } from "../api.js";
import { h } from "../dom.js";
import { form } from "../forms.js";
import { count } from "../format.js";
import { messages } from "../messages.js";
import { attempt } from "../notices.js";

const AMOUNTS = ["10", "25", "100"];
const TRUNCATED = 50_000; // bytes of each body

export function browsing(host, name) {
  const shown = h("div", { "aria-live": "polite" });
  const goTo = async (wanted, amount) => {
    const found = await looked(host, name, wanted, amount);
    shown.replaceChildren(...drawn(found, amount, goTo));
  };
  return h(
    "div",
    { "data-keep": true, "data-key": "browsing" },
    h("p", { class: "hint" }, "Nothing is consumed: readers of the stream do not notice."),
    asking(host, name, goTo),
    shown,
  );
}

const asking = (host, name, goTo) => {
  const made = form(
    "Look",
    [
      { name: "offset", label: "From offset", type: "number", min: 0, placeholder: "the first" },
      { name: "since", label: "Or from a time on", type: "datetime-local" },
      { name: "amount", label: "At a time", type: "select", options: AMOUNTS },
    ],
    async ({ offset = 0, since, amount }) => {
      const at = since ? await offsetSince(host, name, since) : offset;
      await goTo(() => at, Number(amount));
    },
  );
  made.classList.add("across");
  return made;
};

async function offsetSince(host, name, since) {
  const timestamp = Math.max(0, new Date(since).getTime());
  const { offset } = await get(path`leveret/streams/${host}/${name}/offset` + query({ timestamp }));
  return offset;
}

/** `wanted` says where to begin, in the stream as it is now. */
async function looked(host, name, wanted, amount) {
  const { first, next } = await get(path`leveret/streams/${host}/${name}`);
  const offset = Math.min(Math.max(wanted({ first, next }), first), next);
  const peeked = path`leveret/queues/${host}/${name}/peek`;
  const found = await get(peeked + query({ offset, count: amount, truncate: TRUNCATED }));
  return { found, offset, first, next };
}

function drawn({ found, offset, first, next }, amount, goTo) {
  const after = found.length ? found.at(-1).offset + 1 : offset;
  const told = found.length
    ? `Offsets ${found[0].offset} to ${after - 1}`
    : `There is nothing from offset ${offset} on`;
  const all = next > first ? `the stream has ${first} to ${next - 1}` : "the stream is empty";
  const button = (text, label, can, wanted) =>
    h(
      "button",
      {
        type: "button",
        "aria-label": label,
        disabled: !can,
        onclick: () => attempt(() => goTo(wanted, amount), null),
      },
      text,
    );
  return [
    h(
      "div",
      { class: "row pager", role: "group", "aria-label": "Messages" },
      button("«", "First messages", offset > first, (now) => now.first),
      button("‹", "Earlier messages", offset > first, () => offset - amount),
      button("›", "Later messages", after < next, () => after),
      button("»", "Latest messages", true, (now) => now.next - amount),
      h("span", {}, `${told}; ${all}.`),
    ),
    messages(found, `${count(next - first)} messages are in the stream.`),
  ];
}
