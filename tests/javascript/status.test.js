// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { momentWords, stateWords } from "../../static/client/words.js";

const NOW = 1_000_000;
const OPEN = { frozen: false, closes: Infinity };

/**
 * @param {any} state
 * @param {number} [waiting]
 */
const words = (state, waiting = 0, board = OPEN) => stateWords({ state: { since: 0, ...state }, waiting, epoch: null }, board, NOW);

/** @param {any} state of a board that has rows */
const withRows = (state) => stateWords({ state, waiting: 0, epoch: "a" }, OPEN, NOW)[1];

test("the state of a connection is shown in words", () => {
  assert.deepEqual(words({ name: "live" }), ["live", "Live"]);
  assert.deepEqual(words({ name: "paused" }), ["paused", "Paused"]);
  assert.deepEqual(words({ name: "paused" }, 1037), ["paused", "Paused, 1,037 changes waiting"]);
  assert.deepEqual(words({ name: "ended", reason: "board deleted" }), ["ended", "Ended: the board was deleted"]);
  assert.match(words({ name: "stale", reason: "nothing heard" })[1], /^Stale since .*\d\d:\d\d$/);
  assert.match(words({ name: "stale", reason: "store unreachable" })[1], /^Stale since .*\d\d:\d\d: the store is unreachable$/);
  assert.equal(words({ name: "offline" })[0], "offline");
});

test("a countdown is correct, and never zero", () => {
  assert.equal(words({ name: "reconnecting", retryAt: NOW + 4001 })[1], "Reconnecting in 5 s");
  assert.equal(words({ name: "reconnecting", retryAt: NOW - 50 })[1], "Reconnecting in 1 s");
  assert.equal(words({ name: "reconnecting" })[1], "Reconnecting");
});

test("while there is no connection the words say how old the rows are", () => {
  assert.match(withRows({ name: "reconnecting", retryAt: NOW + 2000, since: NOW - 7900 }), /^Reconnecting in 2 s · rows of \d\d:\d\d:32$/);
  assert.match(withRows({ name: "offline", since: NOW }), /^Offline: no network · rows of \d\d:\d\d:40$/);
  assert.equal(withRows({ name: "live", since: NOW - 61_000 }), "Live");
});

test("a time has its day if that is not today, and its seconds if they are not zero", () => {
  const at = new Date(2026, 10, 21, 9, 5).getTime();
  assert.equal(momentWords(at, at + 3_600_000), "09:05");
  assert.equal(momentWords(at + 7000, at), "09:05:07");
  assert.equal(momentWords(at, at + 24 * 3_600_000), "21 November 2026, 09:05");
});

test("a contest says when it opens, and that voting is open", () => {
  const contest = { frozen: false, closes: Infinity, votes: true };
  assert.deepEqual(words({ name: "live" }, 0, contest), ["live", "Voting open"]);
  assert.deepEqual(words({ name: "live" }, 0, { frozen: false, closes: NOW + 1 }), ["live", "Voting open"]);
  assert.deepEqual(words({ name: "live" }, 0, { ...contest, opens: NOW + 1 }), ["live", `Opens ${momentWords(NOW + 1, NOW)}`]);
});

test("a board that takes no more events is not called live", () => {
  assert.deepEqual(words({ name: "live" }, 0, { frozen: true, closes: Infinity }), ["frozen", "Frozen: it accepts no more events"]);
  assert.deepEqual(words({ name: "live" }, 0, { frozen: false, closes: NOW }), ["closed", `Ended ${momentWords(NOW, NOW)}`]);
  assert.deepEqual(words({ name: "live" }, 0, { frozen: false, closes: NOW, finalAt: NOW + 1 }), ["counting", "Counting the last votes"]);
  assert.deepEqual(words({ name: "live" }, 0, { frozen: false, closes: NOW - 1, finalAt: NOW }), ["closed", `Ended ${momentWords(NOW - 1, NOW)}`]);
});
