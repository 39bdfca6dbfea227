import assert from "node:assert/strict";
import { test } from "node:test";

import { NODES_MAX, graph, label, pair, way, words } from "./graph.js";

const EXCHANGES = [
  { name: "", type: "direct" },
  { name: "amq.topic", type: "topic" },
  { name: "orders", type: "topic", arguments: { "alternate-exchange": "lost" } },
  { name: "eu", type: "fanout" },
];
const QUEUES = [
  { name: "bills", type: "classic", arguments: { "x-dead-letter-exchange": "eu" } },
  { name: "mail", type: "classic" },
];
const to = (source, type, destination, key = "") => ({
  source,
  destination_type: type,
  destination,
  routing_key: key,
});
const BINDINGS = [
  to("orders", "queue", "bills", "a"),
  to("orders", "queue", "bills", "b"),
  to("orders", "exchange", "eu", "eu.#"),
  to("", "queue", "bills", "bills"),
];

const ids = ({ nodes }) => nodes.map(({ id }) => id).sort();

test("bindings between the same two are one link with their keys", () => {
  const { links } = graph(EXCHANGES, QUEUES, BINDINGS);
  assert.deepEqual(
    links.filter(({ kind }) => kind === "binding"),
    [
      { from: "e:orders", to: "q:bills", kind: "binding", keys: ["a", "b"] },
      { from: "e:orders", to: "e:eu", kind: "binding", keys: ["eu.#"] },
    ],
  );
});

test("alternates and dead letters are links, to exchanges that are not there too", () => {
  const { nodes, links } = graph(EXCHANGES, QUEUES, BINDINGS);
  const kinds = Object.fromEntries(
    links.filter(({ kind }) => kind !== "binding").map(({ from, to: end, kind }) => [kind, [from, end]]),
  );
  assert.deepEqual(kinds, { alternate: ["e:orders", "e:lost"], "dead letters": ["q:bills", "e:eu"] });
  assert.equal(nodes.find(({ id }) => id === "e:lost").missing, true);
});

test("a policy's settings count as arguments do", () => {
  const queue = { name: "q", effective_policy_definition: { "dead-letter-exchange": "eu" } };
  assert.equal(
    graph(EXCHANGES, [queue], []).links.some(({ from, to: end }) => from === "q:q" && end === "e:eu"),
    true,
  );
});

test("dead letters by the default exchange go to the queue of that name", () => {
  const queue = {
    name: "q",
    arguments: { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "mail" },
  };
  assert.deepEqual(graph([], [queue, ...QUEUES.slice(1)], []).links, [
    { from: "q:q", to: "q:mail", kind: "dead letters", keys: [] },
  ]);
});

test("standard exchanges that nobody uses are left out, queues of nobody are not", () => {
  assert.deepEqual(ids(graph(EXCHANGES, QUEUES, BINDINGS)), [
    "e:eu",
    "e:lost",
    "e:orders",
    "q:bills",
    "q:mail",
  ]);
});

test("from an exchange only what it leads to is drawn", () => {
  assert.deepEqual(ids(graph(EXCHANGES, QUEUES, BINDINGS, "eu")), ["e:eu"]);
  assert.deepEqual(ids(graph(EXCHANGES, QUEUES, BINDINGS, "orders")), [
    "e:eu",
    "e:lost",
    "e:orders",
    "q:bills",
  ]);
});

test("what is too much is counted", () => {
  const many = Array.from({ length: NODES_MAX + 7 }, (_, index) => to("orders", "queue", `q${index}`));
  const { nodes, left } = graph(EXCHANGES, [], many, "orders");
  assert.deepEqual([nodes.length, left], [NODES_MAX, 9]);
});

test("names that mean something to JavaScript are names", () => {
  const { nodes } = graph(
    [{ name: "__proto__", type: "topic" }],
    [{ name: "constructor" }],
    [to("__proto__", "queue", "constructor")],
  );
  assert.deepEqual(ids({ nodes }), ["e:__proto__", "q:constructor"]);
});

test("a link's label has two keys at most", () => {
  assert.equal(label({ kind: "binding", keys: ["a", "", "c", "d"] }), "a, (no key) +2");
});

