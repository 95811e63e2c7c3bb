// @ts-check
/** Shows the state of the connection of a board in words, and lets people connect now. */
import { stateWords } from "./client/words.js";

/** Shows the state of one board. A countdown continues while nothing else happens. */
export class StatusView {
  #timer = 0;

  /**
   * @param {import("./client/live-board.js").LiveBoard} board
   * @param {HTMLElement} section of the board
   * @param {{status: HTMLElement, retry: HTMLElement, announce: (text: string) => void}} parts
   */
  constructor(board, section, { status, retry, announce }) {
    this.board = board;
    this.section = section;
    this.status = status;
    this.retry = retry;
    this.announce = announce;
    this.kind = {
      frozen: "frozen" in section.dataset,
      closes: section.dataset.closes ? Number(section.dataset.closes) : Infinity,
    };
    retry.addEventListener("click", () => board.retry());
  }

  show() {
    const { snapshot } = this.board;
    const { name, retryAt } = snapshot.state;
    const [kind, text] = stateWords(snapshot, this.kind, Date.now());
    const before = this.status.dataset.state;
    if (this.status.textContent !== text) this.status.textContent = text;
    if (before !== kind) {
      this.status.dataset.state = kind;
      this.section.classList.toggle("stale", !["live", "paused", "connecting"].includes(name));
      if (before !== "still" && before !== "connecting" && kind !== "connecting") this.announce(text);
    }
    this.retry.hidden = name !== "reconnecting" && name !== "stale" && name !== "offline";
    clearTimeout(this.#timer);
    if (retryAt !== undefined) this.#timer = setTimeout(() => this.show(), 1000 - ((Date.now() - retryAt) % 1000));
  }
}
