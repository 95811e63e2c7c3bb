// @ts-check
/** Marks rows that rise: the score counts up, the row moves, and for a moment the row says whom it has passed. */

/**
 * @typedef {Riser["row"]} Row
 * @typedef {import("./client/view.js").Riser} Riser
 * @typedef {{index: number, from: number, end: () => void}} Told
 */

const MOST_TOLD = 3; // rows that are marked at a time
const COUNTING = 250; // milliseconds in which a score counts up before its row moves
const STAY = 3_200; // milliseconds for which a row is marked: while it moves, and about 2.5 s longer

export class Risers {
  /** @type {Map<Row, Told>} the rows that are marked now */
  #told = new Map();

  /**
   * @param {import("./client/view.js").TableView} table
   * @param {(rows: number, name: string) => string} words returns the text that a row has passed `rows` others, the
   * last of them `name`
   */
  constructor(table, words) {
    this.table = table;
    this.words = words;
    table.onRise = (risers, mayWait) => this.#tell(risers, mayWait);
  }

  /**
   * @param {Riser[]} risers if there are too many to follow, only a new leader is marked
   * @param {boolean} mayWait
   */
  #tell(risers, mayWait) {
    for (const [row, { index, end }] of this.#told) if (row.index > index) end(); // the row has fallen since
    const chosen = risers.length > MOST_TOLD ? risers.filter(({ index }) => index === 0) : risers;
    const told = chosen.filter(({ row }) => this.#told.has(row) || this.#told.size < MOST_TOLD);
    let wait = 0;
    for (const riser of told) {
      if (mayWait && countUp(riser, this.table.writing)) wait = COUNTING;
      this.#mark(riser);
    }
    return wait;
  }

  /** @param {Riser} riser */
  #mark({ row, index, from }) {
    const held = this.#told.get(row);
    held?.end();
    const first = Math.max(from, held?.from ?? 0);
    const passed = this.table.body.rows[index + 1]; // the rows are in their new order already
    const name = passed?.querySelector("bdi")?.textContent ?? "";
    const { classList } = row.element;
    const { dataset } = row.name;
    const timer = setTimeout(() => end(), STAY);
    const end = () => {
      clearTimeout(timer);
      this.#told.delete(row);
      classList.remove("risen");
      delete dataset.told;
    };
    this.#told.set(row, { index, from: first, end });
    classList.add("risen");
    dataset.told = this.words(first - index, name);
  }
}

/**
 * Let a score count up to its value. The text has the new value at once, and the visible digits follow.
 *
 * @param {Riser} riser
 * @param {import("./client/words.js").Writing} writing
 * @returns {boolean} whether the score counts up
 */
function countUp({ row, value }, { grouped }) {
  const after = row.value;
  if (value === undefined || after === undefined || after === value) return false;
  const { dataset } = row.score;
  const began = performance.now();
  const step = () => {
    const part = Math.min(1, (performance.now() - began) / COUNTING);
    if (part === 1 || row.value !== after) return void delete dataset.count;
    dataset.count = grouped(Math.round(value + (after - value) * part));
    requestAnimationFrame(step);
  };
  step();
  return true;
}
