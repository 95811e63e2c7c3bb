// @ts-check
/** Draws what rows show besides records: movement and sparkline. */
import { moveWords } from "./client/words.js";

/**
 * @typedef {import("./client/view.js").TableView} TableView
 * @typedef {import("./poll.js").Ranks} Ranks
 * @typedef {Parameters<NonNullable<TableView["onWrite"]>>} Written
 * @typedef {{rank: number, ranks?: Ranks | null, line: Element | null, points: string}} Drawn what a row shows, and in
 *   which element. The page is read once for each row; after that, only changes are written
 */

export class Marks {
  /** @type {Ranks | null | undefined} ranks to compare with; null: there are none; undefined: unknown yet */
  #ranks;
  /**
   * @type {Map<string, [string, string]>} by member: the points of its sparkline, and what they show in words; at first,
   * those that the server rendered
   */
  #trends;
  /**
   * @type {(() => void) | undefined} called for each row that is drawn without a sparkline, because `#trends` lacks it
   */
  onLineless;
  /** @type {(() => void) | undefined} called for each row that is drawn without its rank in the baseline */
  onUnknown;
  /** @type {WeakMap<Written[0], Drawn>} */
  #drawn = new WeakMap();

  /** @param {TableView} table */
  constructor(table) {
    this.table = table;
    this.#trends = new Map([...table.body.rows].map((row) => [row.dataset.key ?? "", lineIn(row)]));
    table.onWrite = (row, record) => this.#write(row, record);
  }

  /**
   * Show how records have moved since they had these ranks.
   *
   * @param {Ranks | null} ranks
   */
  compare(ranks) {
    if (ranks === this.#ranks) return;
    this.#ranks = ranks;
    this.table.refresh();
  }

  /** @param {Map<string, [string, string]>} trends */
  setTrends(trends) {
    this.#trends = trends;
    if ([...trends.values()].some(([points]) => points)) this.table.body.closest("table")?.setAttribute("data-lines", "");
    this.table.refresh();
  }

  /** @param {Written} written */
  #write(...[row, record]) {
    const { name, element } = row;
    let drawn = this.#drawn.get(row);
    if (!drawn) this.#drawn.set(row, (drawn = drawnIn(name)));
    const { line } = drawn;
    const ranks = this.#ranks;
    if (ranks !== undefined && (drawn.rank !== record.rank || drawn.ranks !== ranks)) {
      [drawn.rank, drawn.ranks] = [record.rank, ranks];
      showMove(element.cells[0].dataset, ranks ? moveWords(record.rank, ranks.before(record.key, record.rank)) : ["", ""]);
    }
    if (ranks && !ranks.knows(record.key)) this.onUnknown?.();
    const trend = this.#trends.get(record.key);
    if (line && !trend) this.onLineless?.();
    else if (line && trend && trend[0] !== drawn.points) showTrend(line, (drawn.points = trend[0]), trend[1]);
  }
}

/**
 * Read what a row shows before anything is written.
 *
 * @param {Element} name
 * @returns {Drawn}
 */
function drawnIn(name) {
  const line = name.querySelector("polyline");
  return { rank: 0, line, points: line?.getAttribute("points") ?? "" };
}

/**
 * The points of a row's sparkline, and what it shows in words.
 *
 * @param {Element} row
 * @returns {[string, string]}
 */
function lineIn(row) {
  const line = row.querySelector("polyline");
  return [line?.getAttribute("points") ?? "", line?.parentElement?.getAttribute("aria-label") ?? ""];
}

/**
 * Say how a member has moved.
 *
 * @param {DOMStringMap} dataset of the element that shows it
 * @param {[text: string, words: string]} move the text to see and the words to hear; empty if the member has not moved
 */
export function showMove(dataset, [text, words]) {
  if ((dataset.move ?? "") === text) return;
  if (text) {
    [dataset.move, dataset.moved] = [text, words];
  } else {
    delete dataset.move;
    delete dataset.moved;
  }
}

/**
 * @param {Element} line
 * @param {string} points
 * @param {string} words
 */
function showTrend(line, points, words) {
  line.setAttribute("points", points);
  line.parentElement?.setAttribute("role", words ? "img" : "none");
  line.parentElement?.setAttribute("aria-label", words);
}
