// @ts-check
/** How often a view draws: with every change, or less often while frames take long. */
const BEATS = [0, 120, 180, 400]; // milliseconds between two draws
const SLOW = 2; // from this index of `BEATS` on, only a new leader moves
const CALM_BEAT = 1000; // milliseconds between two draws if the user asks for reduced motion
const HEAVY = 35; // milliseconds that a frame with a draw may take
const QUIET = 5000; // milliseconds without heavy frames after which the beat is faster again
const WEIGHT = 1 / 6; // the weight of the last frame in the average
const calm = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)");

export class Beat {
  #step = 0;
  #mean = 0;
  #slowedAt = -Infinity;

  /** Whether the user asks for reduced motion. */
  get isCalm() {
    return calm?.matches;
  }

  /** Whether frames took so long that movement has to be reduced. */
  get isSlow() {
    return this.#step >= SLOW;
  }

  /** The minimum time between two draws, in milliseconds. */
  get pause() {
    return this.isCalm ? CALM_BEAT : BEATS[this.#step];
  }

  /**
   * Note how long a frame with a draw took, with everything that the browser did for it.
   *
   * @param {number} now
   * @param {number} cost in milliseconds
   */
  note(now, cost) {
    this.#mean += (cost - this.#mean) * WEIGHT;
    if (this.#mean > HEAVY) {
      if (this.#step < BEATS.length - 1) this.#mean /= 2; // so that the slower beat is measured first
      this.#step = Math.min(this.#step + 1, BEATS.length - 1);
      this.#slowedAt = now;
    } else if (this.#step && now - this.#slowedAt > QUIET) {
      this.#slowedAt = now;
      this.#step--;
    }
  }
}
