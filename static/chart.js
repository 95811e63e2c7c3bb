// @ts-check
/** Loaded once a record's page is live: renews the charts, says how the rank moved, starts like buttons and titles. */
import { followDefinition } from "./definition.js";
import "./items.js";
import { startLikes } from "./likes.js";
import { say } from "./client/stories.js";
import { momentWords, moveWords } from "./client/words.js";
import { write } from "./page.js";
import { baselinePause, MINUTE, Poll, Ranks } from "./poll.js";
import { showLocalTimes } from "./times.js";

const CHART_REST = 20_000; // milliseconds between two charts
const CHART_AGE = 600_000; // milliseconds between two charts while the score stays the same
/** @type {Object<string, Intl.DateTimeFormatOptions>} how the time axis writes times */
const FORMS = {
  clock: { hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  day: { month: "short", day: "numeric" },
  month: { year: "numeric", month: "short" },
};
let drawnAt = performance.now();

/** @typedef {import("./client/live-board.js").LiveBoard} LiveBoard */

/**
 * @param {LiveBoard} board
 * @param {string} address of the board in the API
 */
export function start(board, address) {
  showTimes(board.now()); // by now, the time of the server is known
  startLikes(() => board.now());
  followDefinition(board, /** @type {HTMLElement} */ (document.getElementById("record")));
  setInterval(() => void redraw(board).catch(() => {}), CHART_REST * (1 + Math.random() / 2));
  /** @type {import("./poll.js").Baseline | undefined} */
  let baseline;
  const show = () => baseline && showMove(board, baseline);
  board.on("change", show);
  new Poll(() => `${address}/baseline`, (answer) => {
    baseline = answer;
    show();
    return baselinePause(answer, board.now());
  }); // prettier-ignore
}

/**
 * Say how the rank has moved since a baseline of the same epoch and period.
 *
 * @param {LiveBoard} board
 * @param {import("./poll.js").Baseline} baseline
 */
function showMove(board, baseline) {
  const { around, epoch, period } = board.snapshot;
  const move = /** @type {HTMLElement} */ (document.getElementById("move"));
  const fits = baseline.since !== null && baseline.epoch === epoch && baseline.period === (period ?? null);
  const [sign] = fits && around?.rank ? moveWords(around.rank, new Ranks(baseline).before(board.watched.key ?? "", around.rank)) : [""];
  const since = Date.parse(baseline.since ?? "");
  move.dataset.move = sign;
  write(move, sign && `${sign} ${say("since_time", { time: momentWords(since - (since % MINUTE), board.now()) })}`);
}

/**
 * Fetch the page again, and take over the charts that the server has drawn in it. Skip this while the page is hidden,
 * while the focus is in the charts, and for `CHART_AGE` if the score stays the same.
 *
 * @param {LiveBoard} board
 */
async function redraw(board) {
  const story = document.getElementById("history");
  const isSame = story?.dataset.score === String(board.snapshot.around?.score) && performance.now() - drawnAt < CHART_AGE;
  if (!story || document.hidden || isSame || story.contains(document.activeElement)) return;
  drawnAt = performance.now();
  const response = await fetch(location.href);
  if (!response.ok) return;
  const made = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("history");
  if (!made) return;
  const isOpen = story.querySelector("details")?.open ?? false;
  const details = made.querySelector("details");
  if (details) details.open = isOpen;
  story.replaceWith(made);
  showTimes(board.now());
}

/**
 * Show times in the viewer's zone. On the axis, a time has its day if it is the first one or the first of a day.
 *
 * @param {number} now the time by the clock of the server
 */
function showTimes(now) {
  showLocalTimes(now);
  let day = "";
  for (const label of /** @type {NodeListOf<SVGTextElement>} */ (document.querySelectorAll("text[data-at]"))) {
    const { at, form = "" } = label.dataset;
    const time = new Date(Number(at) * 1000);
    const isClock = form === "clock" && day !== (day = time.toDateString());
    const weekday = isClock ? `${new Intl.DateTimeFormat(document.documentElement.lang, { weekday: "short" }).format(time)} ` : "";
    label.textContent = weekday + new Intl.DateTimeFormat(document.documentElement.lang, FORMS[form]).format(time);
  }
}
