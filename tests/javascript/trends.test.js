// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { baselinePause, rankBefore } from "../../static/poll.js";
import { slotsPause } from "../../static/trends.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const NINE = Date.parse("2026-11-22T09:00:00Z");

/**
 * @param {number | null} time
 * @param {Object<string, number>} ranks
 */
const baseline = (time, ranks = { a: 1 }) => ({
  epoch: "e",
  period: null,
  since: time === null ? null : new Date(time).toISOString(),
  ranks,
  complete: true,
  scores: ranks,
  rank_count: 1,
  per_minute: null,
});

/**
 * @param {number} start
 * @param {number} end
 */
const slots = (start, end) => ({
  slots: [{ start: new Date(start).toISOString(), end: new Date(end).toISOString() }],
  records: [],
});

test("the next baseline is requested at the next full five minutes", () => {
  assert.equal(baselinePause(baseline(NINE + 400), NINE + 21 * MINUTE), 4 * MINUTE);
});

test("a missing baseline is requested again after a minute", () => {
  assert.equal(baselinePause(baseline(null, {}), NINE + 1), MINUTE);
});

test("a member whose rank in the baseline is not known has not moved, and one without a record is new", () => {
  const far = { ranks: { a: 1500, b: null }, complete: false };
  assert.deepEqual(["a", "b", "c"].map((member) => rankBefore(far, member, 42)), [1500, undefined, 42]);
  assert.equal(rankBefore(baseline(NINE), "c", 42), undefined);
});

test("the next slots are requested when the newest one ends, but not too often", () => {
  assert.equal(slotsPause(slots(NINE, NINE + HOUR), NINE + 50 * MINUTE), 10 * MINUTE);
  assert.equal(slotsPause(slots(NINE, NINE + 24 * HOUR), NINE), HOUR);
  assert.equal(slotsPause(slots(NINE, NINE + 1000), NINE), 5_000);
});

test("if several slots make one point of a line, slots are requested when the next point ends", () => {
  const open = slots(NINE + 10 * MINUTE, NINE + 11 * MINUTE);
  open.slots.unshift(...slots(NINE - 20 * MINUTE, NINE + 10 * MINUTE).slots);
  assert.equal(slotsPause(open, NINE + 10 * MINUTE), 20 * MINUTE);
});

test("on an event clock, slots are requested again after the length of one slot", () => {
  assert.equal(slotsPause(slots(NINE, NINE + HOUR), NINE + 9 * HOUR), MINUTE);
  assert.equal(slotsPause(slots(NINE, NINE + 10_000), NINE + 9 * HOUR), 10_000);
  assert.equal(slotsPause({ slots: [{ start: null, end: null }], records: [] }, NINE), HOUR);
  assert.equal(slotsPause({ slots: [], records: [] }, NINE), HOUR);
});
