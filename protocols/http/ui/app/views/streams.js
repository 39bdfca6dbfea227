// Streams of a virtual host, their readers, and how far behind each is.

import { get, path } from "../api.js";
import { h } from "../dom.js";
import { count, octets } from "../format.js";
import { link, queueLink } from "../routes.js";
import { oneHost } from "../session.js";
import { badge, section, table } from "../tables.js";

const WATCHED = 40; // streams whose readers are asked for

export const streams = {
  title: () => `Streams of ${oneHost()}`,

  async load(_, signal) {
    const vhost = oneHost();
    const all = await get(path`leveret/streams/${vhost}`, signal);
    const found = all.filter(({ partitions }) => !partitions);
    const readers = await Promise.all(
      found.slice(0, WATCHED).map(({ name }) => readersOf(vhost, name, signal)),
    );
    return {
      vhost,
      found,
      supers: all.filter(({ partitions }) => partitions),
      readers: readers.flat(),
    };
  },

  draw: ({ vhost, found, supers, readers }) => [
    section(
      "Streams",
      listed(found, streamColumns(vhost), ({ name }) => name, "There are no streams here."),
    ),
    section(
      "Readers",
      found.length > WATCHED && h("p", { class: "hint" }, `Of the first ${WATCHED} streams.`),
      listed(
        readers,
        readerColumns(vhost),
        (each) => JSON.stringify([each.stream, each.connection, each.channel, each.tag]),
        "Nobody reads a stream now.",
      ),
    ),
    supers.length > 0 &&
      section(
        "Super streams",
        table(
          [
            ["Name", ({ name }) => name],
            ["Partitions", ({ partitions }) => partitions.join(", ")],
          ],
          supers,
          ({ name }) => name,
        ),
      ),
  ],
};

const readersOf = (vhost, name, signal) =>
  get(path`leveret/streams/${vhost}/${name}/readers`, signal).then((found) =>
    found.map((each) => ({ ...each, stream: name })),
  );

const listed = (rows, columns, keyOf, none) =>
  rows.length ? table(columns, rows, keyOf) : h("p", { class: "empty" }, none);

const streamColumns = (vhost) => [
  ["Name", ({ name }) => h("a", { href: queueLink(vhost, name) }, name)],
  ["First offset", ({ first }) => count(first), { number: true }],
  ["Next offset", ({ next }) => count(next), { number: true }],
  ["Messages", ({ messages }) => count(messages), { number: true }],
  ["Size", (each) => octets(each.octets), { number: true }],
];

const readerColumns = (vhost) => [
  ["Stream", ({ stream }) => h("a", { href: queueLink(vhost, stream) }, stream)],
  ["Reader", ({ tag }) => tag],
  [
    "Connection",
    ({ connection }) => connection && h("a", { href: link(["connections", connection]) }, connection),
  ],
  ["Next offset", ({ next }) => count(next), { number: true }],
  ["Lag", ({ lag }) => (lag > 0 ? count(lag) : badge("up to date", "good")), { number: true }],
];
