// @ts-check
/** The parts that only contests have: the contestants without votes, and the result when voting ends. */

const RESULT_SOON = 1_000; // milliseconds from the time when the result is final to the first look at it
const RESULT_SPREAD = 3_000; // milliseconds over which the requests of pages are spread
const LONGEST_PAUSE = 600_000; // the longest pause between two looks at the result, in milliseconds
const LONGEST_TIMER = 10_000; // milliseconds until the page reads the clock of the server again, which it may not know yet

/**
 * @typedef {import("./story.js").Shown & {status: import("./status.js").StatusView, contest?: Contest, periodWords?: unknown}} Shown a board on
 *   the page
 */

export class Contest {
  #pause = RESULT_SOON; // each pause between two looks at the result is twice as long as the one before
  #isAsking = false;
  /** @type {Set<string>} the members that had votes when the table was last drawn */
  #ranked = new Set();

  /** @param {Shown} shown */
  constructor({ section, table, board, status }) {
    const { tail = "", finalAt } = section.dataset;
    this.section = section;
    this.table = table;
    this.status = status;
    this.board = board;
    this.ballot = /** @type {HTMLTableSectionElement | null} */ (document.getElementById(`ballot${tail}`));
    this.podium = document.getElementById(`podium${tail}`);
    this.finalAt = Number(finalAt ?? Infinity);
    if (this.podium && !this.podium.childElementCount) this.#wait();
    this.show(board.snapshot);
  }

  /**
   * Hide the contestants that have a record now, unless rows are held. While there are more records than rows, hide all
   * contestants without votes, because they come after the last record.
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
    const left = this.finalAt + RESULT_SOON - this.board.now();
    if (left > 0) setTimeout(() => this.#wait(), Math.min(left, LONGEST_TIMER));
    else setTimeout(() => void this.#look(), Math.random() * RESULT_SPREAD);
  }

  /** Show the result as the server draws it. If it has none yet, look again later. */
  async #look() {
    this.status.show();
    if (!document.hidden) {
      const result = (await this.#drawn())?.getElementById(this.podium?.id ?? "");
      if (result?.childElementCount) return this.podium?.replaceChildren(...result.childNodes);
    }
    setTimeout(() => void this.#look(), this.#pause);
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE);
  }
}
