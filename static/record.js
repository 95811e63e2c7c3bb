// @ts-check
/** The page of one record. Rank, score and neighbours are live. Parts that seldom change are loaded later. */
import { Announcer } from "./announcer.js";
import { LiveBoard } from "./client/live-board.js";
import { TableView } from "./client/view.js";
import { gapWords, grouped, placeWords, translate } from "./client/words.js";
import { loadLater, recordAddress, whenWritten, write } from "./page.js";
import { showLocalTimes } from "./times.js";
import { StatusView } from "./status.js";

const RANK_REST = 5_000; // milliseconds for which the rank must stay the same before it is announced

const section = /** @type {HTMLElement} */ (document.getElementById("record"));
const { board: id = "", root = "", key = "", around: neighbours, records = "" } = section.dataset;
/** @param {string} name */
const part = (name) => /** @type {HTMLElement} */ (document.getElementById(name));
const announcer = new Announcer(part("announcer"));
const values = section.querySelectorAll(".value");

const body = /** @type {HTMLTableSectionElement} */ (part("records"));
const fields = [...section.querySelectorAll("th[data-field]")].map((cell) => /** @type {HTMLElement} */ (cell).dataset.field ?? "");
const board = new LiveBoard(location.origin + root, id, { limit: 1, key, around: Number(neighbours) });
showLocalTimes(board.now());
const table = new TableView(body, {
  fields,
  below: fields.length ? undefined : gapWords,
  own: key,
  link: (member) => recordAddress(records, member),
  onDraw: showFigures,
});
const status = new StatusView(board, section, { status: part("connection"), retry: part("retry"), announce: announcer.announce });
let rankTimer = 0;
let announced = Number(part("rank").textContent?.replace(/\D/g, ""));

function showFigures() {
  const { around } = board.snapshot;
  if (!around) return;
  const at = around.records.findIndex((record) => record.key === key);
  const own = around.records[at];
  write(part("rank"), own ? grouped(around.rank) : translate("not_ranked"));
  write(part("rank-count"), grouped(around.rank_count));
  const { grouped: written } = table.writing;
  if (fields.length) return fields.forEach((field, i) => write(values[i], written(own?.fields?.[field] ?? null)));
  write(values[0], written(around.score ?? ("entrant" in section.dataset ? 0 : null)));
  write(part("ahead"), written(distance(own, around.records[at - 1])));
  write(part("behind"), written(distance(own, around.records[at + 1])));
}

/**
 * @param {{score: number} | undefined} one
 * @param {{score: number} | undefined} other
 */
function distance(one, other) {
  return one && other ? Math.abs(one.score - other.score) : null;
}

loadLater(board, () => import("./chart.js"), ({ start }) => start(board, table, `${root}v1/boards/${id}`, part("since")));
board.on("state", () => status.show());
board.on("change", ({ around }) => {
  if (!around) return;
  table.show(around.records);
  clearTimeout(rankTimer);
  const { rank } = around;
  if (rank === null || rank === announced) return;
  rankTimer = setTimeout(() => {
    announced = rank;
    announcer.announce(placeWords(rank, null)[0]);
  }, RANK_REST);
});
whenWritten(section, table, () => board.start());
