// @ts-check
/** The figures above a board: how much it counts per minute, and how many members are ranked. */
import { say } from "./client/stories.js";
import { write } from "./page.js";
import { Rate } from "./pace.js";

export class Strip {
  #rate = new Rate();
  /** @type {import("./poll.js").Baseline | null} */
  #baseline = null;

  /** @param {import("./story.js").Shown} shown */
  constructor({ board, section, table }) {
    const part = (/** @type {string} */ name) => document.getElementById(name + (section.dataset.tail ?? ""));
    this.board = board;
    this.table = table;
    this.parts = { rate: part("rate"), rateNote: part("rate-note"), ranked: part("ranked-note") };
    board.on("state", ({ name }) => name === "live" || this.#rate.forget());
    document.addEventListener("visibilitychange", () => this.#rate.forget());
  }

  /** @param {import("./poll.js").Baseline} baseline */
  compare(baseline) {
    this.#baseline = baseline;
  }

  /** @param {number} now */
  note(now) {
    if (this.parts.rate) this.#rate.note(this.board.snapshot.totalScore, now);
  }

  /** @param {number} now */
  show(now) {
    const { parts } = this;
    const { writing } = this.table;
    const { rankCount } = this.board.snapshot;
    const rate = this.#rate.perMinute(now);
    if (rate !== null) {
      write(parts.rate, writing.grouped(rate));
      const before = this.#baseline?.per_minute;
      const n = before ? Math.round(((rate - before) * 100) / before) : 0;
      write(parts.rateNote, before ? say(n > 0 ? "more" : n < 0 ? "less" : "same", { n: Math.abs(n) }) : "");
      parts.rateNote?.classList.toggle("rises", n > 0);
    }
    const then = this.#baseline?.rank_count;
    if (typeof then === "number" && rankCount !== null) {
      const n = rankCount - then;
      write(parts.ranked, n ? say(n > 0 ? "more_members" : "fewer_members", { n: Math.abs(n) }) : "");
      parts.ranked?.classList.toggle("rises", n > 0);
    }
  }
}
