/** Shows the records of a board in a table body: at most one draw per frame, and rows that move with an animation. */
import { markOwn, newRow, Row } from "./row.js";
import { barWidth, grouped, plain } from "./row-words.js";
//#region motion: the server's pages load it later, like what writes metadata
import { writeMetadata } from "./metadata.js";
import { Motion } from "./motion.js";
//#endregion

export { linkedName, newRow, Row } from "./row.js";

/** @typedef {import("./state.js").BoardRecord} BoardRecord */

const REST = 2000; // milliseconds until rows out of sight are up to date and in place
const STEP = 100; // milliseconds until the next part of these rows is drawn
const SMALL = 30; // a board with at most this many records is drawn at once
const MARGIN = 1; // rows above and below the visible ones that are drawn too

/** @typedef {{row: Row, index: number, from: number, value: number | undefined}} Riser `value`: the score until now */

/**
 * @typedef {{fields?: string[], below?: (record: BoardRecord, above: BoardRecord | undefined, under: BoardRecord | undefined,
 *            writing: import("./words.js").Writing) => string,
 *            onDraw?: () => void, signal?: AbortSignal} & Partial<import("./row.js").Shape>} Options
 *   `fields`: the fields that have columns instead of the score; `below` returns the text below a score; `onDraw` is called with each draw; `link` returns the address of a
 *   member's page; `own` is the member whose row is highlighted; `signal` ends the draws that follow from scrolling
 */
export class TableView {
  /** @type {Map<string, Row>} */
  #rows = new Map();
  /** @type {readonly BoardRecord[]} */
  #records = [];
  /** @type {number[]} heights of the first rows; all other rows have the last height */
  #heights = [];
  #timer = 0;
  #requested = false;
  #drawnAt = -Infinity;
  #next = 0; // the start of the next part of the rows out of sight
  #left = 0; // how many rows have not been drawn since the last change
  /** @type {import("./motion.js").Motion | undefined} moves the rows; without it, they jump */
  motion = undefined;
  /** @type {string[]} the fields that have columns instead of the score */
  fields = [];
  isHeld = false; // whether all rows keep their places
  /** @type {((risers: Riser[], mayWait: boolean) => number) | undefined} called before visible rows rise. Returns for how
   *    many milliseconds all rows wait before they move: 0 unless `mayWait`, which is true while no row moves */
  onRise = undefined;
  /** @type {((waiting: number) => void) | undefined} called with each draw while the order is held */
  onHold = undefined;
  writing = plain; // how scores are written
  /** @type {string | undefined} what `writing` was made from */
  format = undefined;
  /** @type {((row: Row, record: BoardRecord) => void) | undefined} called when a record is written into its row */
  onWrite = undefined;

