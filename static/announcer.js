// @ts-check
/** Announces the latest news to screen readers through one live region, at most every ten seconds. */
const SPEECH_REST = 10_000;

export class Announcer {
  #spokeAt = -Infinity;
  #timer = 0;
  #next = "";

  /** @param {HTMLElement | null} region */
  constructor(region) {
    this.region = region;
  }

  /** @param {string} text */
  announce = (text) => {
    this.#next = text;
    clearTimeout(this.#timer);
    const pause = this.#spokeAt + SPEECH_REST - performance.now();
    if (pause <= 0) this.#speak();
    else this.#timer = setTimeout(() => this.#speak(), pause);
  };

  #speak() {
    this.#spokeAt = performance.now();
    if (this.region) this.region.textContent = this.#next;
  }
}
