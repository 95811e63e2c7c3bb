// @ts-check
/** Exponential back-off with full jitter, so that viewers that were disconnected together do not return together. */
export class Backoff {
  /** @param {{base?: number, cap?: number, random?: () => number}} [options] base and cap in milliseconds */
  constructor({ base = 500, cap = 20_000, random = Math.random } = {}) {
    this.base = base;
    this.cap = cap;
    this.random = random;
    this.tries = 0;
  }

  /** Milliseconds until the next try. */
  next() {
    return this.random() * Math.min(this.cap, this.base * 2 ** this.tries++);
  }

  /**
   * Milliseconds until the next try if the server asks for a number of seconds: at least that, plus some jitter.
   *
   * @param {number} seconds
   */
  after(seconds) {
    return seconds * 1000 + this.random() * this.base;
  }

  /** Start over, once a connection is stable. */
  reset() {
    this.tries = 0;
  }
}
