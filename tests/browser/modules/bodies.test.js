import assert from "node:assert/strict";
import test from "node:test";

import { body, dump, laidOut } from "./bodies.js";

const text = (payload) => body({ payload, payload_encoding: "string", payload_bytes: payload.length });
const binary = (octets, size = octets.length) =>
  body({ payload: btoa(octets), payload_encoding: "base64", payload_bytes: size });

test("text stays as it is", () => {
  for (const each of ["", "hello", " [not JSON", "{{x}}", "12", '"x"', "a\nb\tc"])
    assert.deepEqual(text(each), { kind: "text", text: each, left: 0 });
});

test("JSON gets lines, and means the same", () => {
  const given = '{"a":[1,{"b":"x, {y}: [z]"},[]],"c":{},"d":"\\"\\\\","e":null}';
  const shown = text(given);
  assert.equal(shown.kind, "JSON");
  assert.deepEqual(JSON.parse(shown.text), JSON.parse(given));
  assert.equal(laidOut('{"a":[1,2],"b":{}}'), '{\n  "a": [\n    1,\n    2\n  ],\n  "b": {}\n}');
  assert.equal(laidOut("[ ]"), "[]");
  assert.equal(laidOut('["["]'), '[\n  "["\n]');
});

test("long numbers keep their digits", () => {
  assert.match(text('{"id":12345678901234567890,"x":1.10}').text, /12345678901234567890,\n {2}"x": 1\.10/);
});

test("octets are shown in hexadecimal and as ASCII", () => {
  assert.equal(dump("\x00\xffA<b>"), `0000  00 ff 41 3c 62 3e${" ".repeat(30)}  ..A<b>`);
  const lines = binary("x".repeat(33)).text.split("\n");
  assert.deepEqual(
    lines.map((line) => line.slice(0, 8)),
    ["0000  78", "0010  78", "0020  78"],
  );
});

test("what is too long is cut, and how much is told", () => {
  const long = text("x".repeat(20_005));
  assert.deepEqual([long.text.length, long.left], [20_000, 5]);
  const many = binary("\xff".repeat(3000), 5000);
  assert.deepEqual([many.text.split("\n").length, many.left], [128, 5000 - 2048]);
});

test("a body of nothing but brackets is laid out in time, or left as it is", () => {
  const deep = "[".repeat(40_000) + "]".repeat(40_000);
  assert.equal(text(deep).text.length, 20_000);
  assert.ok(laidOut(deep).length < 10_000_000);
});
