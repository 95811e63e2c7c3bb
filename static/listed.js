/** Loaded once a card of the list of boards is live: movement, titles of new rows, changes of the definition. */
import { StatusView } from "./client/parts.js";
import { followDefinition, startItems } from "./drawn.js";
import { Trends } from "./trends.js";

/** @type {Set<import("./client/table.js").LiveTable>} */
const followed = new Set();

/** @param {import("./client/table.js").LiveTable} live */
export function follow(live) {
  if (followed.has(live)) return;
  if (!followed.size) startItems();
  followed.add(live);
  new StatusView(live.board, live.section, { status: live.part("connection"), retry: null, announce: () => {} });
  const { board, root } = live.section.dataset;
  followDefinition(live.board, live.section);
  const trends = new Trends(live, `${root}v1/boards/${board}`, null);
  live.board.on("change", () => trends.compare());
}
