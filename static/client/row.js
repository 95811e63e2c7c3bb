/** The row of one member in the table of a board. */
import { isolated, made } from "./dom.js";
import { nameWords, translate } from "./row-words.js";

/**
 * @typedef {{columns: number, bars: boolean, trends: boolean, own?: string, link?: ((member: string) => string | null) | "",
 *            parts?: boolean}} Shape `parts`: give rows `part` attributes, for styles from outside of the shadow tree
 */

const TOP = 3; // the first rows, which a podium replaces; they have a class, because `:nth-child` costs a layout of all rows
const SVG = "http://www.w3.org/2000/svg";

/** The row of one member. It remembers its content, so that it writes only changes and reads nothing. */
export class Row {
  index = -1;
  /** @type {string[]} the texts of rank, values and gap */
  texts = [];
  width = -1;
  /** @type {number | undefined} the score, once it was written */
  value = undefined;
  /** @type {import("./state.js").BoardRecord["metadata"] | null} the metadata, once they were written */
  metadata = null;

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

  /** @param {number} part @param {string} text @returns {boolean} whether the text has changed */
  write(part, text) {
    if (this.texts[part] === text) return false;
    this.parts[part].nodeValue = this.texts[part] = text;
    return true;
  }

  /** @param {string} gap */
  writeGap(gap) {
    if (this.gap === gap) return;
    this.gap = gap;
    if (gap) this.score.dataset.gap = gap;
    else delete this.score.dataset.gap;
  }

  /** @param {number} width of the bar, in percent */
  writeBar(width) {
    if (this.bar && this.width !== width) this.bar.setAttribute("width", `${(this.width = width)}%`);
  }
}

/** The name of a member, with a link to an address if there is one. @param {string} member @param {string | number | null | undefined} address */
export function linkedName(member, address) {
  const shown = nameWords(member);
  const text = isolated(shown);
  if (shown !== member) text.title = member;
  if (address) text.append(made("a", { href: `${address}` }, ...text.childNodes));
  return text;
}

/** @param {string} member @param {Shape} shape */
export function newRow(member, { columns, bars, trends, link, own, parts }) {
  const name = made("th", { scope: "row" });
  if (trends) name.append(drawing({ class: "trend", viewBox: "0 0 100 20", preserveAspectRatio: "none" }, "polyline"));
  name.append(linkedName(member, link && link(member)));
  if (bars) name.append(drawing({ class: "bar" }, "rect"));
  const cells = Array.from({ length: columns }, () => made("td", { class: "score" }));
  const row = /** @type {HTMLTableRowElement} */ (made("tr", { "data-member": member }, made("td", { class: "rank" }), name, ...cells));
  if (member === own) markOwn(row, name);
  //#region parts: left out of the server's pages
  if (parts) for (const one of [row, ...row.cells]) one.setAttribute("part", one === row ? "row" : one.className || "name");
  //#endregion
  return row;
}

/** Mark the row of the member that the reader follows. @param {Element} row @param {HTMLElement} name its cell with the name */
export function markOwn(row, name) {
  row.classList.add("me", "own");
  name.dataset.note = translate("you");
}

/** An SVG image that is only decoration. @param {Object<string, string>} attributes @param {string} shape */
function drawing(attributes, shape) {
  const [whole, part] = ["svg", shape].map((name) => document.createElementNS(SVG, name));
  for (const [name, value] of Object.entries(attributes)) whole.setAttribute(name, value);
  whole.setAttribute("role", "none");
  whole.append(part);
  return whole;
}