  /** @param {HTMLTableSectionElement} body as the server renders it, or empty @param {Options} [options] */
  constructor(body, { fields = [], bars = false, below = () => "", trends = false, parts = false, link, own, signal, onDraw = () => {} } = {}) {
    this.body = body;
    this.shape = { columns: 1, bars, trends, parts, link, own };
    this.below = below;
    this.setFields(fields);
    //#region motion
    this.motion = new Motion();
    //#endregion
    this.onDraw = onDraw;
    for (const [index, element] of [...body.rows].entries()) {
      const row = new Row(element);
      row.index = index;
      if (element.dataset.member === own) markOwn(element, row.name);
      this.#rows.set(element.dataset.member ?? "", row);
    }
    const measure = () => (this.#heights = [...body.rows].slice(0, 4).map((row) => row.offsetHeight));
    new ResizeObserver(measure).observe(body.closest("table") ?? body);
    addEventListener("scroll", () => this.#records.length && this.#request(), { passive: true, signal });
  }

  /** @param {string[]} fields */
  setFields(fields) {
    this.fields = fields;
    this.shape.columns = fields.length || 1;
    this.shape.bars &&= !fields.length;
  }

  /** Show records in the next frame, unless newer records arrive before it. @param {readonly BoardRecord[]} records */
  show(records) {
    this.#records = records;
    this.#left = records.length;
    this.#request();
  }

  /** Keep rows at their places, but not their texts. @param {boolean} [isPressed] also stop rows that are moving */
  hold(isPressed) {
    this.isHeld = true;
    if (isPressed) this.motion?.hold();
  }

  /** Let rows move again. */
  release() {
    this.isHeld = false;
    this.motion?.release();
    this.refresh();
  }

  /** Draw all rows again: visible ones with the next draw, others soon after. */
  refresh() {
    if (this.#records.length) this.show(this.#records);
  }

  /** Draw in the next frame, or when the beat allows it; never while the page is hidden. */
  #request() {
    if (this.#requested) return;
    this.#requested = true;
    const pause = this.#drawnAt + (this.motion?.pause ?? 0) - performance.now();
    const draw = () => requestAnimationFrame((now) => this.#draw(now));
    if (pause > 0) setTimeout(draw, pause);
    else draw();
  }

  /** @param {number} index */
  #top(index) {
    const heights = this.#heights;
    let top = 0;
    for (let i = 0; i < Math.min(index, 3); i++) top += heights[i] ?? heights[0] ?? 0;
    return index > 3 ? top + (index - 3) * (heights[3] ?? 0) : top;
  }

  /** @param {number} now */
  #draw(now) {
    const began = performance.now();
    const elapsed = now - this.#drawnAt;
    this.#requested = false;
    this.#drawnAt = now;
    const { top } = this.body.getBoundingClientRect(); // the layout is read only here, before all writes
    const sees = (/** @type {number} */ index, margin = 0) =>
      this.#top(index + 1 + margin) + top > 0 && this.#top(index - margin) + top < innerHeight;
    if (this.isHeld) this.#drawInPlace((index) => sees(index, MARGIN));
    else this.#arrange(now, elapsed, sees);
    this.onDraw();
    clearTimeout(this.#timer);
    if (this.#left > 0) this.#timer = setTimeout(() => this.#request(), STEP);
    if (this.motion) setTimeout(() => this.motion?.note(performance.now() - began)); // after layout and paint
  }

  /** Draw the records in rows that stay at their places. New members have to wait. @param {(index: number) => boolean} sees */
  #drawInPlace(sees) {
    let waiting = 0;
    this.#left = 0;
    this.#records.forEach((record, index) => {
      const row = this.#rows.get(record.key);
      if (!row || row.index > index) waiting++;
      if (row && sees(row.index)) this.#writeAt(row, index);
    });
    this.onHold?.(waiting);
  }

  /** @param {number} now @param {number} elapsed @param {(index: number, margin?: number) => boolean} sees */
  #arrange(now, elapsed, sees) {
    const target = this.#records.map(({ key: member }) => {
      const row = this.#rows.get(member) ?? new Row(newRow(member, this.shape));
      this.#rows.set(member, row);
      return row;
    });
    const isPart = this.#nextPart(target.length, elapsed);
    const isDrawn = (/** @type {number} */ index) => isPart(index) || sees(index, MARGIN);
    const rows = arranged(target, isDrawn);
    const fly = this.motion?.plan(rows, now, sees, (index) => this.#top(index), this.onRise);
    this.#place(rows);
    target.forEach((row, index) => {
      if (row.index < 0 || isDrawn(index)) this.#writeAt(row, index);
    });
    fly?.();
    rows.forEach((row, index) => row.setIndex(index));
  }

  /** Rows out of sight: one part at a time. @param {number} length @param {number} elapsed @returns {(at: number) => boolean} */
  #nextPart(length, elapsed) {
    const isWhole = length <= SMALL || elapsed >= REST;
    const size = isWhole ? length : Math.ceil((length * Math.max(elapsed, STEP)) / REST);
    const from = isWhole || this.#next >= length ? 0 : this.#next;
    this.#next = from + size;
    this.#left -= Math.min(size, length - from);
    return (index) => index >= from && index < from + size;
  }

  /**
   * Put the rows into the document in order, and remove those that are gone. The longest series of rows that are in
   * order already stays in place, because the browser lays out a moved row like a new one.
   * @param {Row[]} rows
   */
  #place(rows) {
    const gone = new Set(this.#rows.values());
    const ends = /** @type {Row[]} */ ([]); // `ends[n]`: the last row of a series of n + 1 rows, with the smallest index possible
    const before = new Map(); // for each row, the row before it in its series
    for (const row of rows) {
      gone.delete(row);
      if (row.index < 0) continue;
      let { length } = ends;
      while (length && ends[length - 1].index > row.index) length--;
      before.set(row, ends[length - 1]);
      ends[length] = row;
    }
    for (const { element } of gone) element.remove();
    if (gone.size) this.#rows = new Map(rows.map((row) => [row.element.dataset.member ?? "", row]));
    let stays = ends.pop();
    let next = null;
    for (const row of [...rows].reverse()) {
      if (row === stays) stays = before.get(row);
      else move(this.body, row.element, next);
      next = row.element;
    }
  }

  /** @param {Row} row @param {number} index of the record */
  #writeAt(row, index) {
    this.write(row, this.#records[index], this.#records[index - 1], this.#records[index + 1]);
  }

  /** @param {Row} row @param {BoardRecord} record @param {BoardRecord} [above] @param {BoardRecord} [under] */
  write(row, record, above, under) {
    if (row.write(0, grouped(record.rank))) row.element.classList.toggle("lead", record.rank === 1);
    //#region metadata
    writeMetadata(row, record.metadata);
    //#endregion
    if (this.fields.length) this.fields.forEach((field, i) => row.write(i + 1, grouped(record.fields?.[field] ?? null)));
    else {
      row.value = record.score;
      row.write(1, this.writing.grouped(record.score));
      row.writeGap(this.below(record, above, under, this.writing));
    }
    row.writeBar(barWidth(record.score, this.#records[0]?.score ?? 0));
    this.onWrite?.(row, record);
  }
}

/** Rows that are drawn get their places; others stay, or take free ones. @param {Row[]} target @param {(index: number) => boolean} isDrawn */
function arranged(target, isDrawn) {
  const rows = target.map((row, index) => (isDrawn(index) ? row : undefined));
  const left = target.filter((row, index) => {
    if (isDrawn(index)) return false;
    if (row.index < 0 || row.index >= rows.length || rows[row.index]) return true;
    rows[row.index] = row;
    return false;
  });
  let next = 0;
  return rows.map((row) => row ?? left[next++]);
}

/** Keep focus and animations if the browser can. @param {any} parent @param {Element} element @param {Element | null} before */
function move(parent, element, before) {
  if (element.parentNode === parent && parent.moveBefore) parent.moveBefore(element, before);
  else parent.insertBefore(element, before);
}
