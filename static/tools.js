/** The controls of a board's page: pause, find, speed, follow, share. */
import { translate } from "./client/words.js";
import { startFind } from "./find.js";
import { keep, kept, pinName } from "./page.js";

/** @typedef {{board: import("./client/live-board.js").LiveBoard, table: import("./client/view.js").TableView}} Shown */

/** @param {string} selector @returns {any} */
const find = (selector) => document.querySelector(selector);

/** @param {Shown[]} shown @param {(text: string) => void} announce */
export function startTools(shown, announce) {
  const pause = find("#pause");
  const toggle = () => {
    const pauses = pause.getAttribute("aria-pressed") === "false";
    pause.setAttribute("aria-pressed", String(pauses));
    for (const { board } of shown) pauses ? board.pause() : board.resume();
  };
  pause.addEventListener("click", toggle);
  startFind(shown, announce);
  startShare(announce);
  startFollow();
  startMenu();
  find("#speed").addEventListener("change", (/** @type {any} */ { target }) => {
    for (const { board } of shown) board.interval = target.value === "auto" ? "auto" : Number(target.value);
  });
  addEventListener("keydown", (event) => {
    if (isTyping(event)) return;
    if (event.key === "p") toggle();
    if (event.key !== "/") return;
    event.preventDefault();
    find("#search").hidden = false;
    find("#find").focus();
  });
  find("#tools").hidden = false;
  find("#tools").inert = false;
}

/** Let the menu close on Escape, which returns the focus to its button, and on a press anywhere else. */
function startMenu() {
  const menu = find(".menu");
  addEventListener("pointerdown", ({ target }) => {
    if (!(target instanceof Node && menu.contains(target))) menu.open = false;
  });
  menu.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  find("#past")?.addEventListener("click", () => (menu.open = false));
}

/** Remember in this browser which member the reader follows. */
function startFollow() {
  const form = find("#follow");
  if (!form) return;
  const { board = "" } = form.closest("section").dataset;
  if (kept(pinName(board)) !== null) find("#unfollow").hidden = false;
  form.addEventListener("submit", () => keep(pinName(board), form.elements.key.value));
  find("#unfollow").addEventListener("click", () => keep(pinName(board), null));
}

/** @param {(text: string) => void} announce */
function startShare(announce) {
  for (const button of document.querySelectorAll("[data-copy]")) {
    const field = find(`#${/** @type {HTMLElement} */ (button).dataset.copy}`);
    const showResult = (/** @type {string} */ text) => announce((button.textContent = text));
    button.addEventListener("click", async () => {
      getSelection()?.selectAllChildren(field);
      field.select?.();
      try {
        await navigator.clipboard.writeText(field.value ?? field.textContent);
        showResult(translate("copied"));
      } catch {
        showResult(translate("not_copied")); // without permission or HTTPS, the text is only selected
      }
    });
  }
}

/** @param {KeyboardEvent} event */
function isTyping({ target, ctrlKey, metaKey, altKey }) {
  return ctrlKey || metaKey || altKey || (target instanceof Element && target.matches("input, select, textarea"));
}
