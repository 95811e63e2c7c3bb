// @ts-check
/** Computes how fast scores change. This module uses no DOM. */
import { HOUR, MINUTE } from "./poll.js";

/**
 * @typedef {import("./client/stories.js").Place} Place
 * @typedef {{at: number, scores: Map<string, number>}} Sample the scores of members at a time
 */

const SAMPLE = 30_000; // milliseconds between two samples
const LEAST_SPAN = 5 * MINUTE; // the shortest time over which a pace is measured, in milliseconds
const SPAN = 10 * MINUTE; // the time over which a pace is measured once scores are known for so long

/** The scores of a board at some times of the last minutes. */
export class Paces {
  /** @type {Sample[]} the newest first */
  #samples = [];

  /**
   * Record the scores of a time. Present scores are recorded every half minute.
   *
   * @param {number} at
   * @param {Map<string, number>} scores
   */
  note(at, scores) {
    const samples = this.#samples;
    const place = samples.findIndex((sample) => sample.at <= at);
    samples.splice(place < 0 ? samples.length : place, 0, { at, scores });
    const old = samples.findIndex((sample) => samples[0].at - sample.at > 2 * SPAN);
    if (old >= 0) samples.length = old + 1; // one older sample stays, so that a pace over `SPAN` can be measured
  }

  /** @param {number} now */
  isDue(now) {
    return now - (this.#samples[0]?.at ?? -Infinity) >= SAMPLE;
  }

  forget() {
    this.#samples = [];
  }

  /**
   * By how much a score changes per hour, measured over ten minutes or more. If scores are not known for so long, it is
   * measured over at least five minutes. It is undefined if they are known for less.
   *
   * @param {Place} member
   * @param {number} now
   */
  of({ key, score }, now) {
    const known = this.#samples.filter(({ at, scores }) => now - at >= LEAST_SPAN && scores.has(key));
    const then = known.find(({ at }) => now - at >= SPAN) ?? known[known.length - 1];
    return then && Math.floor(((score - (then.scores.get(key) ?? 0)) * HOUR) / (now - then.at) + 0.5);
  }

}
