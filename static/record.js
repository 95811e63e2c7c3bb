// @ts-check
/** The page of one record. Rank, score and the gaps to its neighbours are live. The charts are loaded later. */
import { Announcer } from "./announcer.js";
import { LiveBoard } from "./client/live-board.js";
import { grouped, nameWords, placeWords, plain, translate } from "./client/words.js";
import { loadLater, whenWritten, write } from "./page.js";
import { showLocalTimes } from "./times.js";
import { StatusView } from "./status.js";

const RANK_REST = 5_000; // milliseconds for which the rank must stay the same before it is announced

const section = /** @type {HTMLElement} */ (document.getElementById("record"));
const { board: id = "", root = "", key = "" } = section.dataset;
/** @param {string} name */
const part = (name) => /** @type {HTMLElement} */ (document.getElementById(name));
const announcer = new Announcer(part("announcer"));
const values = /** @type {NodeListOf<HTMLElement>} */ (section.querySelectorAll(".value"));

const board = new LiveBoard(location.origin + root, id, { limit: 1, key, around: 1 });
showLocalTimes(board.now());
const scores = { writing: plain };
const status = new StatusView(board, section, { status: part("connection"), retry: part("retry"), announce: announcer.announce });
let rankTimer = 0;
let announced = Number(part("rank").textContent?.replace(/\D/g, ""));
let isAsked = false; // whether the figures are written in the next frame

function showFigures() {
  isAsked = false;
  const { around } = board.snapshot;
  if (!around) return;
  const at = around.records.findIndex((record) => record.key === key);
  const own = around.records[at];
  write(part("rank"), own ? grouped(around.rank) : translate("not_ranked"));
  write(part("rank-count"), grouped(around.rank_count));
  const score = around.score ?? ("entrant" in section.dataset ? 0 : null);
  for (const value of values) {
    const { field } = value.dataset;
    const known = field === undefined ? score : own?.fields?.[field];
    if (known !== null && known !== undefined) write(value, field === undefined ? scores.writing.grouped(known) : grouped(known));
    /** @type {HTMLElement} */ (value.closest("div")).hidden = known === null || known === undefined;
  }
  if (!part("ahead")) return; // a score with fields has no gap
  showGap(part("ahead"), own, around.records[at - 1], "−");
  showGap(part("behind"), own, own && around.records[at + 1], "+");
}

/**
 * @param {HTMLElement} figure
 * @param {import("./client/state.js").BoardRecord | undefined} own
 * @param {import("./client/state.js").BoardRecord | undefined} other the record before or after
 * @param {string} sign
 */
function showGap(figure, own, other, sign) {
  figure.hidden = !own || !other;
  if (!own || !other) return;
  const isOther = figure.dataset.key !== other.key;
  const shown = isOther ? /** @type {HTMLElement} */ (figure.cloneNode(true)) : figure; // a new row, for the titles of members
  const name = /** @type {HTMLElement} */ (shown.querySelector("bdi"));
  const [before, after] = translate("to_record", { rank: other.rank, name: "\n" }).split("\n");
  if (isOther) {
    shown.dataset.key = other.key;
    name.textContent = nameWords(other.key);
  }
  if (isOther || name.previousSibling?.nodeValue !== before) name.parentElement?.replaceChildren(before, name, after);
  const gap = Math.abs(own.score - other.score);
  write(shown.querySelector("b"), gap ? sign + scores.writing.grouped(gap) : translate("tied"));
  if (isOther) figure.replaceWith(shown);
}

loadLater(board, () => import("./chart.js"), ({ start }) => start(board, `${root}v1/boards/${id}`));
board.on("state", () => status.show());
board.on("change", ({ around }) => {
  if (!around) return;
  if (!isAsked) requestAnimationFrame(showFigures);
  isAsked = true;
  clearTimeout(rankTimer);
  const { rank } = around;
  if (rank === null || rank === announced) return;
  rankTimer = setTimeout(() => {
    announced = rank;
    announcer.announce(placeWords(rank, null)[0]);
  }, RANK_REST);
});
whenWritten(section, scores, () => board.start());
