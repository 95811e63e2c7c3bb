/** On a wall: keeps the screen on, and shows one board or page of rows after another. */

const SECOND = 1_000; // in milliseconds
const SHIFT = 60 * SECOND; // milliseconds between two shifts of the picture
const FADE = 400; // milliseconds in which a scene appears
/** @type {[number, number][]} positions of the picture, in the unit `--u` of the wall; a still picture would burn in */
const PLACES = [[0, 0], [0.6, 0.3], [0.2, 0.7], [-0.5, 0.4], [-0.6, -0.3], [-0.1, -0.7], [0.5, -0.5]]; // prettier-ignore

/** @param {HTMLElement[]} sections the boards */
export function startProgramme(sections) {
  const { surface, rotate } = document.documentElement.dataset;
  if (surface !== "wall") return;
  keepAwake();
  shift();
  if (rotate) takeTurns(sections, Number(rotate) * SECOND);
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

/** Pages without rows are left out. @param {HTMLElement[]} sections @param {number} pause milliseconds for each page */
function takeTurns(sections, pause) {
  let [board, page] = [0, 0];
  const show = () => {
    sections.forEach((section, i) => section.toggleAttribute("data-on", i === board));
    sections[board].closest(".sides")?.toggleAttribute("data-turned", true);
    sections[board].style.setProperty("--page", String(page));
  };
  show();
  setInterval(() => {
    const rows = sections[board].querySelectorAll("tr[data-member]").length;
    const size = Number(getComputedStyle(sections[board]).getPropertyValue("--shown"));
    const before = board;
    if ((page + 1) * size < rows) page++;
    else [board, page] = [(board + 1) % sections.length, 0];
    show();
    if (board === before && rows <= size) return; // there is no other page
    sections[board].animate({ opacity: [0, 1] }, { duration: FADE });
  }, pause);
}
