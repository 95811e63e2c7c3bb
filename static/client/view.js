// @ts-check
/** Shows the records of a board in a table body: at most one draw per frame, and rows that move with an animation. */
import { Beat } from "./beat.js";
import { flightTime, markOwn, newRow, Row } from "./row.js";
import { barWidth, grouped, plain } from "./words.js";

export { newRow, Row } from "./row.js";

/** @typedef {import("./state.js").BoardRecord} BoardRecord */

const REST = 2000; // milliseconds until rows out of sight are up to date and in place
const STEP = 100; // milliseconds until the next part of these rows is drawn
const SMALL = 30; // a board with at most this many records is drawn at once
const MARGIN = 1; // rows above and below the visible ones that are drawn too

/**
 * @typedef {{row: Row, index: number, from: number, value: number | undefined}} Riser a row that rises from one place to
 *   another; `value`: the score that it showed before
 */

/**
 * @typedef {{fields?: string[], below?: (record: BoardRecord, above: BoardRecord | undefined, under: BoardRecord | undefined,
 *            writing: import("./words.js").Writing) => string,
 *            onDraw?: () => void} & Partial<import("./row.js").Shape>} Options
 *   `fields`: the fields that have columns instead of the score; `below` returns the text below a score; `onDraw` is called with each draw; `link` returns the address of a
 *   member's page; `own` is the member whose row is highlighted
 */
export class TableView {
  /** @type {Map<string, Row>} */
  #rows = new Map();
  /** @type {readonly BoardRecord[]} */
  #records = [];
  /** @type {number[]} heights of the first rows; all other rows have the last height */
  #heights = [];
  #beat = new Beat();
  #timer = 0;
  #requested = false;
  #drawnAt = -Infinity;
  #next = 0; // the start of the next part of the rows out of sight
  #left = 0; // how many rows have not been drawn since the last change
  #landsAt = 0; // when the last flight ends
  isHeld = false; // whether all rows keep their places
  /** @type {((risers: Riser[], mayWait: boolean) => number) | undefined} called before visible rows rise. Returns for how
   *    many milliseconds all rows wait before they move: 0 unless `mayWait`, which is true while no row moves */
  onRise = undefined;
  /** @type {((waiting: number) => void) | undefined} called with each draw while the order is held */
  onHold = undefined;
  writing = plain; // how scores are written
  /** @type {((row: Row, record: BoardRecord) => void) | undefined} called when a record is written into
   *    its row */
  onWrite = undefined;

