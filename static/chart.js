// @ts-check
/** Loaded once a record's page is live: renews the chart, starts like buttons and titles, and marks how rows moved. */
import { followDefinition } from "./definition.js";
import "./items.js";
import { startLikes } from "./likes.js";
import { showLocalTimes } from "./times.js";
import { Trends } from "./trends.js";

const CHART_REST = 20_000; // milliseconds between two charts
const CHART_AGE = 600_000; // milliseconds between two charts while the score stays the same
let drawnAt = performance.now();

/**
 * @param {import("./client/live-board.js").LiveBoard} board
 * @param {import("./client/view.js").TableView} table
 * @param {string} address of the board in the API
 * @param {HTMLElement} since says since when movement is measured
 */
export function start(board, table, address, since) {
  showLocalTimes(board.now()); // by now, the time of the server is known
  startLikes(() => board.now());
  const trends = new Trends({ board, table, past: null }, address, since);
  board.on("change", () => trends.compare());
  followDefinition(board, /** @type {HTMLElement} */ (document.getElementById("record")));
  setInterval(() => void redraw(board).catch(() => {}), CHART_REST * (1 + Math.random() / 2));
}

/**
 * Fetch the page again, and take over the chart that the server has drawn in it. Skip this while the page is hidden,
 * while the focus is in the chart, and for `CHART_AGE` if the score stays the same.
 *
 * @param {import("./client/live-board.js").LiveBoard} board
 */
async function redraw(board) {
  const chart = document.getElementById("chart");
  const isSame = chart?.dataset.score === String(board.snapshot.around?.score) && performance.now() - drawnAt < CHART_AGE;
  if (!chart || document.hidden || isSame || chart.contains(document.activeElement)) return;
  drawnAt = performance.now();
  const response = await fetch(location.href);
  if (!response.ok) return;
  const made = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("chart");
  if (!made) return;
  const isOpen = chart.querySelector("details")?.open ?? false;
  const details = made.querySelector("details");
  if (details) details.open = isOpen;
  chart.replaceWith(made);
  showLocalTimes(board.now());
}
