// @ts-check
/** Keeps rows in place for some seconds while somebody is about to use one, so that no other row moves under a click. */

const LONGEST_HOLD = 5_000; // milliseconds for which rows are held
const LINGER = 300; // milliseconds for which rows stay held after the pointer or the focus has left: it may be on its way to the next control
const HOLD_REST = 500; // milliseconds for which rows move before they are held again
const HOLDING = "a, button";
const FOCUS = ":focus-visible"; // a control that has the focus from the keyboard

/**
 * Hold the order of a table while the pointer is on one of its controls, or the focus is in a row.
 *
 * @param {import("./client/view.js").TableView} table
 * @param {(waiting: number) => void} show how many moves wait
 */
export function holdRows(table, show) {
  const { body } = table;
  let end = 0; // timer; 0 while the rows are not held
  let linger = 0;
  let rested = 0;

  const release = () => {
    clearTimeout(end);
    clearTimeout(linger);
    end = linger = 0;
    rested = performance.now() + HOLD_REST;
    show(0);
    table.release();
  };
  const hold = (/** @type {boolean} */ isPressed) => {
    if (!isPressed && performance.now() < rested) return;
    clearTimeout(linger);
    linger = 0;
    if (end && !isPressed) return;
    clearTimeout(end);
    end = setTimeout(release, LONGEST_HOLD);
    table.hold(isPressed);
  };
  const leave = () => {
    if (end) linger ||= setTimeout(release, LINGER);
  };
  const isIn = (/** @type {Event} */ { target }, /** @type {string} */ what) => target instanceof Element && !!target.closest(what);
  const isFocused = () => body.querySelector(FOCUS) !== null;

  table.onHold = show;
  body.addEventListener("pointerdown", (event) => isIn(event, HOLDING) && hold(true));
  body.addEventListener("pointermove", (event) => (isIn(event, HOLDING) ? hold(false) : isFocused() || leave()));
  body.addEventListener("pointerleave", () => isFocused() || leave());
  body.addEventListener("click", () => {
    rested = performance.now() + LINGER + HOLD_REST; // show the effect of the click, although the pointer has not left
    leave();
  });
  body.addEventListener("focusin", (event) => isIn(event, FOCUS) && hold(false));
  body.addEventListener("focusout", leave);
}
