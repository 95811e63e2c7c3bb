/** What a live page shows of the page as the server draws it: its definition, times, and titles of members. */
import { Items, replaceBroken } from "./client/items.js";
import { momentWords, placeWords } from "./client/words.js";
/** @import { LiveBoard } from "./client/live-board.js" */

const RELOAD_SPREAD = 1_000; // milliseconds over which pages are loaded again
const RANK_REST = 5_000; // milliseconds for which a rank must stay the same before it is announced

/**
 * Load the page again when its board has another definition, once for each: a cache may still have the old page.
 * @param {LiveBoard} board @param {HTMLElement} element of the board
 */
export function followDefinition(board, element) {
  const { definition } = element.dataset;
  let timer = 0;
  const look = () => {
    const { definition: now } = board.snapshot;
    if (timer || !now || now === definition || "past" in element.dataset) return;
    const name = `live-definition ${element.dataset.board}`;
    try {
      if (sessionStorage.getItem(name) === now) return;
      sessionStorage.setItem(name, now);
    } catch {
      return; // the browser keeps nothing for this page, so it can't know whether it was loaded again already
    }
    timer = setTimeout(() => location.reload(), Math.random() * RELOAD_SPREAD);
  };
  board.on("change", look);
  look();
}

/** Fetch the page as the server draws it now. Returns null if the server does not answer. */
export async function drawnPage() {
  const text = await fetch(location.href).then((answer) => (answer.ok ? answer.text() : "")).catch(() => "");
  return text ? new DOMParser().parseFromString(text, "text/html") : null;
}

/** Show times in the viewer's zone. @param {number} now by the clock of the server; times of the same day are shown without the day */
export function showLocalTimes(now) {
  for (const time of /** @type {NodeListOf<HTMLTimeElement>} */ (document.querySelectorAll("time[datetime]"))) {
    time.title ||= time.textContent;
    time.textContent = momentWords(Date.parse(time.dateTime), now);
  }
}

/** Show titles and pictures of members in rows that are added to the page. The server renders those of the first rows. */
export function startItems() {
  if (!document.querySelector("[data-items]")) return;
  const home = /** @type {HTMLElement | null} */ (document.querySelector("[data-root]"))?.dataset.root ?? "/";
  const items = new Items(home.replace(/\/$/, ""), () => document.querySelectorAll(":is(tr, li, div)[data-member]"));
  items.skip();
  replaceBroken(document);
  const observer = new MutationObserver(() => items.show());
  for (const list of document.querySelectorAll("tbody, ol, dl")) observer.observe(list, { childList: true });
}

/** Tell the place of the member that a watch follows, once it has been the same for a while. @param {LiveBoard} board @param {(place: string) => void} tell */
export function followRank(board, tell) {
  let timer = 0;
  let known = board.snapshot.around?.rank;
  let told = known;
  board.on("change", ({ around }) => {
    if (!around || around.rank === known) return;
    known = around.rank;
    if (told === undefined) told = known;
    clearTimeout(timer);
    if (known !== told) timer = setTimeout(() => tell(placeWords((told = around.rank), null)[0]), RANK_REST);
  });
}
