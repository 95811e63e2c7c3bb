// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { closest, Fights, Paces, Rate } from "../../static/pace.js";
import { seeded } from "./model.js";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/**
 * Samples of the scores of two members, every half minute until `now`, and the records of both at `now`.
 *
 * @param {(at: number) => number} upper a score at a time
 * @param {(at: number) => number} lower
 * @param {number} now
 * @param {number} [begin]
 */
function watched(upper, lower, now, begin = 0) {
  const paces = new Paces();
  for (let at = begin; at < now; at += 30 * SECOND) paces.note(at, new Map([["a", upper(at)], ["b", lower(at)]]));
  return { paces, above: { key: "a", rank: 1, score: upper(now) }, below: { key: "b", rank: 2, score: lower(now) } };
}

const growing = (/** @type {number} */ first, /** @type {number} */ hourly) => (/** @type {number} */ at) => first + Math.floor((hourly * at) / HOUR);

test("a pace is measured over the last ten minutes, as a search through all samples finds", () => {
  const random = seeded(11);
  for (let run = 0; run < 300; run++) {
    const paces = new Paces();
    /** @type {{at: number, score: number}[]} */
    const samples = [];
    let score = Math.floor(random() * 1000);
    const count = Math.floor(random() * 60);
    let at = 0;
    for (let i = 0; i < count; i++) {
      paces.note(at, new Map([["a", score]]));
      samples.push({ at, score });
      at += 30 * SECOND + Math.floor(random() * 60 * SECOND);
      score += Math.floor(random() * 40) - 5;
    }
    const old = samples.filter((sample) => at - sample.at >= 10 * MINUTE);
    const young = samples.filter((sample) => at - sample.at >= 5 * MINUTE);
    const then = old.length ? old.reduce((one, other) => (other.at > one.at ? other : one)) : young[0];
    const expected = then && Math.floor(((score - then.score) * HOUR) / (at - then.at) + 0.5);
    assert.equal(paces.of({ key: "a", rank: 1, score }, at), expected, `run ${run}`);
  }
});

test("a baseline is a sample too, in its place by time", () => {
  const paces = new Paces();
  paces.note(30 * MINUTE, new Map([["a", 500]]));
  paces.note(0, new Map([["a", 200]]));
  assert.equal(paces.of({ key: "a", rank: 1, score: 502 }, 30 * MINUTE + SECOND), Math.round((302 * HOUR) / (30 * MINUTE + SECOND)));
  assert.equal(paces.of({ key: "b", rank: 1, score: 1 }, 31 * MINUTE), undefined);
});

test("the forecast time of a pass is right if both members keep their paces", () => {
  const random = seeded(5);
  let told = 0;
  for (let run = 0; run < 400; run++) {
    const [hourly, other] = [3000 + random() * 20_000, 3000 + random() * 20_000];
    const now = 12 * MINUTE;
    const lower = growing(10_000, other);
    const upper = growing(10_000 + (now * (other - hourly)) / HOUR + 1 + random() * 3000, hourly);
    const { paces, above, below } = watched(upper, lower, now);
    if (above.score <= below.score) continue;
    const minutes = paces.passes(below, above, now);
    let met = 0;
    while (met <= 61 && lower(now + met * MINUTE) < upper(now + met * MINUTE)) met += 1 / 60;
    if (minutes === undefined) {
      assert.ok(met > 59, `run ${run}: met after ${met} minutes`);
    } else {
      told++;
      assert.ok(Math.abs(minutes - met) <= 1 + met / 10, `run ${run}: told ${minutes}, met after ${met}`);
    }
  }
  assert.ok(told > 50, `only ${told} were told`);
});

test("no pass is forecast from paces that are not steady, or were watched for less than ten minutes", () => {
  const now = 12 * MINUTE;
  const steady = growing(1000, 6000);
  const sudden = (/** @type {number} */ at) => (at < 9 * MINUTE ? 900 : 900 + ((at - 9 * MINUTE) * 8000) / HOUR);
  const slow = growing(1500, 600);
  const known = watched(slow, growing(100, 6000), now);
  assert.equal(typeof known.paces.passes(known.below, known.above, now), "number");
  const burst = watched(slow, sudden, now);
  assert.equal(burst.paces.passes(burst.below, burst.above, now), undefined);
  const young = watched(slow, growing(100, 6000), now, 3 * MINUTE);
  assert.equal(young.paces.passes(young.below, young.above, now), undefined);
  const apart = watched(steady, growing(900, 6000), now);
  assert.equal(apart.paces.passes(apart.below, apart.above, now), undefined);
});

