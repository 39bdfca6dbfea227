// What a protocol keeps besides queues and messages, such as sessions: a list, and one thing of it. The node says what a
// list is called, which columns it has, and what can be done with its things.

import { get, path, query, remove } from "../api.js";
import { h } from "../dom.js";
import { count, duration, octets, value } from "../format.js";
import { listAt } from "../kept.js";
import { messages } from "../messages.js";
import { attempt, confirmed } from "../notices.js";
import { link, queueLink } from "../routes.js";
import { has, host } from "../session.js";
import { facts, hostColumn, list, page, section, table } from "../tables.js";

const MS = 1000;
const NUMBERS = ["count", "bytes", "seconds"];
const SHAPES = {
  count: (given) => count(given),
  bytes: (given) => octets(given),
  seconds: (given) => (given === null ? "–" : duration(given * MS)),
  connection: (given) => (given === null ? "–" : h("a", { href: link(["connections", given]) }, given)),
  queues: (given, { vhost }) =>
    h(
      "span",
      {},
      given.map((name, index) => [index > 0 && ", ", h("a", { href: queueLink(vhost, name) }, name)]),
    ),
};

const titleOf = ([, protocol, name]) => listAt(protocol, name)?.title ?? name;
const columnsOf = ([, protocol, name]) => listAt(protocol, name)?.columns ?? [];
const keyOf = ({ vhost, name }) => JSON.stringify([vhost, name]);

export const kept = {
  title: ({ names }) => titleOf(names),

  load({ names, query: chosen }, signal) {
    const [, protocol, name] = names;
    const where = path`leveret/kept/${protocol}/${name}` + (host() ? path`/${host()}` : "");
    const columns = ["name", "vhost", ...columnsOf(names).map(({ field }) => field)].join();
    return page(where, chosen, { columns }, signal);
  },

  draw: (found, at) => list(titleOf(at.names), columns(at.names), found, keyOf, at),
};

const columns = (names) => [
  ["Name", ({ vhost, name }) => h("a", { href: link([...names, vhost, name]) }, value(name)), { sort: "name" }],
  ...hostColumn(),
  ...columnsOf(names).map(({ field, title, shape }) => [
    title,
    (row) => shown(row[field], shape, row),
    { sort: field, number: NUMBERS.includes(shape) },
  ]),
];

function shown(given, shape, row) {
  if (given === undefined) return "–"; // it has gone while the node made the list
  return (SHAPES[shape] ?? plain)(given, row);
}

const plain = (given) =>
  given === null ? "–" : typeof given === "boolean" ? (given ? "yes" : "no") : value(given);

export const keptThing = {
  title: ({ names }) => `${titleOf(names)}: ${names[4]}`,

  async load({ names: [, protocol, list, vhost, name] }, signal) {
    const where = path`leveret/kept/${protocol}/${list}/${vhost}/${name}`;
    const isRead = listAt(protocol, list)?.messages && has("administrator");
    const [row, message] = await Promise.all([
      get(where, signal),
      isRead ? get(`${where}/message${query({ truncate: 50000 })}`, signal) : null,
    ]);
    return { row, message };
  },

  draw: ({ row, message }, { names }) => [
    h("p", { class: "hint" }, `In virtual host ${row.vhost}`),
    section("Details", facts(details(row, columnsOf(names)))),
    Object.entries(row)
      .filter(([, given]) => isTable(given))
      .map(([field, given]) => section(headed(field), below(given))),
    message && section("Message", messages([{ ...message, exchange: undefined, redelivered: undefined }])),
    isDeletable(names) &&
      h(
        "div",
        { class: "row ends" },
        h("button", { type: "button", class: "danger", onclick: () => drop(names) }, "Delete"),
      ),
  ],
};

const isTable = (given) => Array.isArray(given) && given.some((each) => each !== null && typeof each === "object");
const headed = (field) => (field[0] ?? "").toUpperCase() + field.slice(1).replaceAll("_", " ");
const isDeletable = ([, protocol, name]) => Boolean(listAt(protocol, name)?.deletable) && has("administrator");

/** Returns what the list has columns for, as there, and then the other fields. */
function details(row, named) {
  const known = new Set(["name", "vhost", ...named.map(({ field }) => field)]);
  const others = Object.entries(row).filter(([field, given]) => !known.has(field) && !isTable(given));
  return [
    ...named.map(({ field, title, shape }) => [title, shown(row[field], shape, row)]),
    ...others.map(([field, given]) => [headed(field), plain(given)]),
  ];
}

/** Returns a table of records within a thing. */
function below(rows) {
  const fields = [...new Set(rows.flatMap((each) => Object.keys(each ?? {})))];
  return table(
    fields.map((field) => [headed(field), (each) => plain(each?.[field] ?? null)]),
    rows,
    (each) => JSON.stringify(each),
  );
}

async function drop([view, protocol, name, vhost, thing]) {
  const asked = `Delete “${thing}” of the ${titleOf([view, protocol, name])}?`;
  if (!(await confirmed(asked, "Delete", "What belongs to it goes with it, and its client is told if it has one."))) return;
  if (await attempt(() => remove(path`leveret/kept/${protocol}/${name}/${vhost}/${thing}`), `“${thing}” is deleted`))
    location.hash = link([view, protocol, name]);
}