const EXPLAINED = {
  exchange: "orders",
  keys: ["eu.1"],
  queues: ["bills"],
  routed: true,
  dropped: null,
  handled: false,
  steps: [
    {
      exchange: "orders",
      type: "topic",
      matched: [{ kind: "exchange", name: "eu", key: "eu.#", followed: true }],
      alternate: null,
      outcome: "",
      reason: "",
    },
    {
      exchange: "eu",
      type: "fanout",
      matched: [{ kind: "queue", name: "bills", key: null, followed: true }],
      alternate: null,
      outcome: "",
      reason: "",
    },
  ],
};

test("the way of a message goes along its steps", () => {
  const { ids: lit, pairs } = way(EXPLAINED);
  assert.deepEqual([...lit].sort(), ["e:eu", "e:orders", "q:bills"]);
  assert.deepEqual([...pairs], [pair("e:orders", "e:eu"), pair("e:eu", "q:bills")]);
});

test("and is told in words", () => {
  assert.deepEqual(words(EXPLAINED), [
    "A message to exchange “orders” with key “eu.1”:",
    "Exchange “orders” (topic) leads to exchange “eu” by binding “eu.#”.",
    "Exchange “eu” (fanout) leads to queue “bills”.",
    "It reaches queue “bills”.",
  ]);
});

test("why a message is dropped is told too", () => {
  const step = {
    exchange: "x",
    type: "direct",
    matched: [],
    alternate: "lost",
    outcome: "missing",
    reason: "no binding matches",
  };
  const told = words({
    exchange: "x",
    keys: [""],
    queues: [],
    dropped: "nothing matched",
    handled: false,
    steps: [step],
  });
  assert.deepEqual(told.slice(1), [
    "Exchange “x” (direct): no binding matches. It turns to its alternate, exchange “lost”: missing.",
    "It reaches nobody: nothing matched.",
  ]);
});

test("a link tells its rate where the counts of exchanges and queues say it", () => {
  const stats = (name, rate) => ({ message_stats: { [`${name}_details`]: { rate } } });
  const { links } = graph(
    [
      { name: "orders", type: "topic", ...stats("publish_in", 40) },
      { name: "eu", type: "fanout", ...stats("publish_in", 0) },
      { name: "us", type: "fanout", ...stats("publish_in", 2) },
    ],
    [
      { name: "bills", ...stats("publish", 14) },
      { name: "mail", ...stats("publish", 31) },
      { name: "audit", ...stats("publish", 40) },
      { name: "both", ...stats("publish", 9) },
    ],
    [
      to("orders", "exchange", "eu"),
      to("orders", "exchange", "us"),
      to("orders", "queue", "audit"),
      to("eu", "queue", "bills"),
      to("eu", "queue", "mail"),
      to("us", "queue", "mail"),
    ],
  );
  const rates = Object.fromEntries(links.map(({ from, to: end, rate }) => [`${from} ${end}`, rate]));
  assert.deepEqual(rates, {
    "e:orders e:eu": 14,
    "e:orders e:us": 15, // 17 go through us, of which 2 were published there
    "e:orders q:audit": 40,
    "e:eu q:bills": 14,
    "e:eu q:mail": 14,
    "e:us q:mail": 17,
  });
});

test("a rate that does not follow is not told", () => {
  const stats = { message_stats: { publish_in_details: { rate: 5 }, publish_details: { rate: 5 } } };
  const { links } = graph(
    ["a", "b"].map((name) => ({ name, type: "topic", ...stats })),
    [{ name: "q", ...stats }],
    [to("a", "queue", "q"), to("b", "queue", "q")],
  );
  assert.deepEqual(
    links.map(({ rate }) => rate),
    [undefined, undefined],
  );
});

test("the neighbours of one are those that a link leads to or from", () => {
  const { nodes, links } = graph(EXCHANGES, QUEUES, BINDINGS, "", "e:eu");
  assert.deepEqual(nodes.map(({ id }) => id).sort(), ["e:eu", "e:orders", "q:bills"]);
  assert.equal(links.length, 2);
  assert.deepEqual(graph(EXCHANGES, QUEUES, BINDINGS, "", "e:gone").nodes, []);
});
