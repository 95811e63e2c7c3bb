// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { Marks } from "../../static/marks.js";
import { Ranks } from "../../static/poll.js";

/** A row with a stand-in for its element. */
function fakeRow() {
  const dataset = () => /** @type {Object<string, string>} */ ({});
  const name = { dataset: dataset(), querySelector: () => null };
  return /** @type {any} */ ({ name, element: { cells: [{ dataset: dataset() }] } });
}

test("a row shows movement, and loses it again", () => {
  const table = /** @type {any} */ ({ body: { rows: [] }, refresh() {} });
  const marks = new Marks(table);
  const row = fakeRow();
  const write = () => table.onWrite(row, { key: "a", score: 5, rank: 2 });
  marks.compare(new Ranks({ ranks: { a: 4 }, complete: true }));
  write();
  assert.equal(row.element.cells[0].dataset.move, "▲2");
  marks.compare(null);
  write();
  assert.deepEqual(row.element.cells[0].dataset, {});
});
