import assert from "node:assert/strict";
import { test } from "node:test";

import { inversions, layout } from "./layers.js";

const nodesOf = (names) => Array.from(names, (id) => ({ id }));
const linksOf = (pairs) => pairs.map(([from, to]) => ({ from, to }));
const drawn = (names, pairs) => layout(nodesOf(names), linksOf(pairs));

test("what is led to stands to the right of what leads there", () => {
  const { nodes } = drawn("abcd", ["ab", "bc", "ac", "cd"]);
  const x = [..."abcd"].map((id) => nodes.get(id).x);
  assert.deepEqual(
    x,
    [...x].sort((a, b) => a - b),
  );
  assert.equal(new Set(x).size, 4);
});

test("a circle is drawn, with one link that goes back", () => {
  const { nodes, links } = drawn("abc", ["ab", "bc", "ca"]);
  assert.equal(nodes.size, 3);
  const back = links.filter(({ points }) => points[0].x > points.at(-1).x);
  assert.deepEqual(
    back.map(({ link }) => link),
    [{ from: "c", to: "a" }],
  );
});

test("a link to oneself, or to what is not there, does no harm", () => {
  assert.equal(drawn("a", ["aa", "ax", "xa"]).links.length, 0);
});

test("no two nodes overlap", () => {
  const names = Array.from({ length: 60 }, (_, index) => `n${index}`);
  const pairs = names.flatMap((_, index) => [
    [`n${index >> 1}`, `n${index}`],
    [`n${index % 7}`, `n${(index * 13) % 60}`],
  ]);
  const places = [...drawn(names, pairs).nodes.values()];
  for (const a of places)
    for (const b of places) {
      if (a !== b && a.x === b.x) assert.ok(Math.abs(a.y - b.y) >= 50, `${a.y} and ${b.y}`);
    }
});

test("all is inside of the drawing", () => {
  const { width, height, nodes } = drawn("abcdef", ["ab", "ac", "bd", "ce", "df", "ef"]);
  for (const { x, y } of nodes.values()) assert.ok(x >= 0 && y >= 18 && x + 128 <= width && y + 18 <= height);
});

test("links that need not cross do not", () => {
  const { nodes } = drawn(
    ["a", "b", "c", "x", "y", "z"],
    [
      ["a", "z"],
      ["b", "y"],
      ["c", "x"],
    ],
  );
  const order = (ids) => [...ids].sort((p, q) => nodes.get(p).y - nodes.get(q).y);
  const to = { a: "z", b: "y", c: "x" };
  assert.deepEqual(
    order("abc").map((id) => to[id]),
    order("xyz"),
  );
});

test("a link over several layers bends round the node between", () => {
  const { nodes, links } = drawn("abc", ["ab", "bc", "ac"]);
  const long = links.find(({ link }) => link.from === "a" && link.to === "c");
  assert.equal(long.points.length, 3);
  assert.notEqual(long.points[1].y, nodes.get("b").y);
});

test("links that arrive at one node arrive apart", () => {
  const { links } = drawn("abcz", ["az", "bz", "cz"]);
  assert.equal(new Set(links.map(({ points }) => points.at(-1).y)).size, 3);
});

test("a long chain is laid out without running out of stack, and nothing is nothing", () => {
  const names = Array.from({ length: 6000 }, (_, index) => `n${index}`);
  assert.equal(
    drawn(
      names,
      names.slice(1).map((name, index) => [names[index], name]),
    ).nodes.size,
    6000,
  );
  assert.equal(drawn([], []).nodes.size, 0);
});

test("numbers in the wrong order are counted", () => {
  const slow = (numbers) =>
    numbers.reduce((sum, a, at) => sum + numbers.slice(at).filter((b) => b < a).length, 0);
  for (const numbers of [[], [1], [2, 1], [3, 2, 1], [1, 1], [5, 3, 5, 1, 2, 2, 8, 0]])
    assert.equal(inversions(numbers), slow(numbers));
});

test("layers stand apart as far as there is room, and never too near", () => {
  const [narrow, middle, wide] = [300, 1000, 5000].map((room) => layout(nodesOf("abc"), linksOf(["ab", "bc"]), room));
  assert.equal(middle.width, 1000);
  assert.ok(narrow.width > 300);
  assert.ok(wide.width < 2000);
});

test("a node is as high as what arrives needs", () => {
  const { nodes, links } = drawn("abcdefz", ["az", "bz", "cz", "dz", "ez", "fz"]);
  assert.ok(nodes.get("z").high > nodes.get("a").high);
  const ends = links.map(({ points }) => points.at(-1).y).sort((a, b) => a - b);
  assert.ok(ends.every((y, index) => index === 0 || y - ends[index - 1] >= 14));
});

test("no band is empty from left to right", () => {
  // half of the queues of each exchange lead to one exchange of dead letters
  const exchanges = Array.from({ length: 12 }, (_, index) => `x${index}`);
  const pairs = exchanges.flatMap((each, index) =>
    Array.from({ length: 9 }, (_, number) => [each, `${each}q${number}`]).flatMap(([from, queue]) =>
      index % 2 ? [[from, queue], [queue, "dead"]] : [[from, queue]],
    ),
  );
  const { nodes, links } = drawn([...new Set(pairs.flat())], pairs);
  const tops = [...nodes.values(), ...links.flatMap(({ points }) => points.map(({ y }) => ({ y, high: 44 })))];
  tops.sort((a, b) => a.y - a.high / 2 - (b.y - b.high / 2));
  let bottom = tops[0].y;
  for (const { y, high } of tops) {
    assert.ok(y - high / 2 - bottom <= 32, `nothing from ${bottom} to ${y - high / 2}`);
    bottom = Math.max(bottom, y + high / 2);
  }
});