test("on a board where low scores are ahead, the member with the smaller pace passes the other one", () => {
  const now = 12 * MINUTE;
  const { paces, above, below } = watched(growing(1000, 6000), growing(1200, 5400), now);
  const gap = below.score - above.score;
  assert.equal(paces.passes(below, above, now), Math.ceil((gap / 600) * 60));
});

test("two neighbours have a duel if one may close their gap within a minute", () => {
  const now = 12 * MINUTE;
  const { paces, above, below } = watched(growing(1000, 600), growing(995, 300), now);
  assert.equal(paces.isDuel({ ...below, score: above.score - 10 }, above, now), true);
  assert.equal(paces.isDuel({ ...below, score: above.score - 12 }, above, now), false);
  const still = watched(() => 5, () => 5, now);
  assert.equal(still.paces.isDuel(still.below, still.above, now), false);
});

test("the closest neighbours are among the first ten; of several closest pairs, the highest pair counts", () => {
  const random = seeded(3);
  for (let run = 0; run < 200; run++) {
    const count = Math.floor(random() * 14);
    const records = Array.from({ length: count }, (_, i) => ({ key: `m${i}`, rank: i + 1, score: Math.floor(random() * 30) }))
      .sort((one, other) => other.score - one.score)
      .map((record, i) => ({ ...record, rank: i + 1 }));
    const pairs = records.slice(0, 10).slice(1).map((record, i) => ({ gap: records[i].score - record.score, pair: [records[i], record] }));
    const least = Math.min(...pairs.map(({ gap }) => gap));
    assert.deepEqual(closest(records), pairs.find(({ gap }) => gap === least)?.pair);
  }
});

test("the number of times that two members passed each other in an hour equals that in a list of all changes", () => {
  const random = seeded(8);
  const fights = new Fights();
  const keys = ["a", "b", "c", "d"];
  /** @type {{at: number, pair: string}[]} */
  const passed = [];
  let before = keys;
  fights.note(keys.map((key, i) => ({ key, rank: i + 1, score: 0 })), 0);
  for (let at = MINUTE; at < 3 * HOUR; at += MINUTE) {
    const after = [...keys].sort(() => random() - 0.5);
    fights.note(after.map((key, i) => ({ key, rank: i + 1, score: 0 })), at);
    for (const one of keys) {
      for (const other of keys) {
        if (one < other && before.indexOf(one) < before.indexOf(other) !== after.indexOf(one) < after.indexOf(other)) passed.push({ at, pair: one + other });
      }
    }
    before = after;
    for (const pair of ["ab", "bd"]) {
      const expected = passed.filter((one) => one.pair === pair && at - one.at < HOUR).length;
      assert.equal(fights.changes(pair[1], pair[0], at), expected, `${pair} at ${at}`);
    }
  }
});

test("if too many pairs pass each other, those that did so most recently are remembered", () => {
  const fights = new Fights();
  const order = (/** @type {string[]} */ ...keys) => fights.note(keys.map((key, i) => ({ key, rank: i + 1, score: 0 })), 0);
  const pass = (/** @type {string} */ key, /** @type {string} */ other) => (order(key, other), order(other, key));
  pass("a", "b");
  for (let pair = 0; pair < 150; pair++) pass(`a${pair}`, `b${pair}`);
  pass("a", "b");
  for (let pair = 150; pair < 300; pair++) pass(`a${pair}`, `b${pair}`);
  assert.equal(fights.changes("a", "b", 0), 2);
  assert.equal(fights.changes("a0", "b0", 0), 0);
});

test("the rate is the growth of the total in a minute; scores that leave the window do not lower it", () => {
  const random = seeded(2);
  const rate = new Rate();
  /** @type {{at: number, by: number}[]} */
  const gains = [];
  let total = 500;
  rate.note(total, 0);
  assert.equal(rate.perMinute(9 * SECOND), null);
  for (let at = 100; at < 5 * MINUTE; at += 100 + Math.floor(random() * 900)) {
    const by = Math.floor(random() * 9);
    if (random() < 0.1) {
      rate.note((total -= 50), at);
      continue;
    }
    rate.note((total += by), at);
    gains.push({ at, by });
    if (at < 10 * SECOND) continue;
    const span = Math.min(MINUTE, at);
    const sum = gains.filter((gain) => at - gain.at < span).reduce((all, gain) => all + gain.by, 0);
    assert.equal(rate.perMinute(at), Math.round((sum * MINUTE) / span));
  }
  rate.forget();
  assert.equal(rate.perMinute(6 * MINUTE), null);
  rate.note(9_999, 6 * MINUTE);
  assert.equal(rate.perMinute(6 * MINUTE + 10 * SECOND), 0);
});
