// @ts-check
/** The controls of a board's page: pause, find, speed, share. */
import { say } from "./client/stories.js";

/** @typedef {{board: import("./client/live-board.js").LiveBoard, table: import("./client/view.js").TableView}} Shown */

/**
 * @param {string} selector
 * @returns {any}
 */
const find = (selector) => document.querySelector(selector);

/**
 * @param {Shown[]} shown
 * @param {(text: string) => void} announce
 */
export function startTools(shown, announce) {
  startPause(shown);
  startFind(shown);
  startShare(announce);
  find("#speed").addEventListener("change", (/** @type {any} */ { target }) => {
    for (const { board } of shown) board.interval = target.value === "auto" ? "auto" : Number(target.value);
  });
  find("#tools").hidden = false;
  find("#tools").inert = false;
}

/** @param {Shown[]} shown */
function startPause(shown) {
  const button = find("#pause");
  const toggle = () => {
    const pauses = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(pauses));
    for (const { board } of shown) pauses ? board.pause() : board.resume();
  };
  button.addEventListener("click", toggle);
  addEventListener("keydown", (event) => {
    if (event.key === "p" && !isTyping(event)) toggle();
  });
}

/** @param {Shown[]} shown */
function startFind(shown) {
  const field = find("#find");
  const mark = () => {
    const text = field.value.trim().toLowerCase();
    let first = /** @type {HTMLElement | undefined} */ (undefined);
    for (const { table } of shown) {
      for (const row of table.body.rows) {
        const isHit = text !== "" && `${row.dataset.key}\n${row.querySelector("bdi")?.textContent}`.toLowerCase().includes(text);
        row.classList.toggle("hit", isHit);
        if (isHit) first ??= row;
      }
    }
    field.toggleAttribute("data-missed", text !== "" && !first);
    return first;
  };
  field.addEventListener("input", () => mark()?.scrollIntoView({ block: "center" }));
  field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") {
      field.value = "";
      mark();
      field.blur();
    } else if (event.key === "Enter" && field.value.trim() && !mark()) {
      const url = new URL(location.href);
      url.searchParams.set("key", field.value.trim());
      location.assign(url); // it may be below the rows: then the page shows its rank
    }
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || isTyping(event)) return;
    event.preventDefault();
    field.focus();
  });
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
        showResult(say("copied"));
      } catch {
        showResult(say("not_copied")); // no permission, or not over HTTPS: the text is selected
      }
    });
  }
}

/** @param {KeyboardEvent} event */
function isTyping({ target, ctrlKey, metaKey, altKey }) {
  return ctrlKey || metaKey || altKey || (target instanceof Element && target.matches("input, select, textarea"));
}
