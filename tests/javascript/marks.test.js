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

test("a row shows movement and pace, and loses them again", () => {
  const table = /** @type {any} */ ({ body: { rows: [] }, refresh() {} });
  const marks = new Marks(table);
  const row = fakeRow();
  const write = () => table.onWrite(row, { key: "a", score: 5, rank: 2 }, { score: 9 });
  marks.compare(new Ranks({ ranks: { a: 4 }, complete: true }), new Map());
  marks.setPaces(new Map([["a", "+9/h"]]));
  write();
  assert.deepEqual([row.element.cells[0].dataset.move, row.name.dataset.pace], ["▲2", "+9/h"]);
  marks.compare(null, new Map());
  marks.setPaces(new Map());
  write();
  assert.deepEqual([row.element.cells[0].dataset, row.name.dataset.pace], [{}, ""]);
});
