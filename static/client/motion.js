/** Lets rows of a table move: those in sight fly to their places, as often as frames allow. */
/** @import { Row } from "./row.js" */
/** @import { Riser, TableView } from "./view.js" */
/** @import { Writing } from "./words.js" */

/** @typedef {(index: number, margin?: number) => boolean} Sees whether a place is in sight */

const EASING = "ease-out";
const ENTRY = 320; // milliseconds in which a new row appears; also the duration of the shortest flight
const LONGEST_FLIGHT = 900;
const BEATS = [0, 120, 180, 400]; // milliseconds between two draws
const SLOW = 2; // from this index of `BEATS` on, only a new leader moves
const CALM_BEAT = 1000; // milliseconds between two draws if the user asks for reduced motion
const HEAVY = 35; // milliseconds that a frame with a draw may take
const QUIET = 5000; // milliseconds without heavy frames after which the beat is faster again
const WEIGHT = 1 / 6; // the weight of the last frame in the average
const calm = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)");

/** Milliseconds that a row flies: the farther, the longer, so that eyes can follow. @param {number} rows */
export function flightTime(rows) {
  return Math.min(LONGEST_FLIGHT, Math.max(ENTRY, 220 + 90 * Math.sqrt(rows)));
}

export class Motion {
  #step = 0; // the index of the present beat
  #mean = 0; // of the times that frames took
  #slowedAt = -Infinity;
  #landsAt = 0; // when the last flight ends
  /** @type {Map<Row, {animation: Animation, from: number}>} the rows in flight; `from`: pixels from their places when they began */
  #flights = new Map();

  /** The minimum time between two draws, in milliseconds. */
  get pause() {
    return calm?.matches ? CALM_BEAT : BEATS[this.#step];
  }

  /** Note how long a frame with a draw took, with all that the browser did for it. @param {number} cost milliseconds */
  note(cost) {
    const now = performance.now();
    this.#mean += (cost - this.#mean) * WEIGHT;
    if (this.#mean > HEAVY) {
      if (this.#step < BEATS.length - 1) this.#mean /= 2; // so that the slower beat is measured first
      this.#step = Math.min(this.#step + 1, BEATS.length - 1);
      this.#slowedAt = now;
    } else if (this.#step && now - this.#slowedAt > QUIET) {
      this.#slowedAt = now;
      this.#step--;
    }
  }

  /** Stop rows that are moving. */
  hold() {
    for (const { animation } of this.#flights.values()) animation.pause();
  }

  release() {
    for (const { animation } of this.#flights.values()) if (animation.playState === "paused") animation.play();
  }

  /**
   * Note where rows are before they get new places. Returns what begins the flights after that.
   * @param {Row[]} rows in their new order @param {number} now @param {Sees} sees
   * @param {(index: number) => number} topOf a place, in pixels @param {TableView["onRise"]} onRise
   */
  plan(rows, now, sees, topOf, onRise) {
    const tops = rows.map((row) => (row.index < 0 ? 0 : topOf(row.index) + this.#offset(row)));
    const moves = (/** @type {Row} */ row, /** @type {number} */ index) => row.index !== index && (sees(index) || sees(row.index));
    const risers = rows
      .map((row, index) => ({ row, index, from: row.index, value: row.value }))
      .filter(({ row, index, from }) => from > index && moves(row, index));
    return () => {
      const [isCalm, isSlow] = [calm?.matches, this.#step >= SLOW]; // slow: frames took so long that movement is reduced
      const told = isSlow ? risers.filter(({ index }) => index === 0) : risers;
      const delay = onRise?.(told, !isCalm && now >= this.#landsAt) ?? 0;
      const flies = (/** @type {Row} */ row, /** @type {number} */ index) =>
        !isCalm && moves(row, index) && (!isSlow || index === 0 || row.index === 0);
      rows.forEach((row, index) => {
        if (row.index < 0 && !isCalm && sees(index)) row.element.animate({ opacity: [0, 1] }, { duration: ENTRY, easing: EASING });
        else if (row.index >= 0 && flies(row, index)) this.#fly(row, tops[index] - topOf(index), topOf(1) - topOf(0), now, delay);
        else if (row.index !== index) this.#flights.get(row)?.animation.finish();
      });
    };
  }

  /** Where a row is now, in pixels from its place. @param {Row} row */
  #offset(row) {
    const flight = this.#flights.get(row);
    return flight ? flight.from * (1 - (flight.animation.effect?.getComputedTiming().progress ?? 1)) : 0;
  }

  /** @param {Row} row @param {number} from pixels from its place @param {number} height @param {number} now @param {number} delay */
  #fly(row, from, height, now, delay) {
    this.#flights.get(row)?.animation.cancel();
    const { style } = row.element;
    style.zIndex = from > 0 ? "1" : ""; // rising rows pass in front
    const faller = from < 0 ? { opacity: [0.7, 1] } : {};
    const frames = { transform: [`translateY(${from}px)`, "none"], ...faller };
    const duration = flightTime(Math.abs(from) / (height || 1));
    const animation = row.element.animate(frames, { duration, delay, fill: "backwards", easing: EASING });
    animation.onfinish = () => {
      this.#flights.delete(row);
      style.zIndex = "";
    };
    this.#flights.set(row, { animation, from });
    this.#landsAt = Math.max(this.#landsAt, now + delay + duration);
  }
}

/** @typedef {{index: number, from: number, end: () => void}} Told */

const MOST_TOLD = 3; // rows that are marked at a time
const COUNTING = 250; // milliseconds in which a score counts up before its row moves
const STAY = 3_200; // milliseconds for which a row is marked: while it moves, and about 2.5 s longer

export class Risers {
  /** @type {Map<Row, Told>} the rows that are marked now */
  #told = new Map();

  /** @param {TableView} table @param {(rows: number, name: string) => string} words for having passed `rows`, last `name` */
  constructor(table, words) {
    this.table = table;
    this.words = words;
    table.onRise = (risers, mayWait) => this.#tell(risers, mayWait);
  }

  /** @param {Riser[]} risers if there are too many to follow, only a new leader is marked @param {boolean} mayWait */
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

/** The text has the new score at once, and the visible digits follow. @param {Riser} riser @param {Writing} writing */
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
