// @ts-check
/** Computes how fast scores change, and which change is expected next. This module uses no DOM. */
import { HOUR, MINUTE } from "./poll.js";

/**
 * @typedef {import("./client/stories.js").Place} Place
 * @typedef {{at: number, scores: Map<string, number>}} Sample the scores of members at a time
 */

const SAMPLE = 30_000; // milliseconds between two samples
const LEAST_SPAN = 5 * MINUTE; // the shortest time over which a pace is measured, in milliseconds
const SPAN = 10 * MINUTE; // the time over which a pace is measured once scores are known for so long; a prediction needs a steady pace over it
const PARTS = 4; // parts of `SPAN`; a steady pace is about the same in each
const FURTHEST = 60; // minutes within which a change is predicted
const FIGHTERS = 10; // records among which the closest two are looked for
const MOST_PAIRS = 200; // pairs of members whose changes of order are counted
const LEAST_RATE_SPAN = 10_000; // the shortest time over which a rate is measured, in milliseconds

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
    const then = known.find(({ at }) => now - at >= SPAN) ?? known.at(-1);
    return then && Math.floor(((score - (then.scores.get(key) ?? 0)) * HOUR) / (now - then.at) + 0.5);
  }

  /**
   * The pace of a member if it was about the same in each part of the last ten minutes, otherwise undefined.
   *
   * @param {Place} member
   * @param {number} now
   */
  #steady({ key, score }, now) {
    const ends = [{ at: now, score }];
    for (let part = 1; part <= PARTS; part++) {
      const sample = this.#samples.find(({ at, scores }) => at <= now - (part * SPAN) / PARTS && scores.has(key));
      if (!sample || now - sample.at > (part * SPAN) / PARTS + 2 * SAMPLE) return undefined; // the page did not watch then
      ends.push({ at: sample.at, score: sample.scores.get(key) ?? 0 });
    }
    const pace = (/** @type {number} */ from, /** @type {number} */ to) => ((ends[to].score - ends[from].score) * HOUR) / (ends[to].at - ends[from].at);
    const whole = pace(PARTS, 0);
    const isSteady = ends.every((_, part) => part === 0 || Math.abs(pace(part, part - 1) - whole) <= Math.abs(whole) / 2);
    return isSteady ? whole : undefined;
  }

  /**
   * In how many minutes a member reaches the member above, if both keep the steady pace of the last ten minutes.
   * Undefined if one of them has no steady pace, or the member needs more than an hour.
   *
   * @param {Place} member
   * @param {Place} above
   * @param {number} now
   */
  passes(member, above, now) {
    const gap = above.score - member.score;
    const [own, other] = gap ? [this.#steady(member, now), this.#steady(above, now)] : [];
    if (own === undefined || other === undefined) return undefined;
    const minutes = (gap / (own - other)) * 60;
    return minutes > 0 && minutes <= FURTHEST ? Math.ceil(minutes) : undefined;
  }

  /**
   * Whether the score of one of two neighbours changes by at least their difference within a minute.
   *
   * @param {Place} member
   * @param {Place} above
   * @param {number} now
   */
  isDuel(member, above, now) {
    const paces = [member, above].map((one) => Math.abs(this.of(one, now) ?? 0));
    return Math.abs(above.score - member.score) * 60 <= Math.max(...paces) && Math.max(...paces) > 0;
  }
}

/**
 * Of the first records, the two neighbours whose scores are closest. If several pairs are equally close, the first pair.
 *
 * @param {readonly Place[]} records
 * @returns {[Place, Place] | undefined}
 */
export function closest(records) {
  let least = Infinity;
  let found;
  for (let index = 1; index < Math.min(FIGHTERS, records.length); index++) {
    const gap = Math.abs(records[index - 1].score - records[index].score);
    if (gap < least) [least, found] = [gap, index];
  }
  return found === undefined ? undefined : [records[found - 1], records[found]];
}

/** How often neighbours among the first records have passed each other in the last hour. */
export class Fights {
  /** @type {Map<string, number>} ranks before */
  #before = new Map();
  /** @type {Map<string, number[]>} by pair of members: the times when one of them passed the other */
  #times = new Map();

  /**
   * @param {readonly Place[]} records
   * @param {number} now
   */
  note(records, now) {
    const before = this.#before;
    const places = new Map(records.slice(0, FIGHTERS).map(({ key }, index) => [key, index]));
    const keys = [...places.keys()];
    keys.forEach((key, index) => {
      for (const other of keys.slice(index + 1)) {
        const [was, otherWas] = [before.get(key), before.get(other)];
        if (was !== undefined && otherWas !== undefined && was > otherWas) this.#add(pairOf(key, other), now);
      }
    });
    this.#before = places;
  }

  /**
   * @param {string} pair
   * @param {number} now
   */
  #add(pair, now) {
    const times = [...this.#recent(pair, now), now];
    this.#times.delete(pair); // so the newest pair comes last
    this.#times.set(pair, times);
    const [oldest] = this.#times.keys();
    if (this.#times.size > MOST_PAIRS) this.#times.delete(oldest);
  }

  /**
   * @param {string} pair
   * @param {number} now
   */
  #recent(pair, now) {
    return (this.#times.get(pair) ?? []).filter((at) => now - at < HOUR);
  }

  /**
   * @param {string} key
   * @param {string} other
   * @param {number} now
   */
  changes(key, other, now) {
    return this.#recent(pairOf(key, other), now).length;
  }
}

/**
 * @param {string} key
 * @param {string} other
 */
function pairOf(key, other) {
  return JSON.stringify([key, other].sort());
}

/** How much a board counts in a minute: the increases of its total. Decreases are ignored. */
export class Rate {
  /** @type {number | null} */
  #total = null;
  #began = 0;
  /** @type {{at: number, by: number}[]} increases of the last minute */
  #gains = [];

  /**
   * @param {number | null} total
   * @param {number} now
   */
  note(total, now) {
    if (total === null) return;
    if (this.#total === null) this.#began = now;
    else if (total > this.#total) this.#gains.push({ at: now, by: total - this.#total });
    this.#total = total;
  }

  /** Begin again after a pause, because nobody knows when the amounts of the pause were counted. */
  forget() {
    this.#total = null;
    this.#gains = [];
  }

  /**
   * How much was counted in the last minute. Null during the first ten seconds.
   *
   * @param {number} now
   */
  perMinute(now) {
    const span = Math.min(MINUTE, now - this.#began);
    if (this.#total === null || span < LEAST_RATE_SPAN) return null;
    const recent = this.#gains.findIndex(({ at }) => now - at < span);
    this.#gains = recent < 0 ? [] : this.#gains.slice(recent);
    return Math.round((this.#gains.reduce((sum, { by }) => sum + by, 0) * MINUTE) / span);
  }
}
