// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { words as chinese } from "../../static/client/words/zh-Hans.js";
import { words as english } from "../../static/client/words/en.js";
import {
  barWidth, gapWords, grouped, metadataWords, moveWords, nameWords, placeWords, setLanguage, translate,
} from "../../static/client/words.js"; // prettier-ignore
import { periodWords } from "../../static/later.js";
import { differsClearly, trendPoints, trendScale } from "../../static/trends.js";

test("numbers are grouped, and a missing one is a dash", () => {
  assert.deepEqual([grouped(0), grouped(-1234567), grouped(null)], ["0", "−1,234,567", "–"]);
});

test("a rank is shown with its gap, if there is one", () => {
  assert.equal(placeWords(null, null)[1], "");
  assert.deepEqual(placeWords(1, null), ["rank 1", ""]);
  assert.equal(placeWords(1200, 3)[0], "rank 1,200");
  assert.match(placeWords(1200, 3)[1], /3/);
  assert.notEqual(placeWords(2, 0)[1], placeWords(2, 1)[1]);
});

test("metadata shows strings and numbers only, and cuts long strings by characters", () => {
  assert.deepEqual(metadataWords(undefined), []);
  assert.deepEqual(metadataWords({ a: "x", b: 2, c: true, d: null, e: [1], f: { g: 1 } }), ["a: x", "b: 2"]);
  const [long] = metadataWords({ name: "😀".repeat(100) });
  assert.equal(long, `name: ${"😀".repeat(39)}…`);
});

test("metadata shows a bounded number of its fields", () => {
  const many = metadataWords(Object.fromEntries(Array.from({ length: 20 }, (_, number) => [`m${number}`, number])));
  assert.equal(many.length, 9);
  assert.equal(many.at(-1), "…");
});

test("a long name is cut in the middle by characters, and an invisible name is called blank", () => {
  assert.equal(nameWords("a".repeat(80)), "a".repeat(80));
  assert.equal(nameWords("😀".repeat(80)), "😀".repeat(80));
  assert.equal(nameWords(`${"a".repeat(60)}${"b".repeat(60)}`), `${"a".repeat(50)}…${"b".repeat(29)}`);
  for (const unseen of ["\u200d", "\u3164", "\u2800", " ", "\u200d\u00a0\u3000"]) assert.equal(nameWords(unseen), "⟨blank⟩");
  assert.equal(nameWords("\u200dx"), "\u200dx");
});

test("the gap to the record above has a sign", () => {
  const above = { score: 1000, rank: 3 };
  assert.deepEqual(
    [undefined, above, above, above].map((one, i) => gapWords({ score: [1, 1000, -234, 3000][i] }, one)),
    ["", "tied", "−1,234", "+2,000"],
  );
});

test("the length of a bar is the share of its score in the first score", () => {
  assert.deepEqual([[5, 10], [10, 10], [2, 3], [-5, 10], [3, 0], [-2, -1]].map(([score, first]) => barWidth(score, first)), [50, 100, 66.5, 0, 0, 0]);
});

test("movement is relative to the previous rank, as symbols and in words", () => {
  assert.deepEqual(moveWords(3, 7), ["▲4", "up 4"]);
  assert.deepEqual(moveWords(1007, 3), ["▼1,004", "down 1,004"]);
  assert.deepEqual(moveWords(3, 3), ["", ""]);
  assert.deepEqual(moveWords(3, undefined), ["NEW", "new"]);
});

test("a sparkline has a point for each slot with a value, from zero to the highest", () => {
  assert.equal(trendPoints([0, 5, 10]), "0,19 50,10 100,1");
  assert.equal(trendPoints([4, null, 2]), "0,1 100,10");
  assert.equal(trendPoints([-10, 0, 10]), "0,19 50,10 100,1");
  assert.equal(trendPoints([0, 5], trendScale([0, 5, null, 10])), "0,19 100,10");
  assert.deepEqual([[], [3], [null, 3], [0, 0], [null, null]].map((values) => trendPoints(values)), ["", "", "", "", ""]);
});

test("a pace differs clearly if it is at least a half higher or lower than usual", () => {
  const day = Array.from({ length: 48 }, () => 10);
  assert.deepEqual([[15, 15], [14, 14], [5, 5], [40, 40]].map((newest) => differsClearly([...day, ...newest])), [false, false, false, true]);
  assert.deepEqual([[], [3], [0, 0], [0, 5]].map(differsClearly), [false, false, false, true]);
});

test("a period is shown by its name", () => {
  const periods = [
    ["hour", "2025-10-26T02+0100", "Europe/Berlin"], ["day", "2026-11-01", "America/New York"], ["week", "2026-W07", "UTC"],
    ["month", "2026-12", "UTC"], ["quarter", "2026-Q4", "UTC"], ["year", "0987", "UTC"],
  ]; // prettier-ignore
  assert.deepEqual(
    periods.map(([unit, name, zone]) => periodWords(unit, name, zone)),
    [
      "26 October 2025, from 02:00 +01:00 for an hour in Europe/Berlin", "1 November 2026 in America/New York",
      "week 7 of 2026 in UTC", "December 2026 in UTC", "quarter 4 of 2026 in UTC", "987 in UTC",
    ],
  ); // prettier-ignore
});

test("a new language applies as soon as it is set", () => {
  setLanguage("zh-Hans", chinese);
  assert.deepEqual(placeWords(1200, 3), ["第 1,200 名", "，距上一名 3"]);
  assert.equal(translate("waiting", { n: 1 }), "已暂停，1 项变化待显示");
  setLanguage("en", english);
  assert.deepEqual([1, 2].map((n) => translate("waiting", { n })), ["Paused, 1 change waiting", "Paused, 2 changes waiting"]);
});
