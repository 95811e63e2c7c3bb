// @ts-check
/** Repeats requests for data that changes seldom, such as the ranks from which movement is measured. */

/**
 * @typedef {{epoch: string, period: string | null, since: string | null, ranks: Object<string, number | null>,
 *            complete: boolean, scores: Object<string, number>, rank_count: number | null, per_minute: number | null}} Baseline
 */

export const MINUTE = 60_000; // milliseconds
export const HOUR = 60 * MINUTE;
const STEP = 5 * MINUTE;
const SPREAD = 5_000; // milliseconds over which the requests of pages are spread
export const SOON = 5_000; // milliseconds between two checks whether a hidden page is shown again; also the shortest pause between two requests for sparklines

/**
 * Milliseconds until the next request for the baseline: until the next full five minutes, or a minute if there is none
 * yet.
 *
 * @param {Baseline} baseline
 * @param {number} now
 */
export function baselinePause({ since }, now) {
  return since === null ? MINUTE : STEP - (now % STEP);
}

/** The ranks of members in a baseline. */
export class Ranks {
  /** @param {Pick<Baseline, "ranks" | "complete">} baseline */
  constructor({ ranks, complete }) {
    this.ranks = new Map(Object.entries(ranks));
    this.complete = complete;
  }

  /** @param {string} key */
  knows(key) {
    return this.complete || this.ranks.has(key);
  }

  /**
   * The rank of a member then; undefined if it had no record. If the baseline does not know it, the rank is as now, so
   * that no movement is shown.
   *
   * @param {string} key
   * @param {number} now its present rank
   */
  before(key, now) {
    return this.knows(key) ? (this.ranks.get(key) ?? undefined) : now;
  }
}

/** Repeats a request. `take` chooses the pause from each answer. Nothing is requested while the page is hidden. */
export class Poll {
  #timer = 0;
  #asked = 0; // how many requests were made; only the answer to the last request counts

  /**
   * @param {() => string} address
   * @param {(answer: any) => number} take returns the pause in milliseconds
   * @param {number} [pause] before the first request
   */
  constructor(address, take, pause = 0) {
    this.address = address;
    this.take = take;
    this.#wait(pause);
  }

  /** @param {number} pause */
  #wait(pause) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.ask(), pause + Math.random() * SPREAD);
  }

  /** Request soon, after a random pause, because many pages may do so at the same time. */
  hasten() {
    this.#wait(0);
  }

  /** Request now. */
  async ask() {
    clearTimeout(this.#timer);
    if (document.hidden) return this.#wait(SOON);
    const number = (this.#asked += 1);
    let pause = MINUTE;
    try {
      const response = await fetch(this.address());
      const answer = await response.json();
      if (number !== this.#asked || answer.code === "board_not_found") return;
      if (response.ok) pause = this.take(answer);
    } catch {
      // if there is no network, the state of the board's connection says so
    }
    if (number === this.#asked) this.#wait(pause);
  }
}
