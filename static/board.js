// @ts-check
/** The page of one board: goes live from the records that it was rendered with. */

import { Connection } from "./connection.js";
import { BoardView } from "./view.js";

const WORDS = { connecting: "Connecting", live: "Live", stale: "Stale", away: "Connection lost", ended: "Ended" };

const section = /** @type {HTMLElement} */ (document.getElementById("board"));
const status = /** @type {HTMLElement} */ (document.getElementById("connection"));
const view = new BoardView(document);

const url = new URL(`/v1/boards/${section.dataset.board}/live`, location.href);
url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
url.searchParams.set("limit", section.dataset.limit ?? "50");

const connection = new Connection(url.href, {
  onBoard: (board) => view.show(board),
  onState: (state, detail) => {
    const text = detail ? `${WORDS[state]}: ${detail}` : WORDS[state];
    if (status.textContent !== text) status.textContent = text; // it is read aloud: say each thing once
    status.dataset.state = state;
    section.classList.toggle("stale", state !== "live" && state !== "connecting");
  },
});

connection.open();
addEventListener("offline", () => connection.cut()); // an open socket does not notice that the network is gone
addEventListener("online", () => connection.open());
addEventListener("pagehide", () => connection.close()); // a page with an open socket is not kept for "back"
addEventListener("pageshow", () => connection.open());
