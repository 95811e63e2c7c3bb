// @ts-check
/** Shows a board in the table that the server rendered; rows that change places move there. */

/** @typedef {import("./state.js").Board} Board */
/** @typedef {import("./state.js").BoardRecord} BoardRecord */

const MOVE = { duration: 350, easing: "cubic-bezier(.2, .8, .2, 1)" };
const FLASH = { duration: 900, easing: "ease-out" };
const number = new Intl.NumberFormat("en");
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class BoardView {
  /** @param {Document} page */
  constructor(page) {
    this.body = /** @type {HTMLTableSectionElement} */ (page.getElementById("records"));
    this.rankCount = /** @type {HTMLElement} */ (page.getElementById("rank-count"));
    this.totalScore = /** @type {HTMLElement} */ (page.getElementById("total-score"));
    this.empty = /** @type {HTMLElement} */ (page.getElementById("empty"));
    /** @type {Map<string, HTMLTableRowElement>} */
    this.rows = new Map();
    for (const row of this.body.rows) this.rows.set(row.dataset.key ?? "", row);
  }

  /** @param {Board} board */
  show(board) {
    this.rankCount.textContent = number.format(board.rankCount);
    this.totalScore.textContent = board.totalScore === null ? "–" : number.format(board.totalScore);
    this.empty.hidden = board.records.length > 0;
    const before = calm.matches ? null : this.tops();
    this.drop(board.records);
    board.records.forEach((record, index) => this.place(record, index));
    if (before) this.glide(before);
  }

  /** Where each row is on the screen, moves under way counted in. */
  tops() {
    return new Map([...this.rows].map(([key, row]) => [key, row.getBoundingClientRect().top]));
  }

  /** @param {BoardRecord[]} records */
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
  place(record, index) {
    let row = this.rows.get(record.key);
    if (!row) {
      row = newRow(record.key);
      this.rows.set(record.key, row);
    }
    write(row.cells[0], number.format(record.rank));
    if (write(row.cells[2], number.format(record.score)) && row.isConnected && !calm.matches) {
      row.cells[2].animate([{ backgroundColor: "var(--flash)" }, { backgroundColor: "transparent" }], FLASH);
    }
    const there = this.body.rows[index] ?? null;
    if (there !== row) this.body.insertBefore(row, there);
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

/** @param {string} key */
function newRow(key) {
  const row = document.createElement("tr");
  row.dataset.key = key;
  const name = document.createElement("th");
  name.scope = "row";
  name.append(document.createElement("bdi"));
  /** @type {Element} */ (name.firstChild).textContent = key;
  row.append(cell("rank"), name, cell("score"));
  return row;
}

/** @param {string} kind */
function cell(kind) {
  const made = document.createElement("td");
  made.className = kind;
  return made;
}

/**
 * @param {HTMLElement} element
 * @param {string} text
 * @returns {boolean} whether it was another text before
 */
function write(element, text) {
  if (element.textContent === text) return false;
  element.textContent = text;
  return true;
}
