/** Shows the state of the connection of a board in words, and lets people connect now. */
import { write } from "./dom.js";
import { stateWords, translate } from "./words.js";
/** @import { LiveBoard, Snapshot } from "./live-board.js" */

export { writeMetadata } from "./metadata.js";
export { isolated, load, made, whenWritten, write } from "./dom.js";

const TICK = 500; // milliseconds between two readings of the clock
const BUSY = 5; // a board is busy after this many looks in a row that found something new
const NO_NEWS = ["still", "connecting"]; // states that are no news
const LATE = 3_000; // milliseconds of silence that are unusual for a busy board

/** Shows the state of one board. Ages and countdowns continue while nothing else happens. */
export class StatusView {
  #looks = 0; // how many looks in a row found something new
  #heardAt = 0; // when the message that the last look found was received
  #timer = 0;

  /**
   * @param {LiveBoard} board
   * @param {HTMLElement} section of the board
   * @param {{status: HTMLElement, retry: HTMLElement | null, announce: (text: string) => void}} parts
   */
  constructor(board, section, { status, retry, announce }) {
    this.board = board;
    this.section = section;
    this.status = status;
    this.retry = retry;
    this.announce = announce;
    this.still = status.textContent ?? ""; // what the server has written
    retry?.addEventListener("click", () => board.retry());
    board.on("state", () => this.#tick());
    this.#tick();
  }

  #tick() {
    const { receivedAt, snapshot } = this.board;
    if (receivedAt !== this.#heardAt) this.#looks = this.board.now() - this.#heardAt < LATE ? this.#looks + 1 : 1;
    else if (this.#looks < BUSY) this.#looks = 0;
    this.#heardAt = receivedAt;
    clearTimeout(this.#timer);
    if (snapshot.state.name !== "idle") this.#timer = setTimeout(() => this.#tick(), TICK);
    if (!document.hidden) this.show();
  }

  show() {
    if ("past" in this.section.dataset) return; // the slider of the past writes the time
    const { snapshot } = this.board;
    const { name } = snapshot.state;
    const [kind, text] = this.#words(snapshot);
    const before = this.status.dataset.state ?? "";
    if (before === "still" && kind === "connecting") return; // the words of the server stay until the page is live
    write(this.status, text);
    if (before !== kind) {
      this.status.dataset.state = kind;
      if (name !== "connecting") this.section.classList.toggle("stale", name !== "live" && name !== "paused");
      const isNews = !NO_NEWS.includes(before) && !(before === "late" && kind === "live");
      if (isNews && kind !== "late" && !NO_NEWS.includes(kind)) this.announce(text);
    }
    if (this.retry) this.retry.hidden = name !== "reconnecting" && name !== "stale" && name !== "offline";
  }

  /** While the board is stopped, the words of the server. If a busy board is silent, for how long. @param {Snapshot} snapshot @returns {[string, string]} */
  #words(snapshot) {
    if (snapshot.state.name === "idle") return this.still ? ["still", this.still] : ["connecting", translate("connecting")];
    const now = this.board.now();
    const { opens = -Infinity, closes = Infinity, finalAt = Infinity } = this.section.dataset;
    const board = { frozen: "frozen" in this.section.dataset, votes: "contest" in this.section.dataset };
    const [kind, text] = stateWords(snapshot, { ...board, opens: Number(opens), closes: Number(closes), finalAt: Number(finalAt) }, now);
    const age = now - this.board.receivedAt;
    const isLate = kind === "live" && age >= LATE && this.#looks >= BUSY;
    return isLate ? ["late", translate("live_age", { n: (age / 1000).toFixed(1) })] : [kind, text];
  }
}
