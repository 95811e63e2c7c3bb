/** Requests data that changes seldom, and shows it: the ranks from which movement is measured, and the sparklines. */
import { writeMetadata } from "./client/parts.js";
import { moveWords, scaled, translate } from "./client/words.js";
import { applies, HOUR, MINUTE, rankBefore, sinceWords, SOON, startBaseline, startPoll } from "./poll.js";
/** @import { Writing } from "./client/words.js" */
/** @import { Baseline } from "./poll.js" */

/** @typedef {{start: string | null, end: string | null}} Slot */
/** @typedef {{slots: Slot[], records: {key: string, scores: number[]}[]}} Slots */

/** Until the newest slot ends, or the time of the newest point if it covers several. @param {Slots} slots @param {number} now */
export function slotsPause({ slots }, now) {
  const [before, newest] = [slots[slots.length - 2], slots[slots.length - 1]].map((slot) => [Date.parse(slot?.start ?? ""), Date.parse(slot?.end ?? "")]);
  const [length, width] = [newest[1] - newest[0], before[1] - before[0]];
  if (!length) return HOUR;
  const pause = newest[1] <= now ? Math.min(MINUTE, length) : width > length ? width - (now % width) : newest[1] - now;
  return Math.max(SOON, Math.min(HOUR, pause));
}

/**
 * The points of a sparkline, and what it shows in words. Both are empty if the member counts about as fast as usual.
 * @param {number[]} values @param {[number, number]} scale @param {string} length of the window @param {Writing} writing
 * @returns {[string, string]}
 */
function trendOf(values, scale, length, writing) {
  const points = differsClearly(values) ? trendPoints(values, scale) : "";
  const [low, high, now] = [Math.min(...values), Math.max(...values), values[values.length - 1] ?? 0].map(writing.grouped);
  return [points, points && translate("trend", { span: length, low, high, now })];
}

/** Marks rows: their movement since a baseline, and their sparklines. */
export class Trends {
  /** @type {Baseline | null} */
  #baseline = null;
  /** @type {Baseline | null | undefined} the one to compare with; null: there is none; undefined: unknown yet */
  #used;
  /** @type {Baseline | undefined} the last that `onBaseline` was called with */
  #told;
  /** @type {Map<string, [string, string]>} by member: points and words of its sparkline; at first, those of the server */
  #lines;
  #again = 0; // when the page may again request missing ranks, by `performance.now()`
  /** @type {(() => void) | undefined} hastens the first request for sparklines */
  #hastenLines;

  /**
   * @param {Pick<import("./story.js").Shown, "board" | "table" | "past">} shown @param {string} address in the API
   * @param {HTMLElement | null} since says since when movement is measured
   * @param {(baseline: Baseline) => void} [onBaseline] called once for each baseline that applies
   */
  constructor(shown, address, since, onBaseline = () => {}) {
    const { board, table } = shown;
    this.shown = shown;
    this.since = since;
    this.onBaseline = onBaseline;
    this.#lines = new Map(Array.from(table.body.rows, (row) => [row.dataset.member ?? "", lineIn(row)]));
    this.hasten = startBaseline(address, board, (baseline) => {
      this.#baseline = baseline;
      this.compare();
    });
    table.onWrite = (row, record) => this.#write(row, record);
    table.refresh(); // rows may have come before
    if (!table.shape.trends) return;
    const until = Number(table.body.closest("table")?.dataset.trends); // when the rendered lines get another point
    const pause = Math.max(0, Math.min(HOUR, until - board.now()));
    this.#hastenLines = startPoll(`${address}/slots`, (slots) => this.#takeSlots(slots), pause);
  }

