/** Makes elements, writes texts, and loads scripts. */
import { plain } from "./row-words.js";

const AGAIN = 5_000; // milliseconds until a script that failed to load is requested again
const ATTEMPTS = 60; // attempts to load a script; in browsers that remember a failure, all attempts fail

/** @param {string} name @param {Object<string, string>} [attributes] @param {...(Node | string)} children */
export function made(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  element.append(...children);
  return element;
}

/** Text whose direction does not affect its surroundings. @param {string} text */
export function isolated(text) {
  return made("bdi", {}, text);
}

/** @param {Element | null} element @param {string} text */
export function write(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/** Try again if the script does not come. @template T @param {() => Promise<T>} script @param {(script: T) => void} work */
export function load(script, work, left = ATTEMPTS) {
  script().then(work, () => left && setTimeout(load, AGAIN, script, work, left - 1));
}

/**
 * Call `work` once scores can be written. Boards with a unit, decimals or durations need another script first: without
 * it, their scores would be wrong.
 * @param {HTMLElement} section of the board
 * @param {{writing: import("./row-words.js").Writing, format?: string}} view @param {() => void} work
 */
export function whenWritten({ dataset: { format } }, view, work) {
  if (view.format === format) return work();
  load(() => import("./units.js"), ({ writingOf }) => {
    view.writing = writingOf(JSON.parse(format ?? "{}"), plain);
    view.format = format;
    work();
  });
}
