// @ts-check
/** Requests data that changes seldom, and shows it: the ranks from which movement is measured, and the sparklines. */
import { say } from "./client/stories.js";
import { momentWords } from "./client/words.js";
import { Marks } from "./marks.js";
import { baselinePause, HOUR, MINUTE, Poll, Ranks, SOON } from "./poll.js";
import { differsClearly, trendPoints, trendScale, trendWords } from "./sparkline.js";

/**
 * @typedef {import("./poll.js").Baseline} Baseline
 * @typedef {{slots: {start: string | null, end: string | null}[],
 *            records: {key: string, scores: number[]}[]}} Slots
 */


/**
 * Milliseconds until sparklines get another point. A point is added when the newest slot ends. If a point covers
 * several slots, the next point is added when the time of the newest point has passed.
 *
 * @param {Slots} slots
 * @param {number} now
 */
export function slotsPause({ slots }, now) {
  const [before, newest] = [slots[slots.length - 2], slots[slots.length - 1]].map((slot) => [Date.parse(slot?.start ?? ""), Date.parse(slot?.end ?? "")]);
  const [length, width] = [newest[1] - newest[0], before[1] - before[0]];
  if (!length) return HOUR;
  const pause = newest[1] <= now ? Math.min(MINUTE, length) : width > length ? width - (now % width) : newest[1] - now;
  return Math.max(SOON, Math.min(HOUR, pause));
}

/**
 * The points of a sparkline, and what it shows in words. Both are empty if the member counts about as fast as usual.
 *
 * @param {number[]} values of the slots that have ended
 * @param {[number, number]} scale
 * @param {string} length of the window, in words
 * @param {import("./client/words.js").Writing} writing
 * @returns {[string, string]}
 */
function trendOf(values, scale, length, writing) {
  const points = differsClearly(values) ? trendPoints(values, scale) : "";
  return [points, points && trendWords(length, values, writing)];
}

export class Trends {
  /** @type {Baseline | null} */
  #baseline = null;
  /** @type {Baseline | null} */
  #told = null;
  /** @type {Ranks | undefined} */
  #ranks;
  #again = 0; // when the page may again request missing ranks, by `performance.now()`
  /** @type {Map<string, number>} */
  #scores = new Map();

  /**
   * @param {Pick<import("./story.js").Shown, "board" | "table" | "past">} shown
   * @param {string} address of the board in the API
   * @param {HTMLElement | null} since says since when movement is measured
   * @param {(baseline: Baseline, scores: Map<string, number>) => void} [onBaseline] called once for each baseline that applies
   */
  constructor(shown, address, since, onBaseline = () => {}) {
    this.shown = shown;
    const { table } = shown;
    this.marks = new Marks(table);
    this.since = since;
    this.onBaseline = onBaseline;
    const baselines = new Poll(() => `${address}/baseline`, (baseline) => this.#takeBaseline(baseline));
    // A member may have come from far below. The next answer has its rank.
    this.marks.onUnknown = () => {
      if (shown.past || performance.now() < this.#again) return;
      this.#again = performance.now() + MINUTE;
      baselines.hasten();
    };
    if (!table.shape.trends) return;
    const until = Number(table.body.closest("table")?.dataset.trends); // when the rendered lines get another point
    const pause = Math.max(0, Math.min(HOUR, until - shown.board.now()));
    const poll = new Poll(() => `${address}/slots`, (slots) => this.#takeSlots(slots), pause);
    // Until the first answer, the page has only the lines that the server rendered. A row without a line hastens the
    // request.
    this.marks.onLineless = () => {
      if (shown.past) return;
      this.marks.onLineless = undefined;
      poll.hasten();
    };
  }

  /** Compare with the baseline if it belongs to the same epoch and period, and the page does not show the past. */
  compare() {
    const { board, past } = this.shown;
    if (past) return this.marks.compare(null);
    const [baseline, { epoch, period }] = [this.#baseline, board.snapshot];
    if (!baseline || epoch === null) return;
    const fits = baseline.since !== null && baseline.epoch === epoch && baseline.period === (period ?? null);
    this.marks.compare((fits && this.#ranks) || null);
    if (fits && this.#told !== baseline) this.onBaseline((this.#told = baseline), this.#scores);
    if (!this.since) return;
    this.since.hidden = !fits;
    const since = Date.parse(baseline.since ?? "");
    if (since) this.since.textContent = say("since", { time: momentWords(since - (since % MINUTE), this.shown.board.now()) });
  }

  /** @param {Baseline} baseline */
  #takeBaseline(baseline) {
    this.#baseline = baseline;
    this.#ranks = new Ranks(baseline);
    this.#scores = new Map(Object.entries(baseline.scores));
    this.compare();
    return baselinePause(baseline, this.shown.board.now());
  }

  /** @param {Slots} slots */
  #takeSlots(slots) {
    this.marks.onLineless = undefined;
    const length = this.shown.table.body.parentElement?.querySelector("[data-trend]")?.getAttribute("data-trend") ?? "";
    const ended = slots.records.map(({ key, scores }) => /** @type {const} */ ([key, scores.slice(0, -1)]));
    const scale = trendScale(ended.flatMap(([, values]) => values));
    this.marks.setTrends(new Map(ended.map(([key, values]) => [key, trendOf(values, scale, length, this.shown.table.writing)])));
    return slotsPause(slots, this.shown.board.now());
  }
}
