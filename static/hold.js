// @ts-check
/** Keeps rows in place while somebody is about to use one, so that no other row moves under a click. */

const IDLE = 30_000; // milliseconds after which a pointer that does not move holds no rows any more
const LONGEST_FOCUS = 5_000; // milliseconds for which the focus of the keyboard holds rows
const LINGER = 300; // milliseconds for which rows stay held after the pointer or the focus has left: it may be on its way to the next control
const AFTER = { click: 1_000, voted: 3_000 }; // milliseconds for which rows stay held after a click and after a vote, so that a second click hits the same row
const FOCUS = ":focus-visible"; // a control that has the focus from the keyboard

/**
 * Hold the order of a table while a pointer or a finger is over it, while the focus is in a row, and for a while after
 * a click or a vote.
 *
 * @param {import("./client/view.js").TableView} table
 * @param {(waiting: number) => void} show how many moves wait
 */
export function holdRows(table, show) {
  const whole = /** @type {HTMLTableElement} */ (table.body.closest("table")); // with the contestants that have no votes
  const ends = { pointer: 0, focus: 0, click: 0 }; // until when each of these holds the rows
  let timer = 0; // 0 while the rows are not held

  const look = () => {
    clearTimeout(timer);
    const left = Math.max(...Object.values(ends)) - performance.now();
    timer = left > 0 ? setTimeout(look, left) : 0;
    if (timer) return;
    show(0);
    table.release();
  };
  const hold = (/** @type {keyof typeof ends} */ by, /** @type {number} */ time, isPressed = false) => {
    ends[by] = performance.now() + time;
    table.hold(isPressed);
    look();
  };
  const leave = (/** @type {keyof typeof ends} */ by) => {
    ends[by] = Math.min(ends[by], performance.now() + LINGER);
    if (timer) look();
  };

  table.onHold = show;
  whole.addEventListener("pointerdown", () => hold("pointer", IDLE, true));
  whole.addEventListener("pointermove", () => hold("pointer", IDLE));
  whole.addEventListener("pointerleave", () => leave("pointer"));
  for (const [name, time] of Object.entries(AFTER)) whole.addEventListener(name, () => hold("click", time));
  whole.addEventListener("focusin", ({ target }) => target instanceof Element && target.matches(FOCUS) && hold("focus", LONGEST_FOCUS));
  whole.addEventListener("focusout", () => leave("focus"));
}
