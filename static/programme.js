// @ts-check
/** On a wall: counts down while people vote, and shows one board or page of rows after another. */
import { clockSpan } from "./contest.js";
import { write } from "./page.js";

const SECOND = 1_000; // in milliseconds
const LAST_MINUTE = 60 * SECOND; // the time that is left stands out in the last minute
const LONGEST_COUNT = 86_400 * SECOND; // longer times are not counted down
const SHIFT = 60 * SECOND; // milliseconds between two shifts of the picture
const FADE = 400; // milliseconds in which a scene appears
/** @type {[number, number][]} positions of the picture, in the unit `--u` of the wall; a still picture would burn in */
const PLACES = [[0, 0], [0.6, 0.3], [0.2, 0.7], [-0.5, 0.4], [-0.6, -0.3], [-0.1, -0.7], [0.5, -0.5]]; // prettier-ignore

/**
 * @param {HTMLElement[]} sections the boards
 * @param {() => number} time the time by the clock of the server
 */
export function startProgramme(sections, time) {
  const { surface, rotate } = document.documentElement.dataset;
  if (surface !== "wall") return;
  for (const section of sections) countDown(section, time);
  keepAwake();
  shift();
  if (rotate) takeTurns(sections, Number(rotate) * SECOND);
}

/**
 * Show how much time is left to vote, or until voting opens. When voting ends, nothing asks for votes any more. The
 * result appears in one step, once it is final.
 *
 * @param {HTMLElement} section
 * @param {() => number} time
 */
function countDown(section, time) {
  const left = /** @type {HTMLElement | null} */ (section.querySelector(".left"));
  const [clock, words] = left?.children ?? [];
  if (!left || !(clock instanceof HTMLElement)) return;
  const [opens, closes] = [Number(section.dataset.opens ?? -Infinity), Number(section.dataset.closes ?? Infinity)];
  const podium = section.querySelector("[id^=podium]");
  let timer = 0;
  const show = () => {
    clearTimeout(timer);
    const now = time();
    const span = (now < opens ? opens : closes) - now;
    section.toggleAttribute("data-asks", span > 0);
    section.classList.toggle("final", span <= 0 && podium?.firstElementChild !== null);
    left.hidden = !(span > 0 && span < LONGEST_COUNT);
    left.toggleAttribute("data-last", now >= opens && span <= LAST_MINUTE);
    const text = clockSpan(Math.max(0, span));
    clock.style.setProperty("--chars", String(text.length));
    write(clock, text);
    write(words, (now < opens ? left.dataset.untilOpen : left.dataset.left) ?? "");
    timer = setTimeout(show, SECOND - (now % SECOND));
  };
  if (podium) new MutationObserver(show).observe(podium, { childList: true });
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
    const size = Number(getComputedStyle(sections[board]).getPropertyValue("--shown"));
    const before = board;
    if ((page + 1) * size < rows) page++;
    else [board, page] = [(board + 1) % sections.length, 0];
    show();
    if (board === before && rows <= size) return; // there is no other page
    sections[board].animate({ opacity: [0, 1] }, { duration: FADE });
  }, pause);
}
