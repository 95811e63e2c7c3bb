// @ts-check
/** Controls how the rows of a board's page move: rows that rise are marked, and rows in use stay in place. */
import { say } from "./client/stories.js";
import { holdRows } from "./hold.js";
import { Risers } from "./risers.js";

/** @param {import("./client/view.js").TableView} table */
export function startMovement(table) {
  new Risers(table, (rows, name) => say("passed", { rows, name }));
  const frame = table.body.closest(".frame");
  if (!table.shape.link) return; // the rows have no links and no buttons
  holdRows(table, (waiting) => {
    if (!(frame instanceof HTMLElement)) return;
    if (waiting) frame.dataset.held = say("moves_waiting", { n: waiting });
    else delete frame.dataset.held;
  });
}
