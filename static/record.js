/** The page of one record. Rank, score and the gaps to its neighbours are live. The charts are loaded later. */
import { LiveBoard } from "./client/live-board.js";
import { whenWritten, write } from "./client/dom.js";
import { grouped, nameWords, plain, translate } from "./client/row-words.js";
import { loadLater } from "./page.js";

const section = /** @type {HTMLElement} */ (document.getElementById("record"));
const { board: id = "", root = "", member = "" } = section.dataset;
/** @param {string} name */
const part = (name) => /** @type {HTMLElement} */ (document.getElementById(name));
const values = /** @type {NodeListOf<HTMLElement>} */ (section.querySelectorAll(".value"));

const board = new LiveBoard(location.origin + root, id, { limit: 1, member, around: 1 });
const scores = { writing: plain };
let isAsked = false; // whether the figures are written in the next frame

function showFigures() {
  isAsked = false;
  const { around } = board.snapshot;
  if (!around) return;
  const at = around.records.findIndex((record) => record.key === member);
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

/** @typedef {import("./client/state.js").BoardRecord | undefined} Known */
/** @param {HTMLElement} figure @param {Known} own @param {Known} other the record before or after @param {string} sign */
function showGap(figure, own, other, sign) {
  figure.hidden = !own || !other;
  if (!own || !other) return;
  const isOther = figure.dataset.member !== other.key;
  const shown = isOther ? /** @type {HTMLElement} */ (figure.cloneNode(true)) : figure; // a new row, for the titles of members
  const name = /** @type {HTMLElement} */ (shown.querySelector("bdi"));
  const [before, after] = translate("to_record", { rank: other.rank, name: "\n" }).split("\n");
  if (isOther) {
    shown.dataset.member = other.key;
    name.textContent = nameWords(other.key);
  }
  if (isOther || name.previousSibling?.nodeValue !== before) name.parentElement?.replaceChildren(before, name, after);
  const gap = Math.abs(own.score - other.score);
  write(shown.querySelector("b"), gap ? sign + scores.writing.grouped(gap) : translate("tied"));
  if (isOther) figure.replaceWith(shown);
}

loadLater(board, () => import("./chart.js"), ({ start }) => start(board, `${root}v1/boards/${id}`));
board.on("change", ({ around }) => {
  if (around && !isAsked) requestAnimationFrame(showFigures);
  isAsked ||= around !== null;
});
whenWritten(section, scores, () => board.start());
