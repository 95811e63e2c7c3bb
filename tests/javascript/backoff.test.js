// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { Backoff } from "../../static/client/backoff.js";

test("pauses double up to a maximum", () => {
  const backoff = new Backoff({ base: 500, cap: 3000, random: () => 1 });
  assert.deepEqual([1, 2, 3, 4, 5].map(() => backoff.next()), [500, 1000, 2000, 3000, 3000]);
  backoff.reset();
  assert.equal(backoff.next(), 500);
});

test("failures in one round of transports count once", () => {
  const backoff = new Backoff({ base: 500, random: () => 1 });
  assert.deepEqual([false, false, true, false, true].map((isRound) => backoff.next(isRound)), [500, 500, 500, 1000, 1000]);
});

test("in the first minute a pause takes at most 5 s", () => {
  let time = 1_000_000;
  const backoff = new Backoff({ random: () => 1, now: () => time });
  const pauses = Array.from({ length: 12 }, () => {
    const pause = backoff.next();
    time += pause;
    return pause;
  });
  assert.deepEqual(pauses.slice(0, 5), [500, 1000, 2000, 4000, 5000]);
  time += 60_000;
  assert.equal(backoff.next(), 20_000);
  backoff.reset();
  assert.equal(backoff.next(), 500);
});

test("pauses are random from zero to their limit", () => {
  const shares = [0, 0.25, 1];
  const backoff = new Backoff({ base: 100, cap: 800, random: () => shares.shift() ?? 0 });
  assert.deepEqual([backoff.next(), backoff.next(), backoff.next()], [0, 50, 400]);
});

test("the client pauses for as long as the server asks, and for at most the base longer", () => {
  assert.equal(new Backoff({ base: 500, random: () => 0 }).after(1.5), 1500);
  assert.equal(new Backoff({ base: 500, random: () => 1 }).after(1.5), 2000);
});
