// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { Marks } from "../../static/marks.js";

/** A row with a stand-in for its element, and the set of the element's classes. */
function fakeRow() {
  /** @type {Set<string>} */
  const classes = new Set();
  const dataset = () => /** @type {Object<string, string>} */ ({});
  const name = { dataset: dataset(), querySelector: () => null };
  const element = { cells: [{ dataset: dataset() }], classList: { toggle: (/** @type {string} */ one, /** @type {boolean} */ is) => classes[is ? "add" : "delete"](one) } };
  return { row: /** @type {any} */ ({ name, element, score: { dataset: dataset() } }), classes };
}

test("a row shows movement, pace, what comes next and a duel, and loses them again", () => {
  const table = /** @type {any} */ ({ body: { rows: [] }, refresh() {} });
  const marks = new Marks(table);
  const { row, classes } = fakeRow();
  const write = () => table.onWrite(row, { key: "a", score: 5, rank: 2 }, { score: 9 });
  marks.compare(new Map([["a", 4]]), new Map());
  marks.setPaces(new Map([["a", { text: "+9/h", next: "passes 1", isDuel: true }]]));
  write();
  assert.deepEqual([row.element.cells[0].dataset.move, row.name.dataset.pace, row.score.dataset.next, [...classes]], ["▲2", "+9/h", "passes 1", ["duel"]]);
  marks.compare(null, new Map());
  marks.setPaces(new Map());
  write();
  assert.deepEqual([row.element.cells[0].dataset, row.name.dataset.pace, row.score.dataset, [...classes]], [{}, "", {}, []]);
});
