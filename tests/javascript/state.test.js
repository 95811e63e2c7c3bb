// @ts-check
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { applied, Gap } from "../../static/client/state.js";

/**
 * Messages that the server would send one after another, and the records after each of them.
 *
 * @type {{messages: (import("../../static/client/state.js").Sync | import("../../static/client/state.js").Update)[],
 *         records: import("../../static/client/state.js").BoardRecord[][]}[]}
 */
const walks = JSON.parse(readFileSync(new URL("walks.json", import.meta.url), "utf8"));

test("the applied messages give the records of the server", () => {
  assert.ok(walks.length > 10);
  for (const { messages, records } of walks) {
    /** @type {import("../../static/client/state.js").Board | null} */
    let board = null;
    messages.forEach((message, step) => {
      board = applied(board, message);
      assert.deepEqual(board.records, records[step]);
      assert.equal(board.offset, message.offset);
      assert.equal(board.rankCount, message.rank_count);
    });
  }
});

test("an update changes neither the message nor the board before it", () => {
  const [sync, update] = walks[0].messages;
  const before = applied(null, sync);
  const copies = JSON.stringify([before, update]);
  applied(before, update);
  assert.equal(JSON.stringify([before, update]), copies);
});

test("an update from another position is a gap", () => {
  const [sync, update] = walks[0].messages;
  assert.throws(() => applied(null, update), Gap);
  assert.throws(() => applied(applied(null, { ...sync, offset: sync.offset + 9 }), update), Gap);
  assert.throws(() => applied(applied(null, { ...sync, epoch: "other" }), update), Gap);
});

test("the facts of a board have only known fields, and updates keep them", () => {
  const [sync, update] = walks[0].messages;
  const board = applied(null, /** @type {any} */ ({ ...sync, unit: "€", scale: 2, next_cursor: "c" }));
  assert.deepEqual(board.facts, { unit: "€", scale: 2 });
  assert.equal(applied(board, update).facts, board.facts);
});
