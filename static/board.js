// @ts-check
/** The page of one or several boards: each continues from the records that the server rendered. */
import { LiveBoard } from "./client/live-board.js";
import { TableView } from "./client/view.js";
import { gapWords, grouped, shareWords } from "./client/words.js";
import { loadLater, pinOf, recordAddress, tell, whenWritten, write } from "./page.js";
import { StatusView } from "./status.js";

/** The section of the page that shows one board. */
class BoardView {
  /** @type {import("./contest.js").Contest | undefined} set by a script that is loaded later */
  contest;
  /** @type {typeof import("./periods.js").periodWords | undefined} set by the same script */
  periodWords;
  /** @type {import("./trends.js").Trends | undefined} set by the same script */
  trends;
  /** @type {import("./you.js").You | undefined} set by the same script */
  you;
  /** @type {import("./past.js").Moment | null} the moment of the past that is shown instead of the present */
  past = null;
  /** @type {(text: string) => void} announces news to screen readers; set by the same script */
  announce = () => {};

  /** @param {HTMLElement} section */
  constructor(section) {
    const { board = "", root = "", limit, records, tail = "" } = section.dataset;
    const place = section.dataset.place ?? (records && !tail ? pinOf(board) : undefined);
    const part = (/** @type {string} */ name) => document.getElementById(name + tail);
    this.section = section;
    this.parts = {
      rankCount: part("rank-count"), totalScore: part("total-score"), viewers: part("viewers"),
      period: part("period"), empty: part("empty"), previous: section.querySelector("a[rel=prev]"), next: part("next"),
    }; // prettier-ignore
    const body = /** @type {HTMLTableSectionElement} */ (part("records"));
    const table = /** @type {HTMLTableElement} */ (body.parentElement);
    const fields = Array.from(table.tHead?.rows[0].cells ?? []).flatMap((cell) => cell.dataset.field ?? []);
    this.packed = fields.length > 0;
    const isContest = "contest" in section.dataset;
    this.board = new LiveBoard(location.origin + root, board, { limit: Number(limit), key: place, position: rendered(section, body, fields) });
    this.table = new TableView(body, {
      fields,
      bars: "bars" in table.dataset,
      below: this.packed ? undefined : isContest ? ({ score }) => shareWords(score, this.page.totalScore) : gapWords,
      trends: "trends" in table.dataset,
      own: place,
      link: records && ((key) => recordAddress(records, key)),
      onDraw: () => this.#showSums(),
    });
    const status = /** @type {HTMLElement} */ (part("connection"));
    this.status = new StatusView(this.board, section, {
      status,
      retry: /** @type {HTMLElement} */ (part("retry")),
      announce: (text) => this.announce(text),
    });
    this.board.on("state", () => this.status.show());
    this.board.on("change", (snapshot) => {
      if (this.board.paused) this.status.show();
      if (snapshot.epoch !== null) this.table.show(snapshot.records);
    });
    whenWritten(section, this.table, () => this.board.start());
  }

  /** What the table shows: the moment of the past that the viewer chose, or else the present board. */
  get page() {
    return this.past ?? this.board.snapshot;
  }

  /**
   * Write the texts around the table. The table calls this at each draw, so its rows and the texts show the same
   * moment.
   */
  #showSums() {
    const { viewers } = this.board.snapshot;
    const { rankCount, totalScore, period, records } = this.page;
    const { parts } = this;
    if (!this.past) this.you?.show();
    if (viewers !== null) tell(parts.viewers, grouped(Math.max(1, viewers))); // at least 1, because this page is a viewer too
    if (rankCount === null && !this.past) return; // no message has come, so the texts of the server stay
    tell(parts.rankCount, rankCount === null ? "" : grouped(rankCount));
    tell(parts.totalScore, totalScore === null ? "" : this.table.writing.grouped(totalScore));
    if (parts.next) parts.next.hidden = rankCount === null || rankCount <= records.length;
    this.contest?.show(this.board.snapshot);
    if (parts.empty) parts.empty.hidden = rankCount === null || records.length > 0;
    const { unit, zone } = parts.period?.dataset ?? {};
    if (period && unit && zone && this.periodWords) {
      write(parts.period, this.periodWords(unit, period, zone));
      parts.previous?.removeAttribute("hidden");
    }
  }
}

/**
 * Read the board from the rows that the server rendered, so that the first message brings only what has changed since.
 * Undefined if the section has no epoch, because then the rows lack some of the data.
 *
 * @param {HTMLElement} section
 * @param {HTMLTableSectionElement} body
 * @param {string[]} fields of packed scores, in the order of their columns
 * @returns {import("./client/state.js").Board | undefined}
 */
function rendered({ dataset }, { rows }, fields) {
  const { epoch, offset, ranks } = dataset;
  const scores = dataset.scores?.split(" ");
  if (!epoch) return undefined;
  const records = Array.from(rows, ({ dataset: { key = "" }, cells }, index) => {
    const [rank, , ...values] = Array.from(cells, ({ textContent }) => Number(textContent?.replaceAll(",", "").replace("−", "-")));
    const own = scores && { fields: Object.fromEntries(fields.map((field, i) => [field, values[i]])) };
    return { key, score: Number(scores ? scores[index] : values[0]), rank, position: index + 1, ...own };
  });
  return { epoch, offset: Number(offset), records, ranks: /** @type {any} */ (ranks), rankCount: /** @type {any} */ (null), totalScore: null };
}

const sections = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("section[data-board]"));
const shown = Array.from(sections, (section) => new BoardView(section));
loadLater(shown[0].board, () => import("./later.js"), ({ start }) => start(shown));
