// @ts-check
/**
 * When to try again: exponential, with full jitter, so that viewers cut off together do not come back together.
 * Source: M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
 */
export class Backoff {
  /**
   * @param {{base?: number, cap?: number, random?: () => number}} [options] base and cap in milliseconds
   */
  constructor({ base = 500, cap = 20_000, random = Math.random } = {}) {
    this.base = base;
    this.cap = cap;
    this.random = random;
    this.tries = 0;
  }

  /** Milliseconds until the next try. */
  next() {
    const most = Math.min(this.cap, this.base * 2 ** this.tries);
    this.tries += 1;
    return this.random() * most;
  }

  /**
   * Milliseconds until the next try when the server has said when to come back: not before, and a little later.
   *
   * @param {number} seconds
   */
  after(seconds) {
    return seconds * 1000 + this.random() * this.base;
  }

  /** The connection has held: begin anew with the next cut. */
  reset() {
    this.tries = 0;
  }
}
