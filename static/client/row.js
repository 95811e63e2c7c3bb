// @ts-check
/** The row of one member in the table of a board: its content, and its animation to another place. */
import { grouped, metadataWords, nameWords, translate } from "./words.js";

/**
 * @typedef {import("./state.js").BoardRecord} BoardRecord
 * @typedef {{columns: number, bars: boolean, trends: boolean, own?: string, link?: ((key: string) => string | null) | "",
 *            parts?: boolean}} Shape `parts`: give rows `part` attributes, for styles from outside of the shadow tree
 */

const EASING = "ease-out";
const ENTRY = 320; // milliseconds in which a new row appears; also the duration of the shortest flight
const LONGEST_FLIGHT = 900;
const TOP = 3; // the first rows, which a podium replaces; they have a class, because `:nth-child` costs a layout of all rows
const SVG = "http://www.w3.org/2000/svg";

/**
 * How long a row flies, in milliseconds: the farther, the longer, so that eyes can follow.
 *
 * @param {number} rows how many places it moves
 */
export function flightTime(rows) {
  return Math.min(LONGEST_FLIGHT, Math.max(ENTRY, 220 + 90 * Math.sqrt(rows)));
}

/** The row of one member. It remembers its content, so that it writes only changes and reads nothing. */
export class Row {
  index = -1;
  #from = 0; // pixels between the row and its place when its animation began
  /** @type {Animation | null} */
  flight = null;
  /** @type {string[]} the texts of rank, values and gap */
  texts = [];
  width = -1;
  /** @type {number | undefined} the score, once it was written */
  value = undefined;
  /** @type {BoardRecord["metadata"] | null} */
  #metadata = null;

  /** @param {HTMLTableRowElement} element */
  constructor(element) {
    this.element = element;
    this.name = element.cells[1];
    this.bar = this.name.querySelector("rect");
    const values = [...element.cells].slice(2);
    this.parts = [element.cells[0], ...values].map((cell) => cell.firstChild ?? cell.appendChild(new Text()));
    this.texts = this.parts.map((part) => part.nodeValue ?? "");
    this.score = values[0];
    this.gap = this.score.dataset.gap ?? "";
  }

  /** @param {number} index */
  setIndex(index) {
    const { classList } = this.element;
    if (index !== this.index && (index < TOP || this.index < TOP)) {
      classList.toggle("top", index < TOP);
    }
    this.index = index;
  }

  /** @param {number} rank */
  writeRank(rank) {
    if (this.write(0, grouped(rank))) this.element.classList.toggle("lead", rank === 1);
  }

  /** Where the row is now, in pixels from its place. */
  offset() {
    return this.flight ? this.#from * (1 - (this.flight.effect?.getComputedTiming().progress ?? 1)) : 0;
  }

  /**
   * @param {number} from pixels from its place
   * @param {number} duration in milliseconds
   * @param {number} delay in milliseconds, until the row begins to move
   */
  fly(from, duration, delay) {
    this.flight?.cancel();
    this.#from = from;
    const { style } = this.element;
    style.zIndex = from > 0 ? "1" : ""; // rising rows pass in front
    const faller = from < 0 ? { opacity: [0.7, 1] } : {};
    const frames = { transform: [`translateY(${from}px)`, "none"], ...faller };
    const flight = this.element.animate(frames, { duration, delay, fill: "backwards", easing: EASING });
    flight.onfinish = () => {
      this.flight = null;
      style.zIndex = "";
    };
    this.flight = flight;
  }

  /**
   * @param {number} part
   * @param {string} text
   * @returns {boolean} whether the text has changed
   */
  write(part, text) {
    if (this.texts[part] === text) return false;
    this.parts[part].nodeValue = this.texts[part] = text;
    return true;
  }

  /**
   * @param {number} score
   * @param {import("./words.js").Writing} writing
   */
  writeScore(score, writing) {
    this.value = score;
    this.write(1, writing.grouped(score));
  }

  /** @param {string} gap */
  writeGap(gap) {
    if (this.gap === gap) return;
    this.gap = gap;
    if (gap) this.score.dataset.gap = gap;
    else delete this.score.dataset.gap;
  }

  /**
   * Write the metadata of the member.
   *
   * @param {BoardRecord["metadata"]} metadata
   */
  writeMetadata(metadata) {
    if (this.#metadata === metadata) return;
    describe(this.name, metadataWords(metadata));
    this.#metadata = metadata;
  }

  /** @param {number} width of the bar, in percent */
  writeBar(width) {
    if (this.bar && this.width !== width) this.bar.setAttribute("width", `${(this.width = width)}%`);
  }

  appear() {
    this.element.animate({ opacity: [0, 1] }, { duration: ENTRY, easing: EASING });
  }
}

/**
 * @param {string} key
 * @param {Shape} shape
 */
export function newRow(key, { columns, bars, trends, link, own, parts }) {
  const row = document.createElement("tr");
  row.dataset.key = key;
  const name = document.createElement("th");
  name.scope = "row";
  if (key === own) markOwn(row, name);
  if (trends) name.append(drawing({ class: "trend", viewBox: "0 0 100 20", preserveAspectRatio: "none" }, "polyline"));
  const shown = nameWords(key);
  const text = isolated(shown);
  if (shown !== key) text.title = key;
  const address = link && link(key);
  if (address) {
    const anchor = document.createElement("a");
    anchor.href = address;
    anchor.append(...text.childNodes);
    text.append(anchor);
  }
  name.append(text);
  if (bars) name.append(drawing({ class: "bar" }, "rect"));
  row.append(cell("rank"), name, ...Array.from({ length: columns }, () => cell("score")));
  //#region parts: left out of the server's pages
  if (parts) for (const one of [row, ...row.cells]) one.setAttribute("part", one === row ? "row" : one.className || "name");
  //#endregion
  return row;
}

/**
 * Mark the row of the member that the reader follows.
 *
 * @param {Element} row
 * @param {HTMLElement} name its cell with the name
 */
export function markOwn(row, name) {
  row.classList.add("me", "own");
  name.dataset.note = translate("you");
}

/**
 * Make an SVG image that is only decoration.
 *
 * @param {Object<string, string>} attributes
 * @param {string} shape
 */
function drawing(attributes, shape) {
  const whole = element("svg", { ...attributes, role: "none" });
  whole.append(element(shape));
  return whole;
}

/**
 * @param {string} name
 * @param {Object<string, string>} [attributes]
 */
function element(name, attributes = {}) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}

/**
 * Put a small line below the name of a record, or remove it.
 *
 * @param {HTMLElement} name
 * @param {string[]} parts
 */
function describe(name, parts) {
  const held = name.querySelector(".about");
  if ((held?.textContent ?? "") === parts.join(" · ")) return;
  held?.remove();
  if (!parts.length) return;
  const line = document.createElement("small");
  line.className = "about";
  parts.forEach((part, place) => line.append(place ? " · " : "", isolated(part)));
  name.insertBefore(line, name.querySelector(".bar"));
}

/**
 * Text whose direction does not affect its surroundings.
 *
 * @param {string} text
 */
function isolated(text) {
  const made = document.createElement("bdi");
  made.textContent = text;
  return made;
}

/** @param {string} kind */
function cell(kind) {
  const made = document.createElement("td");
  made.className = kind;
  return made;
}
