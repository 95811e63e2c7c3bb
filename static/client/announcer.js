/** Announces the latest news to screen readers through one live region, at most every ten seconds. */
const SPEECH_REST = 10_000;

export class Announcer {
  #spokeAt = -Infinity;
  #timer = 0;

  /** @param {HTMLElement | null} region */
  constructor(region) {
    this.region = region;
  }

  /** @param {string} text */
  announce = (text) => {
    clearTimeout(this.#timer);
    const speak = () => {
      this.#spokeAt = performance.now();
      if (this.region) this.region.textContent = text;
    };
    const pause = this.#spokeAt + SPEECH_REST - performance.now();
    if (pause <= 0) speak();
    else this.#timer = setTimeout(speak, pause);
  };
}
