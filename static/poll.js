/** Repeats requests for data that changes seldom, such as the ranks from which movement is measured. */
import { momentWords } from "./client/words.js";
/** @import { LiveBoard } from "./client/live-board.js" */

/**
 * @typedef {{epoch: string, period: string | null, since: string | null, ranks: Object<string, number | null>,
 *            complete: boolean, scores: Object<string, number>, rank_count: number | null, per_minute: number | null}} Baseline
 */

export const MINUTE = 60_000; // milliseconds
export const HOUR = 60 * MINUTE;
const STEP = 5 * MINUTE;
const SPREAD = 5_000; // milliseconds over which the requests of pages are spread
export const SOON = 5_000; // milliseconds between two checks whether a hidden page is shown again; also the shortest pause between two requests for sparklines

/** Until the next full five minutes, or a minute without a baseline. @param {Baseline} baseline @param {number} now */
export function baselinePause({ since }, now) {
  return since === null ? MINUTE : STEP - (now % STEP);
}

/** Whether a baseline belongs to the epoch and period of a board. @param {Baseline} baseline @param {import("./client/live-board.js").Snapshot} board */
export function applies({ since, epoch, period }, board) {
  return since !== null && epoch === board.epoch && period === (board.period ?? null);
}

/** The rank of a member in a baseline; undefined without a record. @param {Pick<Baseline, "ranks" | "complete">} baseline @param {string} member @param {number} now its rank now, as which one counts that the baseline does not know */
export function rankBefore({ ranks, complete }, member, now) {
  return complete || member in ranks ? (ranks[member] ?? undefined) : now;
}

/** When a baseline was taken, in words. @param {Baseline} baseline @param {LiveBoard} board */
export function sinceWords({ since }, board) {
  const time = Date.parse(since ?? "");
  return momentWords(time - (time % MINUTE), board.now());
}

/** Repeat the request for the baseline of a board. @param {string} address @param {LiveBoard} board @param {(baseline: Baseline) => void} take */
export function startBaseline(address, board, take) {
  return startPoll(`${address}/baseline`, (baseline) => {
    for (const part of [baseline.ranks, baseline.scores]) Object.setPrototypeOf(part, null); // members may have any name
    take(baseline);
    return baselinePause(baseline, board.now());
  });
}

/**
 * Repeat a request, except while the page is hidden. Returns a function that requests soon, after a random pause.
 * @param {string} address @param {(answer: any) => number} take returns the next pause @param {number} [pause] the first
 */
export function startPoll(address, take, pause = 0) {
  let timer = 0;
  let asked = 0; // how many requests were made; only the answer to the last request counts
  const wait = (/** @type {number} */ time) => {
    clearTimeout(timer);
    timer = setTimeout(() => void ask(), time + Math.random() * SPREAD); // many pages may ask at the same time
  };
  const ask = async () => {
    if (document.hidden) return wait(SOON);
    const number = (asked += 1);
    let next = MINUTE;
    try {
      const response = await fetch(address);
      const answer = await response.json();
      if (number !== asked || answer.code === "board_not_found") return;
      if (response.ok) next = take(answer);
    } catch {
      // if there is no network, the state of the board's connection says so
    }
    if (number === asked) wait(next);
  };
  wait(pause);
  return () => wait(0);
}
