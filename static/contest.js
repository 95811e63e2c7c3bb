// @ts-check
/** What only contests show: the contestants without votes, and the result when voting ends. */

const RESULT_SOON = 1_000; // milliseconds from the end of voting to the first look at the result
const RESULT_SPREAD = 3_000; // … over which the requests of pages are spread
const NEXT_CONTEST = 20_000; // … between two looks whether another contest has begun
const LONGEST_TIMER = 86_400_000; // … that a timer waits

/**
 * @typedef {import("./story.js").Shown & {status: import("./status.js").StatusView, contest?: Contest, periodWords?: unknown}} Shown a board on
 *   the page
 */

export class Contest {
  #hasLooked = false;

  /** @param {Shown} shown */
  constructor({ section, table, board, status }) {
    const { tail = "", closes } = section.dataset;
    this.section = section;
    this.records = table.body;
    this.status = status;
    this.ballot = document.getElementById(`ballot${tail}`);
    this.podium = document.getElementById(`podium${tail}`);
    this.closes = Number(closes ?? Infinity);
    if (this.podium) this.#wait();
    this.show(board.snapshot);
  }

  /**
   * Hide the contestants that have a record by now. While there are more records than rows, nobody follows the last row.
   *
   * @param {Pick<import("./client/live-board.js").Snapshot, "records" | "rankCount" | "epoch">} snapshot
   */
  show({ records, rankCount, epoch }) {
    if (!this.ballot || epoch === null) return;
    const ranked = new Set(records.map(({ key }) => key));
    const rows = /** @type {HTMLElement[]} */ ([...this.ballot.querySelectorAll("[data-key]")]);
    for (const row of rows) {
      if (row.hidden === ranked.has(row.dataset.key ?? "")) continue;
      const hadFocus = row.contains(document.activeElement);
      row.hidden = !row.hidden;
      if (hadFocus && row.hidden) requestAnimationFrame(() => this.#focus(row.dataset.key));
    }
    this.ballot.hidden = (rankCount ?? 0) > records.length || rows.every((row) => row.hidden);
  }

  /** @param {string | undefined} key of the member whose new row takes the focus */
  #focus(key) {
    const row = [...this.records.rows].find((one) => one.dataset.key === key);
    row?.querySelector("button")?.focus();
  }

  #wait() {
    const left = this.closes - Date.now();
    const pause = left > 0 ? left + RESULT_SOON : this.#hasLooked ? NEXT_CONTEST : 0;
    setTimeout(() => (left < LONGEST_TIMER ? void this.#look() : this.#wait()), Math.min(pause + Math.random() * RESULT_SPREAD, LONGEST_TIMER));
  }

  /** Show the result as the server draws it. If there is another contest by now, show that. */
  async #look() {
    this.status.show();
    if (!document.hidden) {
      const drawn = await fetch(location.href).then((answer) => (answer.ok ? answer.text() : "")).catch(() => "");
      const page = new DOMParser().parseFromString(drawn, "text/html");
      const section = page.getElementById(this.section.id);
      if (section && Number(section.dataset.closes ?? Infinity) !== this.closes) return location.reload();
      const result = page.getElementById(this.podium?.id ?? "");
      if (result && !this.#hasLooked) this.podium?.replaceChildren(...result.childNodes);
      this.#hasLooked = drawn !== "";
    }
    this.#wait();
  }
}
