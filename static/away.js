// @ts-check
/**
 * When a hidden page is shown again, tells what happened on its board meanwhile, and marks with arrows how rows moved.
 */
import { say, stories, storyWords } from "./client/stories.js";
import { nameIn } from "./story.js";

const LEAST_AWAY = 60_000; // milliseconds
const CATCH_UP = 10_000; // milliseconds after the page is shown again, in which it waits for news
const MOST_NEWS = 3;

/** @param {import("./story.js").Shown} shown */
export function startAway(shown) {
  const { board, section, announce } = shown;
  /** @type {(import("./client/stories.js").Moment & {at: number}) | null} the board when the page was hidden */
  let left = null;
  let returned = 0;
  /** @type {HTMLElement | null} */
  let note = null;

  const close = () => {
    const hadFocus = note?.contains(document.activeElement);
    note?.remove();
    note = shown.away = null;
    section.removeAttribute("data-away");
    shown.trends?.compare();
    if (hadFocus) document.getElementById("pause")?.focus();
  };

  /**
   * @param {import("./client/stories.js").Story[]} told
   * @param {import("./client/stories.js").Moment} before
   */
  const tell = (told, before) => {
    const nameOf = (/** @type {string} */ key) => nameIn(shown.table.body, key);
    const heading = say("away", { n: Math.round((returned - before.at) / 60_000) });
    const news = told.map((story) => say("story", { name: nameOf(story.key), what: storyWords(story, nameOf, shown.table.writing) }));
    note = document.createElement("aside");
    note.classList.add("note", "away");
    note.ariaLabel = heading;
    const title = document.createElement("b");
    title.textContent = heading;
    const list = document.createElement("ul");
    list.append(...news.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: say("close"), onclick: close });
    note.append(title, list, button);
    document.querySelector("main")?.append(note);
    shown.away = new Map(before.records.map(({ key, rank }) => [key, rank]));
    section.setAttribute("data-away", "");
    shown.trends?.compare();
    announce([heading, ...news].join(". "));
  };

  const look = () => {
    const { snapshot } = board;
    if (!left || !returned || shown.past || snapshot.state.name !== "live") return;
    const before = left;
    const told = stories(before, { ...snapshot, at: Date.now() }, !shown.packed).slice(0, MOST_NEWS);
    if (told.length || Date.now() - returned > CATCH_UP) left = null;
    if (told.length) tell(told, before);
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      const { epoch, period, records } = board.snapshot;
      close();
      returned = 0;
      left = epoch === null ? null : { at: Date.now(), epoch, period, records };
      return;
    }
    returned = Date.now();
    if (left && returned - left.at < LEAST_AWAY) left = null;
    look();
  });
  document.addEventListener("keydown", ({ key }) => {
    if (key === "Escape" && note) close();
  });
  board.on("change", look);
  board.on("state", look);
}
