// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { stateWords } from "../../static/client/status.js";

const NOW = 1_000_000;
const OPEN = { frozen: false, closes: Infinity };

/**
 * @param {any} state
 * @param {number} [waiting]
 */
const words = (state, waiting = 0, board = OPEN) => stateWords({ state: { since: 0, ...state }, waiting }, board, NOW);

test("the state of a connection is shown in words", () => {
  assert.deepEqual(words({ name: "live" }), ["live", "Live"]);
  assert.deepEqual(words({ name: "paused" }), ["paused", "Paused"]);
  assert.deepEqual(words({ name: "paused" }, 1037), ["paused", "Paused, 1,037 changes waiting"]);
  assert.deepEqual(words({ name: "ended", reason: "board deleted" }), ["ended", "Ended: the board was deleted"]);
  assert.match(words({ name: "stale", reason: "nothing heard" })[1], /^Stale since \d\d:\d\d$/);
  assert.match(words({ name: "stale", reason: "store unreachable" })[1], /^Stale since \d\d:\d\d: the store is unreachable$/);
  assert.equal(words({ name: "offline" })[0], "offline");
});

test("a countdown is correct, and never zero", () => {
  assert.equal(words({ name: "reconnecting", retryAt: NOW + 4001 })[1], "Reconnecting in 5 s");
  assert.equal(words({ name: "reconnecting", retryAt: NOW - 50 })[1], "Reconnecting in 1 s");
  assert.equal(words({ name: "reconnecting" })[1], "Reconnecting");
});

test("a board that takes no more events is not called live", () => {
  assert.deepEqual(words({ name: "live" }, 0, { frozen: true, closes: Infinity }), ["frozen", "Frozen: it accepts no more events"]);
  assert.deepEqual(words({ name: "live" }, 0, { frozen: false, closes: NOW }), ["closed", "Voting closed"]);
  assert.deepEqual(words({ name: "live" }, 0, { frozen: false, closes: NOW + 1 }), ["live", "Live"]);
});
