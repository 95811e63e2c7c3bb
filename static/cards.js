/** The list of boards: each card that is in sight is live. */
import "./client/element.js";
import { loadLater } from "./page.js";

const MOST = 12; // cards that are live at the same time, because each needs a connection
const CALM = 1000; // milliseconds between two updates of a card

/** @type {import("./client/element.js").LiveBoardElement[]} */
const cards = Array.from(document.querySelectorAll("live-board"), (card) => /** @type {any} */ (card));
const seen = new Set();

/** @param {import("./client/element.js").LiveBoardElement} card */
function start(card) {
  const live = card.live ?? card.open({ interval: CALM });
  live.start();
  loadLater(live.board, () => import("./listed.js"), ({ follow }) => follow(live));
}

const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target) : seen.delete(target);
  const wanted = cards.filter((card) => seen.has(card)).slice(0, MOST);
  for (const card of cards) {
    const isLive = card.live !== null && card.live.board.snapshot.state.name !== "idle";
    if (wanted.includes(card)) isLive || start(card);
    else if (isLive) card.live?.board.stop();
  }
});
for (const card of cards) observer.observe(card);
