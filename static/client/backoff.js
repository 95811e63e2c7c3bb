// @ts-check
/** When to try again: exponential, with full jitter, so that viewers who were cut off together come back apart. */
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
   * Milliseconds until the next try if the server named a time: not before, and a little later.
   *
   * @param {number} seconds
   */
  after(seconds) {
    return seconds * 1000 + this.random() * this.base;
  }

  /** The connection held: start over. */
  reset() {
    this.tries = 0;
  }
}
