// Streams, their readers, and how far behind each is.

import { get, path } from "../api.js";
import { h } from "../dom.js";
import { everywhere, missed } from "../everywhere.js";
import { count, octets } from "../format.js";
import { link, queueLink } from "../routes.js";
import { badge, hostColumn, section, table } from "../tables.js";

const WATCHED = 40; // streams whose readers are asked for

export const streams = {
  title: () => "Streams",

  async load(_, signal) {
    const asked = await everywhere((vhost) => get(path`leveret/streams/${vhost}`, signal));
    const all = asked.found.flatMap(([vhost, found]) => found.map((each) => ({ ...each, vhost })));
    const found = all.filter(({ partitions }) => !partitions);
    const piped = await everywhere((vhost) => get(path`leveret/pipelines/${vhost}`, signal));
    const pipelines = piped.found.flatMap(([vhost, rows]) => rows.map((each) => ({ ...each, vhost })));
    const readers = await Promise.all(found.slice(0, WATCHED).map((each) => readersOf(each, signal)));
    return { asked, found, supers: all.filter(({ partitions }) => partitions), readers: readers.flat(), pipelines };
  },

  draw: ({ asked, found, supers, readers, pipelines }) => [
    missed(asked),
    section("Streams", listed(found, streamColumns(), "There are no streams here.")),
    section(
      "Readers",
      found.length > WATCHED && h("p", { class: "hint" }, `Of the first ${WATCHED} streams.`),
      listed(readers, readerColumns(), "Nobody reads a stream now."),
    ),
    pipelines.length > 0 && section("Pipelines", listed(pipelines, pipelineColumns(), "")),
    supers.length > 0 && section("Super streams", listed(supers, superColumns(), "")),
  ],
};

const readersOf = ({ vhost, name }, signal) =>
  get(path`leveret/streams/${vhost}/${name}/readers`, signal).then((found) =>
    found.map((each) => ({ ...each, vhost, stream: name })),
  );

const keyOf = ({ vhost, name, stream, connection, channel, tag }) =>
  JSON.stringify([vhost, name, stream, connection, channel, tag]);

const listed = (rows, columns, none) =>
  rows.length ? table(columns, rows, keyOf) : h("p", { class: "empty" }, none);

const streamColumns = () => [
  ["Name", ({ vhost, name }) => h("a", { href: queueLink(vhost, name) }, name)],
  ...hostColumn(),
  ["First offset", ({ first }) => count(first), { number: true }],
  ["Next offset", ({ next }) => count(next), { number: true }],
  ["Messages", ({ messages }) => count(messages), { number: true }],
  ["Size", (each) => octets(each.octets), { number: true }],
];

const readerColumns = () => [
  ["Stream", ({ vhost, stream }) => h("a", { href: queueLink(vhost, stream) }, stream)],
  ...hostColumn(),
  ["Reader", ({ tag }) => tag],
  [
    "Connection",
    ({ connection }) => connection && h("a", { href: link(["connections", connection]) }, connection),
  ],
  ["Next offset", ({ next }) => count(next), { number: true }],
  ["Lag", (each) => lag(each.lag), { number: true }],
];

const lag = (messages) => (messages > 0 ? count(messages) : badge("up to date", "good"));

const KINDS = { running: "good", starting: "warning", terminated: "failed" };

const pipelineColumns = () => [
  ["Name", ({ name, target }) => [name, target && h("div", { class: "hint" }, "to ", h("code", {}, target))]],
  ...hostColumn(),
  // Those that the node runs have a state; others only report.
  ["State", ({ state, reason }) => [
    state && badge(state, KINDS[state] ?? "warning"),
    reason && h("p", { class: "warned" }, reason),
  ]],
  ["Reads", ({ sources, partitions }) => (sources ?? [...new Set(partitions.map(({ source }) => source))]).join(", ")],
  ["Rows read", ({ rows }) => count(rows), { number: true }],
  ["Published", ({ published }) => (published === null ? "" : count(published)), { number: true }],
  ["Rows/s", (each) => count(each.rows_per_s), { number: true }],
  ["Last report", ({ age_s }) => (age_s === null ? "none yet" : `${count(Math.round(age_s))} s ago`), { number: true }],
  ["Behind", ({ behind, age_s }) => (age_s === null ? "–" : lag(behind)), { number: true }],
];

const superColumns = () => [
  ["Name", ({ name }) => name],
  ...hostColumn(),
  ["Partitions", ({ partitions }) => partitions.join(", ")],
];
