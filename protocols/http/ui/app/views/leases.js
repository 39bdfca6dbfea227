// Leases of a virtual host's queues, and putting their messages back.

import { get, path, remove } from "../api.js";
import { h } from "../dom.js";
import { count, octets } from "../format.js";
import { attempt, confirmed } from "../notices.js";
import { queueLink } from "../routes.js";
import { oneHost } from "../session.js";
import { section, table } from "../tables.js";

export const leases = {
  title: () => `Leases of ${oneHost()}`,

  async load(_, signal) {
    const vhost = oneHost();
    return { vhost, found: await get(path`leveret/leases/${vhost}`, signal) };
  },

  draw: ({ vhost, found }) => [
    h(
      "p",
      { class: "hint" },
      "A lease sets messages of a queue aside for one reader, such as a job, until it settles them.",
    ),
    section(
      "Leases",
      found.length
        ? table(columns(vhost), found, ({ queue, reader }) => JSON.stringify([queue, reader]))
        : h("p", { class: "empty" }, "Nothing is reserved here, of the queues that you may read."),
    ),
  ],
};

const columns = (vhost) => [
  ["Queue", ({ queue }) => h("a", { href: queueLink(vhost, queue) }, queue)],
  ["Reader", ({ reader }) => reader],
  ["First offset", ({ first }) => count(first), { number: true }],
  ["Next offset", ({ next }) => count(next), { number: true }],
  ["Reserved", ({ messages }) => count(messages), { number: true }],
  ["Size", (each) => octets(each.octets), { number: true }],
  ["Still in the queue", ({ ready }) => count(ready), { number: true }],
  ["", (lease) => h("button", { type: "button", onclick: () => release(vhost, lease) }, "Release")],
];

async function release(vhost, { queue, reader, messages }) {
  const asked = `Release the lease of “${reader}” on “${queue}”?`;
  const more = `${count(messages)} messages go back to the queue. The reader is shut out, and may have dealt with some of them.`;
  if (!(await confirmed(asked, "Release", more))) return;
  await attempt(async () => {
    const { released } = await remove(path`leveret/leases/${vhost}/${queue}/${reader}`);
    return `${count(released)} messages are back in “${queue}”`;
  });
  document.dispatchEvent(new Event("leveret:changed"));
}
