// @ts-check
/** The page of one board or several: each goes live from the records that it was rendered with. */

import { Connection } from "./connection.js";
import { BoardView } from "./view.js";

const WORDS = { connecting: "Connecting", live: "Live", stale: "Stale", away: "Connection lost", ended: "Ended" };

/** @param {HTMLElement} section */
function connect(section) {
  const status = /** @type {HTMLElement} */ (document.getElementById(`connection${section.dataset.tail}`));
  const view = new BoardView(document, section.dataset.tail ?? "");
  const url = new URL(section.dataset.live ?? "", location.href);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  url.searchParams.set("limit", section.dataset.limit ?? "50");
  if (section.dataset.place !== undefined) url.searchParams.set("key", section.dataset.place);
  return new Connection(url.href, {
    onBoard: (board) => view.show(board),
    onViewers: (count) => view.showViewers(count),
    onAround: (around) => view.showPlace(around),
    onState: (state, detail) => {
      const text = detail ? `${WORDS[state]}: ${detail}` : WORDS[state];
      if (status.textContent !== text) status.textContent = text; // it is read aloud: say each thing once
      status.dataset.state = state;
      section.classList.toggle("stale", state !== "live" && state !== "connecting");
    },
  });
}

const sections = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("section[data-board]"));
const connections = Array.from(sections, connect);
const open = () => connections.forEach((connection) => connection.open());

open();
addEventListener("offline", () => connections.forEach((connection) => connection.cut())); // an open socket does not notice
addEventListener("online", open);
addEventListener("pagehide", () => connections.forEach((connection) => connection.close())); // else not kept for "back"
addEventListener("pageshow", open);
