import assert from "node:assert/strict";
import test from "node:test";
import { ranked } from "./ranking.js";

const names = (typed, ...all) => ranked(typed, all.map((name) => [name])).map(([name]) => name);

test("what is typed comes before what begins with it, and that before what has it inside", () => {
  assert.deepEqual(names("orders", "old.orders", "orders.eu", "orders"), ["orders", "orders.eu", "old.orders"]);
});

test("what does not have the text is not offered, and capitals do not matter", () => {
  assert.deepEqual(names("QUEUE", "Queues", "Exchanges", "Declare a queue"), ["Queues", "Declare a queue"]);
});

test("names that are as near stay in their order", () => {
  assert.deepEqual(names("a", "ab", "aa", "ba"), ["ab", "aa", "ba"]);
});
