import assert from "node:assert/strict";
import test from "node:test";

import { endOf } from "./tokens.js";

const token = (claims) => `e30.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.c2ln`;

test("a token tells when it runs out", () => {
  assert.equal(endOf(token({ exp: 1_000_000_600, name: "Mäuschen ÿ?>" })), 1_000_000_600_000);
});

test("what does not tell that is no mistake", () => {
  for (const each of ["", "a", "a.b.c", "..", token({}), token({ exp: "soon" }), token(null)])
    assert.equal(endOf(each), null, each);
});
