// @ts-check
/** What tells the story of a board, loaded once its page is live: movement, sparklines, news and announcements. */
import { say, storyWords, Teller } from "./client/stories.js";
import { nameWords, placeWords } from "./client/words.js";
import { startMovement } from "./movement.js";
import { Trends } from "./trends.js";

const RANK_REST = 5_000; // milliseconds for which the reader's rank must stay the same before it is announced

/**
 * @typedef {{board: import("./client/live-board.js").LiveBoard, table: import("./client/view.js").TableView,
 *            section: HTMLElement, announce: (text: string) => void, packed: boolean}} Shown a board on the page
 * @typedef {{story: import("./client/stories.js").Story, name: string, what: string}} Told in words; the detail of the
 *   event `story` of a board's section
 */

/** @param {Shown} shown */
export function startStory(shown) {
  const { board, table, section } = shown;
  const { board: id, root, tail = "" } = section.dataset;
  startMovement(table);
  const trends = new Trends(board, table, `${root}v1/boards/${id}`, document.getElementById(`since${tail}`));
  const nameOf = (/** @type {string} */ key) => nameIn(table.body, key);
  const teller = new Teller(
    (story) => {
      const told = { story, name: nameOf(story.key), what: storyWords(story, nameOf) };
      section.dispatchEvent(new CustomEvent("story", { detail: told, bubbles: true }));
    },
    { gaps: !shown.packed },
  );
  const announceRank = rankAnnouncer(shown);
  const follow = () => {
    trends.compare();
    if (board.paused) return;
    teller.take(board.snapshot);
    announceRank(board.snapshot.around);
  };
  board.on("change", follow);
  follow();
  section.addEventListener("story", (event) => announceLeader(shown, /** @type {CustomEvent<Told>} */ (event).detail));
}

/**
 * The name of a member as its row shows it, which may be a title.
 *
 * @param {HTMLTableSectionElement} body
 * @param {string} key
 */
function nameIn(body, key) {
  const row = [...body.rows].find((one) => one.dataset.key === key);
  return row?.querySelector("bdi")?.textContent ?? nameWords(key);
}

/**
 * Screen readers hear of a new leader only.
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
 * Announces the reader's rank once it stays the same.
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
