/** The page of one or several boards: each continues from the records that the server rendered. */
import "./client/element.js";
import { kept, loadLater, pinName, recordAddress } from "./page.js";

/** @type {NodeListOf<import("./client/element.js").LiveBoardElement>} */
const elements = document.querySelectorAll("live-board");
const shown = Array.from(elements, (element) => {
  const { board = "", records, tail, place } = /** @type {HTMLElement} */ (element.closest("section")).dataset;
  const member = place ?? (records && !tail ? kept(pinName(board)) ?? undefined : undefined);
  const live = element.open({ member, link: records ? (one) => recordAddress(records, one) : undefined });
  live.start();
  return live;
});
loadLater(shown[0].board, () => import("./later.js"), ({ start }) => start(shown));
