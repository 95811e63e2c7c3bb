/** Functions that the scripts of several pages share. */
import { load } from "./client/dom.js";

const LATER = 2_000; // milliseconds after which the other scripts are loaded, even if the page is not live

/** @param {string} records the address of the records, perhaps with a query @param {string} member */
export function recordAddress(records, member) {
  const [path, query] = records.split("?");
  return path + encodeURIComponent(member) + (query ? `?${query}` : "");
}

/**
 * Load the other scripts of a page once it is live, or after a while.
 * @template T @param {import("./client/live-board.js").LiveBoard} board @param {() => Promise<T>} script
 * @param {(script: T) => void} work
 */
export function loadLater(board, script, work) {
  const begin = () => {
    off();
    clearTimeout(timer);
    load(script, work);
  };
  const timer = setTimeout(begin, LATER);
  const off = board.on("state", ({ name }) => name === "live" && begin());
}

/** What this browser keeps for the pages of this server; null if it keeps nothing. @param {string} name */
export function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Keep a text; null removes it. @param {string} name @param {string | null} text */
export function keep(name, text) {
  try {
    if (text === null) localStorage.removeItem(name);
    else localStorage.setItem(name, text);
  } catch {
    // the browser keeps nothing for this page
  }
}

/** The name under which a browser keeps the member that it follows. @param {string} board */
export const pinName = (board) => `live-pin ${board}`;
