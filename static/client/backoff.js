/** Exponential back-off with full jitter, so that viewers that were disconnected together do not return together. */
const RESTART = 60_000; // milliseconds after the first failure; a server that restarts is back by then
const RESTART_PAUSE = 5_000; // milliseconds; the longest pause during this time

export class Backoff {
  #rounds = 0;
  #since = 0; // the time of the first failure

  /** @param {{base?: number, cap?: number, random?: () => number, now?: () => number}} [options] base and cap in milliseconds */
  constructor({ base = 500, cap = 20_000, random = Math.random, now = Date.now } = {}) {
    this.base = base;
    this.cap = cap;
    this.random = random;
    this.now = now;
  }

  /** Milliseconds until the next try. @param {boolean} [isRound] whether each transport has been tried */
  next(isRound = true) {
    this.#since ||= this.now();
    const cap = this.now() - this.#since < RESTART ? Math.min(this.cap, RESTART_PAUSE) : this.cap;
    const longest = Math.min(cap, this.base * 2 ** this.#rounds);
    if (isRound) this.#rounds++;
    return this.random() * longest;
  }

  /** The same if the server asks clients to wait: the time that it names, plus some jitter. @param {number} seconds */
  after(seconds) {
    return seconds * 1000 + this.random() * this.base;
  }

  /** Start over, once a connection is stable. */
  reset() {
    this.#rounds = this.#since = 0;
  }
}
