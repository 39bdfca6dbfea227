// Leases of queues, and putting their messages back.

import { get, path, remove } from "../api.js";
import { h } from "../dom.js";
import { everywhere, missed } from "../everywhere.js";
import { count, octets } from "../format.js";
import { attempt, confirmed } from "../notices.js";
import { queueLink } from "../routes.js";
import { hostColumn, section, table } from "../tables.js";

export const leases = {
  title: () => "Leases",

  load: (_, signal) => everywhere((vhost) => get(path`leveret/leases/${vhost}`, signal)),

  draw: (asked, _, found = asked.found.flatMap(([vhost, some]) => some.map((each) => ({ ...each, vhost })))) => [
    h(
      "p",
      { class: "hint" },
      "A lease sets messages of a queue aside for one reader, such as a job, until it settles them.",
    ),
    missed(asked),
    section(
      "Leases",
      found.length
        ? table(columns(), found, ({ vhost, queue, reader }) => JSON.stringify([vhost, queue, reader]))
        : h("p", { class: "empty" }, "Nothing is reserved here, of the queues that you may read."),
    ),
  ],
};

const columns = () => [
  ["Queue", ({ vhost, queue }) => h("a", { href: queueLink(vhost, queue) }, queue)],
  ...hostColumn(),
  ["Reader", ({ reader }) => reader],
  ["First offset", ({ first }) => count(first), { number: true }],
  ["Next offset", ({ next }) => count(next), { number: true }],
  ["Reserved", ({ messages }) => count(messages), { number: true }],
  ["Size", (each) => octets(each.octets), { number: true }],
  ["Still in the queue", ({ ready }) => count(ready), { number: true }],
  ["", (lease) => h("button", { type: "button", onclick: () => release(lease) }, "Release")],
];

async function release({ vhost, queue, reader, messages }) {
  const asked = `Release the lease of “${reader}” on “${queue}”?`;
  const more = `${count(messages)} messages go back to the queue. The reader is shut out, and may have dealt with some of them.`;
  if (!(await confirmed(asked, "Release", more))) return;
  await attempt(async () => {
    const { released } = await remove(path`leveret/leases/${vhost}/${queue}/${reader}`);
    return `${count(released)} messages are back in “${queue}”`;
  });
  document.dispatchEvent(new Event("leveret:changed"));
}
