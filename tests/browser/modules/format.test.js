import assert from "node:assert/strict";
import { test } from "node:test";

import { count, cut, duration, octets, rate, table } from "./format.js";
import { link, place } from "./routes.js";

test("numbers are short", () => {
  assert.deepEqual(
    [count(0), count(1234), count(2_340_000), count(undefined), count(NaN)],
    ["0", "1,234", "2.34M", "–", "–"],
  );
  assert.deepEqual(
    [rate(0), rate(0.01), rate(2.25), rate(1500), rate(null)],
    ["0/s", "< 0.1/s", "2.3/s", "1,500/s", "–"],
  );
  assert.deepEqual(
    [octets(0), octets(1023), octets(1536), octets(5 * 2 ** 30), octets("x")],
    ["0 B", "1023 B", "1.5 KiB", "5.0 GiB", "–"],
  );
  assert.deepEqual(
    [duration(0), duration(61_000), duration(90_000_000), duration(86_400_000)],
    ["0 s", "1 min 1 s", "1 d 1 h", "1 d"],
  );
});

test("lines are a table: JSON where it reads as such, else text", () => {
  assert.deepEqual(
    table('x-max-length = 10\n\n a=b = c\nlist = [1, "2"]\non = true\nquoted = "7"\nempty ='),
    { "x-max-length": 10, a: "b = c", list: [1, "2"], on: true, quoted: "7", empty: "" },
  );
  assert.throws(() => table("no sign"), /“no sign” is not name = value/);
  assert.throws(() => table("= 1"), /not name = value/);
});

test("text is cut between characters", () => {
  assert.deepEqual([cut("abc", 3), cut("abcd", 3), cut("🐇🐇🐇🐇", 3)], ["abc", "ab…", "🐇🐇…"]);
});

test("a link leads back to its names, whatever they are", () => {
  for (const name of ["/", "a b", "#", "?", "%2F", "ä/ö?ü=1&x#", '"><img src=x>', "..", "🐇"]) {
    assert.deepEqual(place(link(["queues", "/", name], { page: 2, name: "a&b=c" })), {
      names: ["queues", "/", name],
      query: { page: "2", name: "a&b=c" },
    });
  }
});

test("a link that is cut in the middle is still a place", () => {
  assert.deepEqual(place("#/queues/%E0%A4%A"), { names: ["queues", "%E0%A4%A"], query: {} });
  assert.deepEqual(place(""), { names: [], query: {} });
});
