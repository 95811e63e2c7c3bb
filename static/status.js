// @ts-check
/** Says how the connection of a board is, in words that stay true, and lets people connect now. */
import { clock, reasonWords, say } from "./client/language.js";

/** @typedef {import("./client/live-board.js").Snapshot} Snapshot */

/**
 * The state of a board as a word for styles, and as a sentence.
 *
 * @param {Pick<Snapshot, "state" | "waiting">} snapshot
 * @param {{frozen: boolean, closes: number}} board `closes`: when voting ends; milliseconds since 1970
 * @param {number} now
 * @returns {[string, string]}
 */
export function stateWords({ state, waiting }, { frozen, closes }, now) {
  const { name, reason, since, retryAt } = state;
  const why = reason && reason !== "nothing heard" ? reasonWords(reason) : "";
  switch (name) {
    case "live":
      if (frozen) return ["frozen", say("frozen")];
      return closes <= now ? ["closed", say("closed")] : [name, say("live")];
    case "paused":
      return [name, waiting > 0 ? say("waiting", { n: waiting }) : say("paused")];
    case "stale":
      return [name, say(why ? "stale_because" : "stale", { time: clock(since), reason: why })];
    case "reconnecting":
      if (retryAt === undefined) return [name, say("reconnecting")];
      return [name, say("reconnecting_in", { n: Math.max(1, Math.ceil((retryAt - now) / 1000)) })];
    case "ended":
      return [name, why ? say("ended_because", { reason: why }) : say("ended")];
    case "offline":
      return [name, say("offline")];
    default:
      return ["connecting", say("connecting")];
  }
}

/** Shows the state of one board; a countdown goes on while nothing else happens. */
export class StatusView {
  #timer = 0;

  /**
   * @param {import("./client/live-board.js").LiveBoard} board
   * @param {HTMLElement} section of the board
   * @param {{status: HTMLElement, retry: HTMLElement, say: (text: string) => void}} parts
   */
  constructor(board, section, { status, retry, say }) {
    this.board = board;
    this.section = section;
    this.status = status;
    this.retry = retry;
    this.say = say;
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
      if (before !== "still" && before !== "connecting" && kind !== "connecting") this.say(text);
    }
    this.retry.hidden = name !== "reconnecting" && name !== "stale" && name !== "offline";
    clearTimeout(this.#timer);
    if (retryAt !== undefined) this.#timer = setTimeout(() => this.show(), 1000 - ((Date.now() - retryAt) % 1000));
  }
}
