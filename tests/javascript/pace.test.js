// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { Paces } from "../../static/pace.js";
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
