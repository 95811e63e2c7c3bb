/** Loaded once a record's page is live: renews the charts, says how the rank moved, starts like buttons and titles. */
import { Announcer } from "./client/announcer.js";
import { StatusView, write } from "./client/parts.js";
import { moveWords, translate } from "./client/words.js";
import { drawnPage, followDefinition, followRank, showLocalTimes, startItems } from "./drawn.js";
import { startLikes } from "./likes.js";
import { applies, rankBefore, sinceWords, startBaseline } from "./poll.js";
/** @import { LiveBoard } from "./client/live-board.js" */

const CHART_REST = 20_000; // milliseconds between two charts
const CHART_AGE = 600_000; // milliseconds between two charts while the score stays the same
/** @type {Object<string, Intl.DateTimeFormatOptions>} how the time axis writes times */
const FORMS = {
  clock: { hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  day: { month: "short", day: "numeric" },
  month: { year: "numeric", month: "short" },
};
let drawnAt = performance.now();

/** @param {LiveBoard} board @param {string} address of the board in the API */
export function start(board, address) {
  const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (document.getElementById(name));
  const { announce } = new Announcer(part("announcer"));
  new StatusView(board, part("record"), { status: part("connection"), retry: part("retry"), announce });
  followRank(board, announce);
  startItems();
  showTimes(board.now()); // by now, the time of the server is known
  startLikes(() => board.now());
  followDefinition(board, part("record"));
  setInterval(() => void redraw(board), CHART_REST * (1 + Math.random() / 2));
  /** @type {import("./poll.js").Baseline | undefined} */
  let baseline;
  const show = () => baseline && showMove(board, baseline);
  board.on("change", show);
  startBaseline(address, board, (answer) => {
    baseline = answer;
    show();
  });
}

/** Say how the rank has moved since a baseline. @param {LiveBoard} board @param {import("./poll.js").Baseline} baseline */
function showMove(board, baseline) {
  const { around } = board.snapshot;
  const move = /** @type {HTMLElement} */ (document.getElementById("move"));
  const fits = applies(baseline, board.snapshot);
  const [sign] = fits && around?.rank ? moveWords(around.rank, rankBefore(baseline, around.key, around.rank)) : [""];
  move.dataset.move = sign;
  write(move, sign && `${sign} ${translate("since_time", { time: sinceWords(baseline, board) })}`);
}

/** Take over the charts that the server draws now, except while somebody is in them or nothing changes. @param {LiveBoard} board */
async function redraw(board) {
  const story = document.getElementById("history");
  const isSame = story?.dataset.score === String(board.snapshot.around?.score) && performance.now() - drawnAt < CHART_AGE;
  if (!story || document.hidden || isSame || story.contains(document.activeElement)) return;
  drawnAt = performance.now();
  const made = (await drawnPage())?.getElementById("history");
  if (!made) return;
  const isOpen = story.querySelector("details")?.open ?? false;
  const details = made.querySelector("details");
  if (details) details.open = isOpen;
  story.replaceWith(made);
  showTimes(board.now());
}

/** Show times in the viewer's zone. On the axis, the first time of each day has its day. @param {number} now */
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
