/** A board, live in a table: on pages, cards, walls, in frames, and in the element on pages of other sites. */
import { LiveBoard } from "./live-board.js";
import { whenWritten, write } from "./dom.js";
import { gapWords, grouped, shareWords } from "./row-words.js";
import { TableView } from "./view.js";
//#region status: the server's pages load it later
import { StatusView } from "./parts.js";
//#endregion
/** @import { Snapshot, Wish } from "./live-board.js" */

/** @typedef {Pick<Snapshot, "records" | "rankCount" | "totalScore" | "period">} Moment the board at a time */
/** @typedef {Wish & {link?: (member: string) => string | null}} Options `link` returns the address of a member's page */

export class LiveTable {
  /** @type {Moment | null} the moment of the past that is shown instead of the present */
  past = null;
  /** @type {(text: string) => void} announces news to screen readers */
  announce = () => {};
  /** @type {((snapshot: Snapshot) => void) | undefined} called before records are shown */
  prepare = undefined;
  /** @type {(() => void) | undefined} called with each draw */
  onDraw = undefined;

  /** @param {HTMLElement} section @param {string} server @param {Options} [options] */
  constructor(section, server, { link, ...wish } = {}) {
    const { board = "", limit, tail = "" } = section.dataset;
    const tree = /** @type {Document | ShadowRoot} */ (section.getRootNode());
    const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (tree.getElementById(name + tail));
    this.section = section;
    this.part = part;
    const body = /** @type {HTMLTableSectionElement} */ (part("records"));
    const table = /** @type {HTMLTableElement} */ (body.parentElement);
    const fields = Array.from(table.tHead?.rows[0].cells ?? []).flatMap((cell) => cell.dataset.field ?? []);
    this.packed = fields.length > 0;
    const isContest = "contest" in section.dataset;
    this.board = new LiveBoard(server, board, { limit: Number(limit), position: rendered(section, body, fields), ...wish });
    this.table = new TableView(body, {
      fields,
      bars: "bars" in table.dataset,
      below: this.packed ? undefined : isContest ? ({ score }) => shareWords(score, this.page.totalScore) : gapWords,
      trends: "trends" in table.dataset,
      own: wish.member,
      link,
      parts: table.hasAttribute("part"),
      signal: wish.signal,
      onDraw: () => this.#showSums(),
    });
    //#region status
    new StatusView(this.board, section, { status: part("connection"), retry: part("retry"), announce: (text) => this.announce(text) });
    //#endregion
    this.board.on("change", (snapshot) => {
      if (snapshot.epoch === null) return;
      this.prepare?.(snapshot);
      whenWritten(section, this.table, () => this.table.show(this.page.records));
    });
  }

  /** What the table shows: the moment of the past that the viewer chose, or else the present board. */
  get page() {
    return this.past ?? this.board.snapshot;
  }

  start() {
    whenWritten(this.section, this.table, () => this.board.start());
  }

  /** Write the figures around the table at each draw, so that they show the same moment as its rows. */
  #showSums() {
    const { viewers } = this.board.snapshot;
    const { rankCount, totalScore, records } = this.page;
    const [next, empty] = [this.part("next"), this.part("empty")];
    if (viewers !== null) tell(this.part("viewers"), grouped(Math.max(1, viewers))); // at least 1, because this page is a viewer too
    if (rankCount !== null || this.past) {
      // before the first message, the texts of the server stay
      tell(this.part("rank-count"), rankCount === null ? "" : grouped(rankCount));
      tell(this.part("total-score"), totalScore === null ? "" : this.table.writing.grouped(totalScore));
      if (next) next.hidden = rankCount === null || rankCount <= records.length;
      if (empty) empty.hidden = rankCount === null || records.length > 0;
    }
    this.onDraw?.();
  }
}

/** Write a figure, or hide it while it is not known. @param {Element | null} figure @param {string} text */
function tell(figure, text) {
  write(figure, text);
  const whole = figure?.parentElement;
  if (whole && whole.hidden !== !text) whole.hidden = !text;
}

/**
 * The board in the rows that the server rendered, from which the watch goes on. Without an epoch, they lack some data.
 * @param {HTMLElement} section @param {HTMLTableSectionElement} body @param {string[]} fields of the columns
 * @returns {import("./state.js").Board | undefined}
 */
function rendered({ dataset }, { rows }, fields) {
  const { epoch, offset, ranks } = dataset;
  const scores = dataset.scores?.split(" ");
  if (!epoch) return undefined;
  const records = Array.from(rows, ({ dataset: { member = "" }, cells }, index) => {
    const [rank, , ...values] = Array.from(cells, ({ textContent }) => Number(textContent?.replaceAll(",", "").replace("−", "-")));
    const own = scores && { fields: Object.fromEntries(fields.map((field, i) => [field, values[i]])) };
    return { key: member, score: Number(scores ? scores[index] : values[0]), rank, position: index + 1, ...own };
  });
  return { epoch, offset: Number(offset), records, ranks: /** @type {any} */ (ranks), rankCount: /** @type {any} */ (null), totalScore: null };
}