  /**
   * @param {HTMLTableSectionElement} body as the server renders it, or empty
   * @param {Options} [options]
   */
  constructor(body, { fields = [], bars = false, below = () => "", trends = false, parts = false, link, own, onDraw = () => {} } = {}) {
    this.body = body;
    this.fields = fields;
    this.shape = { columns: fields.length || 1, bars, trends, parts, link, own };
    this.below = below;
    this.onDraw = onDraw;
    for (const [index, element] of [...body.rows].entries()) {
      const row = new Row(element);
      row.index = index;
      if (element.dataset.key === own) markOwn(element, row.name);
      this.#rows.set(element.dataset.key ?? "", row);
    }
    new ResizeObserver(() => this.#measure()).observe(body.closest("table") ?? body);
    addEventListener("scroll", () => this.#records.length && this.#request(), { passive: true });
  }

  /**
   * Show records in the next frame, unless newer records arrive before it.
   *
   * @param {readonly BoardRecord[]} records
   */
  show(records) {
    this.#records = records;
    this.#left = records.length;
    this.#request();
  }

  /**
   * Keep all rows at their places, so that nothing moves away from a pointer. Their texts still change.
   *
   * @param {boolean} [isPressed] also stop rows that are moving
   */
  hold(isPressed) {
    this.isHeld = true;
    if (isPressed) for (const { flight } of this.#rows.values()) flight?.pause();
  }

  /** Let rows move again. */
  release() {
    this.isHeld = false;
    for (const { flight } of this.#rows.values()) if (flight?.playState === "paused") flight.play();
    this.refresh();
  }

  /** Draw all rows again: visible ones with the next draw, others soon after. */
  refresh() {
    this.#left = this.#records.length;
    if (this.#records.length) this.#request();
  }

  /** Draw in the next frame, or when the beat allows it; never while the page is hidden. */
  #request() {
    if (this.#requested) return;
    this.#requested = true;
    const pause = this.#drawnAt + this.#beat.pause - performance.now();
    const draw = () => requestAnimationFrame((now) => this.#draw(now));
    if (pause > 0) setTimeout(draw, pause);
    else draw();
  }

  #measure() {
    this.#heights = [...this.body.rows].slice(0, 4).map((row) => row.offsetHeight);
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
    setTimeout(() => this.#beat.note(performance.now(), performance.now() - began)); // after layout and paint
  }

  /**
   * Draw the records in rows that stay at their places. New members have to wait.
   *
   * @param {(index: number) => boolean} sees
   */
  #drawInPlace(sees) {
    let waiting = 0;
    this.#left = 0;
    this.#records.forEach((record, index) => {
      const row = this.#rows.get(record.key);
      if (!row || row.index > index) waiting++;
      if (row && sees(row.index)) this.#write(row, record, index);
    });
    this.onHold?.(waiting);
  }

  /**
   * Draw the records in rows at their places, and let visible ones fly there.
   *
   * @param {number} now
   * @param {number} elapsed milliseconds since the last draw
   * @param {(index: number, margin?: number) => boolean} sees
   */
  #arrange(now, elapsed, sees) {
    const target = this.#records.map((record) => this.#rowOf(record));
    const isPart = this.#nextPart(target.length, elapsed);
    const isDrawn = (/** @type {number} */ index) => isPart(index) || sees(index, MARGIN);
    const rows = arranged(target, isDrawn);
    const tops = rows.map((row) => (row.index < 0 ? 0 : this.#top(row.index) + row.offset()));
    const moves = (/** @type {Row} */ row, /** @type {number} */ index) => row.index !== index && (sees(index) || sees(row.index));
    const risers = rows
      .map((row, index) => ({ row, index, from: row.index, value: row.value }))
      .filter(({ row, index, from }) => from > index && moves(row, index));
    this.#place(rows);
    target.forEach((row, index) => {
      if (row.index < 0 || isDrawn(index)) this.#write(row, this.#records[index], index);
    });
    const { isCalm, isSlow } = this.#beat;
    const told = isSlow ? risers.filter(({ index }) => index === 0) : risers;
    const delay = this.onRise?.(told, !isCalm && now >= this.#landsAt) ?? 0;
    const flies = (/** @type {Row} */ row, /** @type {number} */ index) =>
      !isCalm && moves(row, index) && (!isSlow || index === 0 || row.index === 0);
    rows.forEach((row, index) => {
      if (row.index < 0 && !isCalm && sees(index)) row.appear();
      else if (row.index >= 0 && flies(row, index)) this.#fly(row, index, tops[index], now, delay);
      else if (row.index !== index) row.flight?.finish();
      row.setIndex(index);
    });
  }

  /**
   * Animate a row to its new place.
   *
   * @param {Row} row
   * @param {number} index
   * @param {number} top where it was, in pixels
   * @param {number} now
   * @param {number} delay in milliseconds
   */
  #fly(row, index, top, now, delay) {
    const from = top - this.#top(index);
    const duration = flightTime(Math.abs(from) / (this.#heights[0] || 1));
    row.fly(from, duration, delay);
    this.#landsAt = Math.max(this.#landsAt, now + delay + duration);
  }

  /**
   * Choose the rows that are drawn although they are out of sight: one part after another, and after a pause all of
   * them.
   *
   * @param {number} length
   * @param {number} elapsed milliseconds since the last draw
   * @returns {(index: number) => boolean}
   */
  #nextPart(length, elapsed) {
    const isWhole = length <= SMALL || elapsed >= REST;
    const size = isWhole ? length : Math.ceil((length * Math.max(elapsed, STEP)) / REST);
    const from = isWhole || this.#next >= length ? 0 : this.#next;
    this.#next = from + size;
    this.#left -= Math.min(size, length - from);
    return (index) => index >= from && index < from + size;
  }

  /** @param {BoardRecord} record */
  #rowOf({ key }) {
    let row = this.#rows.get(key);
    if (!row) {
      row = new Row(newRow(key, this.shape));
      this.#rows.set(key, row);
    }
    return row;
  }

  /**
   * Put the rows into the document in order, and remove those that are gone. The longest series of rows that are in
   * order already stays in place, because the browser lays out a moved row like a new one.
   *
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
    if (gone.size) this.#rows = new Map(rows.map((row) => [row.element.dataset.key ?? "", row]));
    let stays = ends.pop();
    let next = null;
    for (const row of [...rows].reverse()) {
      if (row === stays) stays = before.get(row);
      else move(this.body, row.element, next);
      next = row.element;
    }
  }

  /**
   * @param {Row} row
   * @param {BoardRecord} record
   * @param {number} index
   */
  #write(row, record, index) {
    const [first] = this.#records;
    row.writeRank(record.rank);
    row.writeMetadata(record.metadata);
    if (this.fields.length) this.fields.forEach((field, i) => row.write(i + 1, grouped(record.fields?.[field] ?? null)));
    else row.writeScore(record.score, this.writing);
    row.writeGap(this.below(record, this.#records[index - 1], this.#records[index + 1], this.writing));
    row.writeBar(barWidth(record.score, first.score));
    this.onWrite?.(row, record);
  }
}

/**
 * Arrange the rows. Each row that is drawn gets its place. The other rows stay, or take free places.
 *
 * @param {Row[]} target
 * @param {(index: number) => boolean} isDrawn
 */
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

/**
 * Move an element, and keep its focus and animations if the browser can.
 *
 * @param {any} parent
 * @param {Element} element
 * @param {Element | null} before
 */
function move(parent, element, before) {
  if (element.parentNode === parent && parent.moveBefore) parent.moveBefore(element, before);
  else parent.insertBefore(element, before);
}
