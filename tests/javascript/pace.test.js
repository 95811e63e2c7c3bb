// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { Paces, Rate } from "../../static/pace.js";
import { seeded } from "./model.js";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

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
