// @ts-check
/** Shows a board in the table that the server rendered; rows that change places move there. */

import { grouped, metadataWords, periodWords, placeWords } from "./words.js";

/** @typedef {import("./client/state.js").Board} Board */
/** @typedef {import("./client/state.js").BoardRecord} BoardRecord */

const MOVE = { duration: 350, easing: "cubic-bezier(.2, .8, .2, 1)" };
const FLASH = { duration: 900, easing: "ease-out" };
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class BoardView {
  /**
   * @param {Document} page
   * @param {string} [tail] what sets the ids of this board apart from those of others on the page
   */
  constructor(page, tail = "") {
    const part = (/** @type {string} */ name) => page.getElementById(name + tail);
    this.body = /** @type {HTMLTableSectionElement} */ (part("records"));
    this.rankCount = /** @type {HTMLElement} */ (part("rank-count"));
    this.totalScore = part("total-score"); // boards whose scores are no amounts have none
    this.viewers = part("viewers");
    this.place = part("place"); // of the key that the page was asked for with
    this.period = /** @type {HTMLElement} */ (part("period"));
    this.previous = part("board")?.querySelector("a[rel=prev]");
    this.empty = /** @type {HTMLElement} */ (part("empty"));
    const table = /** @type {HTMLTableElement} */ (this.body.parentElement);
    /** The fields that the scores are made of, each in a column; none where the score itself is shown. */
    this.fields = Array.from(table.tHead?.rows[0].cells ?? []).flatMap((cell) => cell.dataset.field ?? []);
    /** @type {Map<string, HTMLTableRowElement>} */
    this.rows = new Map();
    for (const row of this.body.rows) this.rows.set(row.dataset.key ?? "", row);
  }

  /** @param {Board} board */
  show(board) {
    write(this.rankCount, grouped(board.rankCount));
    if (this.totalScore) write(this.totalScore, grouped(board.totalScore));
    this.turn(board.period);
    this.empty.hidden = board.records.length > 0;
    const before = calm.matches ? null : this.tops();
    this.drop(board.records);
    board.records.forEach((record, index) => this.put(record, index));
    if (before) this.glide(before);
  }

  /** @param {number} count */
  showViewers(count) {
    if (this.viewers) write(this.viewers, grouped(count));
  }

  /** @param {import("./client/state.js").Around} around */
  showPlace(around) {
    const [rank, gap] = this.place?.children ?? [];
    if (!rank) return;
    const words = placeWords(around.rank, this.fields.length ? null : around.gap);
    write(rank, words[0]);
    write(gap, words[1]);
  }

  /**
   * Tell the period that is shown, which is another one when it has turned.
   *
   * @param {string | undefined} name
   */
  turn(name) {
    const { unit, zone } = this.period.dataset;
    if (!name || !unit || !zone) return;
    write(this.period, periodWords(unit, name, zone));
    this.previous?.removeAttribute("hidden");
  }

  /** Where each row is on the screen, moves under way counted in. */
  tops() {
    return new Map([...this.rows].map(([key, row]) => [key, row.getBoundingClientRect().top]));
  }

  /** @param {readonly BoardRecord[]} records */
  drop(records) {
    const staying = new Set(records.map((record) => record.key));
    for (const [key, row] of this.rows) {
      if (staying.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
  }

  /**
   * @param {BoardRecord} record
   * @param {number} index
   */
  put(record, index) {
    let row = this.rows.get(record.key);
    if (!row) {
      row = newRow(record.key, this.fields.length || 1);
      this.rows.set(record.key, row);
    }
    write(row.cells[0], grouped(record.rank));
    describe(row.cells[1], metadataWords(record.metadata));
    this.values(record).forEach((value, column) => {
      const cell = row.cells[2 + column];
      if (write(cell, grouped(value)) && row.isConnected && !calm.matches) {
        cell.animate([{ backgroundColor: "var(--flash)" }, { backgroundColor: "transparent" }], FLASH);
      }
    });
    const there = this.body.rows[index] ?? null;
    if (there !== row) this.body.insertBefore(row, there);
  }

  /**
   * What stands in the columns after the name.
   *
   * @param {BoardRecord} record
   * @returns {(number | null)[]}
   */
  values(record) {
    return this.fields.length ? this.fields.map((field) => record.fields?.[field] ?? null) : [record.score];
  }

  /**
   * Let each row start where it was and move to where it is (FLIP: first, last, invert, play).
   *
   * @param {Map<string, number>} before
   */
  glide(before) {
    for (const [key, row] of this.rows) {
      const from = before.get(key);
      if (from === undefined) {
        row.animate([{ opacity: 0 }, { opacity: 1 }], MOVE);
        continue;
      }
      for (const moving of row.getAnimations()) moving.cancel();
      const by = from - row.getBoundingClientRect().top;
      row.style.zIndex = by > 0 ? "1" : ""; // who rises passes in front
      if (by) row.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], MOVE);
    }
  }
}

/**
 * @param {string} key
 * @param {number} columns how many there are after the name
 */
function newRow(key, columns) {
  const row = document.createElement("tr");
  row.dataset.key = key;
  const name = document.createElement("th");
  name.scope = "row";
  name.append(isolated(key));
  row.append(cell("rank"), name, ...Array.from({ length: columns }, () => cell("score")));
  return row;
}

/**
 * Put a small line about a record under its name, or take it away.
 *
 * @param {HTMLElement} name
 * @param {string[]} parts
 */
function describe(name, parts) {
  const held = name.querySelector(".about");
  if ((held?.textContent ?? "") === parts.join(" · ")) return;
  held?.remove();
  if (!parts.length) return;
  const line = document.createElement("small");
  line.className = "about";
  parts.forEach((part, place) => line.append(place ? " · " : "", isolated(part)));
  name.append(line);
}

/**
 * Text that keeps its direction to itself.
 *
 * @param {string} text
 */
function isolated(text) {
  const made = document.createElement("bdi");
  made.textContent = text;
  return made;
}

/** @param {string} kind */
function cell(kind) {
  const made = document.createElement("td");
  made.className = kind;
  return made;
}

/**
 * @param {Element} element
 * @param {string} text
 * @returns {boolean} whether it was another text before
 */
function write(element, text) {
  if (element.textContent === text) return false;
  element.textContent = text;
  return true;
}
