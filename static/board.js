// @ts-check
/** The page of one or several boards: each continues from the records that the server rendered. */
import { Announcer } from "./announcer.js";
import { LiveBoard } from "./client/live-board.js";
import { TableView } from "./client/view.js";
import { grouped, nameWords, periodWords, placeWords, translate } from "./client/words.js";
import { recordAddress, write } from "./page.js";
import { showLocalTimes } from "./times.js";
import { StatusView } from "./status.js";
import { Trends } from "./trends.js";

const RANK_REST = 5_000; // milliseconds for which the reader's rank must stay the same before it is announced

/** The part of the page that belongs to one board. */
class BoardView {
  #rankTimer = 0;
  #leader = /** @type {string | undefined} */ (undefined);

  /**
   * @param {HTMLElement} section
   * @param {Announcer} announcer
   */
  constructor(section, announcer) {
    const { board = "", root = "", limit, place, records, tail = "" } = section.dataset;
    const part = (/** @type {string} */ name) => document.getElementById(name + tail);
    this.announcer = announcer;
    this.parts = {
      rankCount: part("rank-count"), totalScore: part("total-score"), viewers: part("viewers"), place: part("place"),
      period: part("period"), empty: part("empty"), previous: section.querySelector("a[rel=prev]"),
    }; // prettier-ignore
    const body = /** @type {HTMLTableSectionElement} */ (part("records"));
    const table = /** @type {HTMLTableElement} */ (body.parentElement);
    const fields = Array.from(table.tHead?.rows[0].cells ?? []).flatMap((cell) => cell.dataset.field ?? []);
    this.packed = fields.length > 0;
    this.board = new LiveBoard(location.origin + root, board, { limit: Number(limit), key: place });
    this.table = new TableView(body, {
      fields,
      bars: "bars" in table.dataset,
      gaps: !this.packed,
      trends: "trends" in table.dataset,
      own: place,
      link: records && ((key) => recordAddress(records, key)),
      onDraw: () => this.#showSums(),
    });
    this.trends = new Trends(this.board, this.table, `${root}v1/boards/${board}`, part("since"));
    const status = /** @type {HTMLElement} */ (part("connection"));
    this.status = new StatusView(this.board, section, {
      status,
      retry: /** @type {HTMLElement} */ (part("retry")),
      announce: announcer.announce,
    });
    this.board.on("state", () => this.status.show());
    this.board.on("change", (snapshot) => {
      this.trends.compare();
      if (snapshot.epoch !== null) this.table.show(snapshot.records);
      if (this.board.paused) this.status.show();
      else this.#announce(snapshot);
    });
    this.board.start();
  }

  /** The texts around the table, written together with it, so that all are from the same moment. */
  #showSums() {
    const { rankCount, totalScore, viewers, around, period, records, epoch } = this.board.snapshot;
    const { parts } = this;
    if (around) this.#showPlace(around);
    if (epoch === null) return;
    if (viewers !== null) {
      write(parts.viewers, grouped(Math.max(1, viewers))); // this page is one of them
      const count = parts.viewers?.parentElement;
      if (count) count.hidden = false;
    }
    write(parts.rankCount, grouped(rankCount));
    write(parts.totalScore, grouped(totalScore));
    if (parts.empty) parts.empty.hidden = records.length > 0;
    const { unit, zone } = parts.period?.dataset ?? {};
    if (period && unit && zone) {
      write(parts.period, periodWords(unit, period, zone));
      parts.previous?.removeAttribute("hidden");
    }
  }

  /** @param {import("./client/state.js").Around} around */
  #showPlace(around) {
    const words = placeWords(around.rank, this.packed ? null : around.gap);
    [...(this.parts.place?.children ?? [])].forEach((child, i) => write(child, words[i]));
  }

  /**
   * Announce what matters to screen readers: a new leader, and the reader's rank once it stays the same.
   *
   * @param {import("./client/live-board.js").Snapshot} snapshot
   */
  #announce({ records, around }) {
    const leader = records[0]?.key;
    if (this.#leader !== undefined && leader !== undefined && leader !== this.#leader) {
      const row = [...this.table.body.rows].find((one) => one.dataset.key === leader);
      const name = row?.querySelector("bdi")?.textContent ?? nameWords(leader); // the row may show a title
      const place = around?.rank ? placeWords(around.rank, null)[0] : "";
      this.announcer.announce(place ? translate("takes_first_and_you", { name, place }) : translate("takes_first", { name }));
    }
    this.#leader = leader;
    const place = this.parts.place?.firstElementChild;
    if (!place || !around) return;
    const [words] = placeWords(around.rank, null);
    if (place.textContent === words) return;
    clearTimeout(this.#rankTimer);
    this.#rankTimer = setTimeout(() => this.announcer.announce(translate("place", { place: words })), RANK_REST);
  }
}

showLocalTimes();
const announcer = new Announcer(document.getElementById("announcer"));
const sections = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("section[data-board]"));
const shown = Array.from(sections, (section) => new BoardView(section, announcer));
const tools = document.getElementById("tools");
if (tools) {
  tools.inert = true; // takes its place, but no clicks until its script is loaded
  tools.hidden = false;
  void import("./tools.js").then(({ startTools }) => startTools(shown, announcer.announce, translate));
}
