// @ts-check
/** Loaded once a board's page is live: shows movement, sparklines and news, and announces them. */
import { say, stories, storyWords, Teller } from "./client/stories.js";
import { nameWords, placeWords } from "./client/words.js";
import { startMovement } from "./movement.js";
import { Paces } from "./pace.js";
import { Rail } from "./rail.js";
import { Trends } from "./trends.js";
import { You } from "./you.js";

const LOOK = 5_000; // milliseconds between two looks at who rises
const RANK_REST = 5_000; // milliseconds for which the reader's rank must stay the same before it is announced

/**
 * @typedef {{board: import("./client/live-board.js").LiveBoard, table: import("./client/view.js").TableView,
 *            section: HTMLElement, announce: (text: string) => void, packed: boolean, trends?: Trends, you?: You,
 *            past: import("./past.js").Moment | null}} Shown a board on the page
 * @typedef {{story: import("./client/stories.js").Story, name: string, what: string}} Told in words; the detail of the
 *   event `story` of a board's section
 */

/** @param {Shown} shown */
export function startStory(shown) {
  const { board, table, section } = shown;
  const { board: id, root, tail = "" } = section.dataset;
  startMovement(table);
  const nameOf = (/** @type {string} */ key) => nameIn(table.body, key);
  const figures = new Figures(shown, nameOf);
  const trends = new Trends(shown, `${root}v1/boards/${id}`, document.getElementById(`since${tail}`), figures.compare);
  shown.trends = trends;
  if (table.shape.own !== undefined) shown.you = new You(board, table);
  const teller = new Teller(
    (story) => {
      const told = { story, name: nameOf(story.key), what: storyWords(story, nameOf, table.writing) };
      section.dispatchEvent(new CustomEvent("story", { detail: told, bubbles: true }));
    },
    { gaps: !shown.packed, now: () => board.now() },
  );
  const announceRank = rankAnnouncer(shown);
  const follow = () => {
    trends.compare();
    if (board.paused) return;
    figures.note();
    teller.take(board.snapshot);
    announceRank(board.snapshot.around);
  };
  board.on("change", follow);
  follow();
  section.addEventListener("story", (event) => {
    const told = /** @type {CustomEvent<Told>} */ (event).detail;
    announceLeader(shown, told);
    figures.rail?.tell(told.story);
  });
  setInterval(() => !document.hidden && shown.past === null && figures.show(), LOOK);
}

/** How fast the members of a board count, and what has happened since some minutes ago. */
class Figures {
  #paces = new Paces();
  #epoch = "";

  /**
   * @param {Shown} shown
   * @param {(key: string) => string} nameOf
   */
  constructor({ board, section, table, packed }, nameOf) {
    this.board = board;
    this.rail = section.querySelector(".rail") ? new Rail(board, table, nameOf) : undefined;
    this.adds = "paces" in section.dataset;
    this.gaps = !packed;
  }

  /**
   * @param {import("./poll.js").Baseline} baseline
   * @param {Map<string, number>} scores
   */
  compare = (baseline, scores) => {
    const { epoch, period } = baseline;
    const since = Date.parse(baseline.since ?? "");
    this.#paces.note(since, scores);
    const places = [...scores].map(([key, score]) => ({ key, score, rank: baseline.ranks[key] ?? 0 }));
    const records = this.board.snapshot.records;
    const before = { at: since, epoch, period, records: places.sort((one, other) => one.rank - other.rank) };
    this.rail?.begin(stories(before, { at: this.board.now(), epoch, period, records }, this.gaps));
    this.show();
  };

  /** Take note of the board as it is now. */
  note() {
    const { epoch, period, records } = this.board.snapshot;
    const now = this.board.now();
    if (this.#epoch !== `${epoch} ${period}`) this.#paces.forget();
    this.#epoch = `${epoch} ${period}`;
    if (this.adds && this.#paces.isDue(now)) this.#paces.note(now, new Map(records.map(({ key, score }) => [key, score])));
  }

  show() {
    if (!this.adds || !this.rail) return;
    const now = this.board.now();
    const paces = this.board.snapshot.records.map((record) => ({ record, pace: this.#paces.of(record, now) }));
    this.rail.showRising(paces);
  }
}

/**
 * Of all stories, screen readers hear only those of a new leader.
 *
 * @param {Shown} shown
 * @param {Told} told
 */
function announceLeader({ board, announce }, { story, name, what }) {
  if (story.kind !== "lead") return;
  const rank = board.snapshot.around?.rank;
  const news = say("story", { name, what });
  announce(rank ? say("story_and_you", { story: news, place: placeWords(rank, null)[0] }) : news);
}

/**
 * Returns a function that announces the rank of the reader, once it has been the same for `RANK_REST`.
 *
 * @param {Shown} shown
 */
function rankAnnouncer({ board, announce }) {
  let timer = 0;
  let known = board.snapshot.around?.rank;
  /** @param {import("./client/state.js").Around | null} around */
  return (around) => {
    if (!around || around.rank === known) return;
    const isFirst = known === undefined;
    known = around.rank;
    clearTimeout(timer);
    const [place] = placeWords(around.rank, null);
    if (!isFirst) timer = setTimeout(() => announce(say("place", { place })), RANK_REST);
  };
}

/**
 * The name of a member as its row shows it, which may be a title.
 *
 * @param {HTMLElement} part of the page that has the row
 * @param {string} key
 */
export function nameIn(part, key) {
  return part.querySelector(`tr[data-key="${CSS.escape(key)}"] bdi`)?.textContent ?? nameWords(key);
}
