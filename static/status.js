// @ts-check
/** Shows the state of the connection of a board in words, and lets people connect now. */
import { stateWords, translate } from "./client/words.js";

const TICK = 500; // milliseconds between two readings of the clock
const BUSY = 5; // a board is busy after this many looks in a row that found something new
const LATE = 3_000; // milliseconds of silence that are unusual for a busy board

/** Shows the state of one board. Ages and countdowns continue while nothing else happens. */
export class StatusView {
  #looks = 0; // how many looks in a row found something new
  #heardAt = 0; // when the message that the last look found was received

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
    /** @type {import("./client/status.js").Kind} */
    this.kind = {
      frozen: "frozen" in section.dataset,
      votes: "contest" in section.dataset,
      opens: Number(section.dataset.opens ?? -Infinity),
      closes: Number(section.dataset.closes ?? Infinity),
      finalAt: Number(section.dataset.finalAt ?? Infinity),
    };
    retry.addEventListener("click", () => board.retry());
    this.#tick();
  }

  #tick() {
    const { receivedAt } = this.board;
    if (receivedAt !== this.#heardAt) this.#looks = this.board.now() - this.#heardAt < LATE ? this.#looks + 1 : 1;
    else if (this.#looks < BUSY) this.#looks = 0;
    this.#heardAt = receivedAt;
    if (!document.hidden && this.status.dataset.state !== "still") this.show();
    setTimeout(() => this.#tick(), TICK);
  }

  show() {
    if ("past" in this.section.dataset) return; // while the page shows the past, `Past` writes the time
    const { snapshot } = this.board;
    const { name } = snapshot.state;
    const [kind, text] = this.#words(snapshot);
    const before = this.status.dataset.state;
    if (before === "still" && kind === "connecting") return; // the words of the server stay until the page is live
    if (this.status.textContent !== text) this.status.textContent = text;
    if (before !== kind) {
      this.status.dataset.state = kind;
      if (name !== "connecting") this.section.classList.toggle("stale", name !== "live" && name !== "paused");
      const isNews = before !== "still" && before !== "connecting" && !(before === "late" && kind === "live");
      if (isNews && kind !== "connecting" && kind !== "late") this.announce(text);
    }
    this.retry.hidden = name !== "reconnecting" && name !== "stale" && name !== "offline";
  }

  /**
   * The state in words. If a busy board is silent, they say how long ago something was received.
   *
   * @param {import("./client/live-board.js").Snapshot} snapshot
   * @returns {[string, string]}
   */
  #words(snapshot) {
    const now = this.board.now();
    const [kind, text] = stateWords(snapshot, this.kind, now);
    const age = now - this.board.receivedAt;
    const isLate = kind === "live" && age >= LATE && this.#looks >= BUSY;
    return isLate ? ["late", translate("live_age", { n: (age / 1000).toFixed(1) })] : [kind, text];
  }
}
