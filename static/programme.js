// @ts-check
/** On a wall: shows one board or page of rows after another, a clock, and news. On an overlay: shows news. */
import { momentWords } from "./client/words.js";

const SECOND = 1_000; // in milliseconds
const SHIFT = 60 * SECOND; // milliseconds between two shifts of the picture
const FADE = 400; // milliseconds in which a scene appears
const TOLD = 12 * SECOND; // milliseconds for which news stays
/** @type {[number, number][]} positions of the picture, in the unit `--u` of the wall; a still picture would burn in */
const PLACES = [[0, 0], [0.6, 0.3], [0.2, 0.7], [-0.5, 0.4], [-0.6, -0.3], [-0.1, -0.7], [0.5, -0.5]]; // prettier-ignore

/**
 * @param {HTMLElement[]} sections the boards
 * @param {() => number} time the time by the clock of the server
 */
export function startProgramme(sections, time) {
  const { surface, rotate } = document.documentElement.dataset;
  const ticker = document.getElementById("ticker");
  if (ticker) showNews(ticker, sections.length > 1);
  if (surface !== "wall") return;
  showClock(document.getElementById("clock"), time);
  keepAwake();
  shift();
  if (rotate) takeTurns(sections, Number(rotate) * SECOND);
}

/**
 * Show the latest news of the boards.
 *
 * @param {HTMLElement} ticker
 * @param {boolean} isShared whether the news is of several boards
 */
function showNews(ticker, isShared) {
  let timer = 0;
  document.addEventListener("story", (event) => {
    const { name, what } = /** @type {CustomEvent<import("./story.js").Told>} */ (event).detail;
    const title = /** @type {HTMLElement} */ (event.target).querySelector(":is(h1, h2)")?.textContent;
    const [who, board] = ["b", "small"].map((tag) => document.createElement(tag));
    const isolated = document.createElement("bdi");
    isolated.textContent = name;
    who.append(isolated);
    if (isShared) board.textContent = `${title} `;
    ticker.replaceChildren(...(isShared ? [board] : []), who, ` ${what}`);
    ticker.hidden = false;
    ticker.animate({ opacity: [0, 1] }, { duration: FADE });
    clearTimeout(timer);
    timer = setTimeout(() => (ticker.hidden = true), TOLD);
  });
}

/**
 * @param {HTMLElement | null} element
 * @param {() => number} time
 */
function showClock(element, time) {
  if (!element) return;
  const show = () => {
    const now = time();
    element.textContent = momentWords(now, now).slice(0, 5);
    setTimeout(show, SECOND - (now % SECOND));
  };
  show();
}

/** Keep the screen on. Browsers allow this only over HTTPS and on localhost, and end it when the page is hidden. */
function keepAwake() {
  const ask = () => {
    if (!document.hidden) navigator.wakeLock?.request("screen").catch(() => {}); // for example, the battery is low
  };
  document.addEventListener("visibilitychange", ask);
  ask();
}

/** Move the picture a little, from time to time. */
function shift() {
  let at = 0;
  setInterval(() => {
    const [x, y] = PLACES[++at % PLACES.length];
    document.body.style.transform = `translate(calc(${x} * var(--u)), calc(${y} * var(--u)))`;
  }, SHIFT);
}

/**
 * Show one page of one board after another. Pages without rows are left out.
 *
 * @param {HTMLElement[]} sections
 * @param {number} pause milliseconds for which each page is shown
 */
function takeTurns(sections, pause) {
  let [board, page] = [0, 0];
  const show = () => {
    sections.forEach((section, i) => section.toggleAttribute("data-on", i === board));
    sections[board].closest(".sides")?.toggleAttribute("data-turned", true);
    sections[board].style.setProperty("--page", String(page));
  };
  show();
  setInterval(() => {
    const rows = sections[board].querySelectorAll("tr[data-key]").length;
    const size = Number(getComputedStyle(document.documentElement).getPropertyValue("--rows"));
    const before = board;
    if ((page + 1) * size < rows) page++;
    else [board, page] = [(board + 1) % sections.length, 0];
    show();
    if (board === before && rows <= size) return; // there is no other page
    sections[board].animate({ opacity: [0, 1] }, { duration: FADE });
  }, pause);
}
