// @ts-check
/** The parts that only contests have: the contestants without votes, and the result when voting ends. */

const RESULT_SOON = 1_000; // milliseconds from the end of voting to the first look at the result
const RESULT_SPREAD = 3_000; // milliseconds over which the requests of pages are spread
const NEXT_CONTEST = 20_000; // milliseconds between the first two checks for another contest; each further pause is twice as long
const LONGEST_PAUSE = 600_000; // the longest pause between two checks, in milliseconds
const LONGEST_TIMER = 86_400_000; // milliseconds that a timer waits at most

/**
 * @typedef {import("./story.js").Shown & {status: import("./status.js").StatusView, contest?: Contest, periodWords?: unknown}} Shown a board on
 *   the page
 */

export class Contest {
  #hasLooked = false;
  #pause = NEXT_CONTEST;
  #isAsking = false;
  /** @type {Set<string>} the members that had votes when the table was last drawn */
  #ranked = new Set();

  /** @param {Shown} shown */
  constructor({ section, table, board, status }) {
    const { tail = "", closes } = section.dataset;
    this.section = section;
    this.table = table;
    this.status = status;
    this.board = board;
    this.ballot = /** @type {HTMLTableSectionElement | null} */ (document.getElementById(`ballot${tail}`));
    this.podium = document.getElementById(`podium${tail}`);
    this.closes = Number(closes ?? Infinity);
    if (this.podium) this.#wait();
    this.show(board.snapshot);
  }

  /**
   * Hide the contestants that have a record now, unless rows are held. While there are more records than rows, hide all contestants without
   * votes, because they come after the last record.
   *
   * @param {Pick<import("./client/live-board.js").Snapshot, "records" | "rankCount" | "epoch">} snapshot
   */
  show({ records, rankCount, epoch }) {
    if (!this.ballot || epoch === null || this.table.isHeld) return;
    const ranked = new Set(records.map(({ key }) => key));
    const isWhole = (rankCount ?? 0) <= records.length;
    const lost = isWhole ? [...this.#ranked].filter((key) => !ranked.has(key) && !this.#row(key)) : [];
    this.#ranked = ranked;
    if (lost.length) this.#complete();
    const rows = /** @type {HTMLElement[]} */ ([...this.ballot.querySelectorAll("[data-key]")]);
    for (const row of rows) {
      if (row.hidden === ranked.has(row.dataset.key ?? "")) continue;
      const hadFocus = row.contains(document.activeElement);
      row.hidden = !row.hidden;
      if (hadFocus && row.hidden) requestAnimationFrame(() => this.#focus(row.dataset.key));
    }
    this.ballot.hidden = !isWhole || rows.every((row) => row.hidden);
  }

  /** @param {string} key of a contestant without votes */
  #row(key) {
    return [...(this.ballot?.rows ?? [])].find((one) => one.dataset.key === key);
  }

  /** Ask for the rows of contestants that have lost their last vote. */
  #complete() {
    if (this.#isAsking) return;
    this.#isAsking = true;
    setTimeout(async () => {
      this.#isAsking = false;
      const made = (await this.#drawn())?.getElementById(this.ballot?.id ?? "");
      if (made) this.ballot?.replaceChildren(...made.childNodes);
      this.show(this.board.snapshot);
    }, Math.random() * RESULT_SPREAD);
  }

  /** Fetch the page as the server draws it now. Returns null if the server does not answer. */
  async #drawn() {
    const text = await fetch(location.href).then((answer) => (answer.ok ? answer.text() : "")).catch(() => "");
    return text ? new DOMParser().parseFromString(text, "text/html") : null;
  }

  /** @param {string | undefined} key of the member whose new row takes the focus */
  #focus(key) {
    const row = [...this.table.body.rows].find((one) => one.dataset.key === key);
    row?.querySelector("button")?.focus();
  }

  #wait() {
    const left = this.closes - Date.now();
    const pause = left > 0 ? left + RESULT_SOON : this.#hasLooked ? this.#pause : 0;
    if (left <= 0 && this.#hasLooked) this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE);
    setTimeout(() => (left < LONGEST_TIMER ? void this.#look() : this.#wait()), Math.min(pause + Math.random() * RESULT_SPREAD, LONGEST_TIMER));
  }

  /** Show the result as the server draws it. If another contest has begun meanwhile, show that contest. */
  async #look() {
    this.status.show();
    if (!document.hidden) {
      const page = await this.#drawn();
      const section = page?.getElementById(this.section.id);
      if (section && Number(section.dataset.closes ?? Infinity) !== this.closes) return location.reload();
      const result = page?.getElementById(this.podium?.id ?? "");
      if (result && !this.#hasLooked) this.podium?.replaceChildren(...result.childNodes);
      this.#hasLooked = page !== null;
    }
    this.#wait();
  }
}
