// @ts-check
/** Functions that the scripts of several pages share. */
import { plain } from "./client/words.js";

const AGAIN = 5_000; // milliseconds until a script that failed to load is requested again
const ATTEMPTS = 60; // attempts to load a script; in browsers that remember a failure, all attempts fail
const LATER = 2_000; // milliseconds after which the other scripts are loaded, even if the page is not live

/**
 * The address of the page of a record. Null for the members `.` and `..`, which browsers resolve as parts of the path.
 *
 * @param {string} records the address of the pages of all records
 * @param {string} key
 */
export function recordAddress(records, key) {
  const [path, query] = records.split("?");
  return key === "." || key === ".." ? null : path + encodeURIComponent(key) + (query ? `?${query}` : "");
}

/**
 * @param {Element | null} element
 * @param {string} text
 */
export function write(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/**
 * Write a figure, and show it, or hide it while it is not known.
 *
 * @param {Element | null} figure
 * @param {string} text
 */
export function tell(figure, text) {
  write(figure, text);
  const whole = figure?.parentElement;
  if (whole && whole.hidden !== !text) whole.hidden = !text;
}

/**
 * Call `work` once scores can be written. Boards with a unit, decimals or durations need another script first: without
 * it, their scores would be wrong.
 *
 * @param {HTMLElement} element of the board
 * @param {{writing: import("./client/words.js").Writing}} view
 * @param {() => void} work
 */
export function whenWritten(element, view, work) {
  const { format } = element.dataset;
  if (!format) return work();
  load(() => import("./client/units.js"), ({ writingOf }) => {
    view.writing = writingOf(JSON.parse(format), plain);
    work();
  });
}

/**
 * Load the other scripts of a page once it is live, or after a while.
 *
 * @template T
 * @param {import("./client/live-board.js").LiveBoard} board
 * @param {() => Promise<T>} script
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

/**
 * Load a script, and try again if it does not come.
 *
 * @template T
 * @param {() => Promise<T>} script
 * @param {(script: T) => void} work
 */
function load(script, work, left = ATTEMPTS) {
  script().then(work, () => left && setTimeout(load, AGAIN, script, work, left - 1));
}

/**
 * The member that this browser follows on a board.
 *
 * @param {string} board
 */
export function pinOf(board) {
  try {
    return localStorage.getItem(`live-pin ${board}`) ?? undefined;
  } catch {
    return undefined; // the browser keeps nothing for this page
  }
}

/**
 * Follow a member of a board in this browser, or none.
 *
 * @param {string} board
 * @param {string} [key]
 */
export function setPin(board, key) {
  try {
    if (key === undefined) localStorage.removeItem(`live-pin ${board}`);
    else localStorage.setItem(`live-pin ${board}`, key);
  } catch {
    // the browser keeps nothing for this page
  }
}
