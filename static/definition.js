// @ts-check
/** Lets a page follow the definition of its board. */

const RELOAD_SPREAD = 1_000; // milliseconds over which pages are loaded again

/**
 * Load the page again soon after its board has got another definition. A page does this once for each definition,
 * because a cache may still have the page of the definition before.
 *
 * @param {import("./client/live-board.js").LiveBoard} board
 * @param {HTMLElement} element of the board
 */
export function followDefinition(board, element) {
  const { definition } = element.dataset;
  let timer = 0;
  const look = () => {
    const { definition: now } = board.snapshot;
    if (timer || !now || now === definition || "past" in element.dataset) return;
    const name = `live-definition ${element.dataset.board}`;
    try {
      if (sessionStorage.getItem(name) === now) return;
      sessionStorage.setItem(name, now);
    } catch {
      return; // the browser keeps nothing for this page, so it can't know whether it was loaded again already
    }
    timer = setTimeout(() => location.reload(), Math.random() * RELOAD_SPREAD);
  };
  board.on("change", look);
  look();
}
