// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { grouped, metadataWords, placeWords } from "../../static/words.js";

test("numbers are grouped, and a missing one is a dash", () => {
  assert.deepEqual([grouped(0), grouped(-1234567), grouped(null)], ["0", "-1,234,567", "–"]);
});

test("a place has a rank, and a gap where there is one", () => {
  assert.equal(placeWords(null, null)[1], "");
  assert.deepEqual(placeWords(1, null), ["rank 1", ""]);
  assert.equal(placeWords(1200, 3)[0], "rank 1,200");
  assert.match(placeWords(1200, 3)[1], /3/);
  assert.notEqual(placeWords(2, 0)[1], placeWords(2, 1)[1]);
});

test("metadata shows strings and numbers only, and cuts long ones by characters", () => {
  assert.deepEqual(metadataWords(undefined), []);
  assert.deepEqual(metadataWords({ a: "x", b: 2, c: true, d: null, e: [1], f: { g: 1 } }), ["a: x", "b: 2"]);
  const [long] = metadataWords({ name: "😀".repeat(100) });
  assert.equal(long, `name: ${"😀".repeat(39)}…`);
});

test("metadata shows a bounded number of members", () => {
  const many = metadataWords(Object.fromEntries(Array.from({ length: 20 }, (_, number) => [`m${number}`, number])));
  assert.equal(many.length, 9);
  assert.equal(many.at(-1), "…");
});