  /** Compare with the baseline if it belongs to the same epoch and period, and the page does not show the past. */
  compare() {
    const { board, past, table } = this.shown;
    const baseline = this.#baseline;
    if (!past && (!baseline || board.snapshot.epoch === null)) return;
    const used = !past && baseline && applies(baseline, board.snapshot) ? baseline : null;
    const isOther = used !== this.#used;
    this.#used = used;
    if (isOther) table.refresh();
    if (past || !baseline) return;
    if (used && used !== this.#told) this.onBaseline((this.#told = used));
    if (!this.since) return;
    this.since.hidden = !used;
    if (used) this.since.textContent = translate("since", { time: sinceWords(used, board) });
  }

  /** @param {import("./client/view.js").Row} row @param {import("./client/state.js").BoardRecord} record */
  #write(row, { key: member, rank, metadata }) {
    writeMetadata(row, metadata);
    const used = this.#used;
    const { past } = this.shown;
    if (used !== undefined) showMove(row.element.cells[0].dataset, used ? moveWords(rank, rankBefore(used, member, rank)) : ["", ""]);
    if (used && !used.complete && !(member in used.ranks) && !past && performance.now() >= this.#again) {
      this.#again = performance.now() + MINUTE;
      this.hasten(); // a member may have come from far below; the next answer has its rank
    }
    const line = row.name.querySelector("polyline");
    const trend = this.#lines.get(member);
    if (line && trend) showTrend(line, ...trend);
    else if (line && !past) {
      this.#hastenLines?.(); // until the first answer, the page has only the lines that the server rendered
      this.#hastenLines = undefined;
    }
  }

  /** @param {Slots} slots */
  #takeSlots(slots) {
    const { board, table } = this.shown;
    const whole = table.body.closest("table");
    this.#hastenLines = undefined;
    const length = whole?.querySelector("[data-trend]")?.getAttribute("data-trend") ?? "";
    const ended = slots.records.map(({ key: member, scores }) => /** @type {const} */ ([member, scores.slice(0, -1)]));
    const scale = trendScale(ended.flatMap(([, values]) => values));
    this.#lines = new Map(ended.map(([member, values]) => [member, trendOf(values, scale, length, table.writing)]));
    if ([...this.#lines.values()].some(([points]) => points)) whole?.setAttribute("data-lines", "");
    table.refresh();
    return slotsPause(slots, board.now());
  }
}

/** The points of a row's sparkline, and what it shows in words. @param {Element} row @returns {[string, string]} */
function lineIn(row) {
  const line = row.querySelector("polyline");
  return [line?.getAttribute("points") ?? "", line?.parentElement?.getAttribute("aria-label") ?? ""];
}

/** @param {DOMStringMap} dataset of the element that shows it @param {[text: string, words: string]} move */
function showMove(dataset, [text, words]) {
  if ((dataset.move ?? "") === text) return;
  if (text) {
    [dataset.move, dataset.moved] = [text, words];
  } else {
    delete dataset.move;
    delete dataset.moved;
  }
}

/** @param {Element} line @param {string} points @param {string} words */
function showTrend(line, points, words) {
  if (line.getAttribute("points") === points) return;
  line.setAttribute("points", points);
  line.parentElement?.setAttribute("role", words ? "img" : "none");
  line.parentElement?.setAttribute("aria-label", words);
}

/** From the lowest value to the highest, and always with zero. @param {(number | null)[]} values @returns {[number, number]} */
export function trendScale(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value ?? 0), Math.max(high, value ?? 0)], [0, 0]);
}

/**
 * The points of a sparkline, 100 wide and 20 high. Empty with fewer than two values, or if the scale has no height.
 * @param {(number | null)[]} values null for a slot without a value
 * @param {[number, number]} [scale]
 */
export function trendPoints(values, [low, high] = trendScale(values)) {
  const known = values.filter((value) => value !== null);
  const height = high - low;
  if (known.length < 2 || height === 0) return "";
  return values
    .map((value, i) => (value === null ? "" : `${scaled(i, values.length - 1, 100)},${19 - scaled(value - low, height, 18)}`))
    .filter(Boolean)
    .join(" ");
}

/** Whether the mean of the newest values is at least a half higher or lower than usual. @param {number[]} values */
export function differsClearly(values) {
  const newest = values.slice(-Math.max(1, Math.floor(values.length / 24)));
  const mean = (/** @type {number[]} */ some) => some.reduce((sum, value) => sum + value, 0) / some.length;
  const usual = mean(values);
  return values.length > 1 && Math.abs(mean(newest) - usual) * 2 >= Math.abs(usual) && usual !== 0;
}
