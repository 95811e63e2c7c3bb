// @ts-check
/** Shows the records of a board in a table body: one draw for each frame, and rows that fly to their new places. */
import { barWidth, gapWords, grouped, metadataWords, moveWords, nameWords, short } from "./words.js";

export { grouped, nameWords, periodWords, placeWords } from "./words.js";

/** @typedef {import("./state.js").BoardRecord} BoardRecord */

const FLIGHT = { duration: 280, easing: "ease-out" };
const GLOW = { duration: 900, easing: "ease-out", pseudoElement: "::after" };
const MOST_GLOWS = 3;
const REST = 1000; // milliseconds between two writes of the rows that are out of sight
const QUIET = 5000; // milliseconds without a heavy draw after which the beat is faster again
const HEAVY = 8; // milliseconds that a draw may take
const BEATS = [0, 150, 400]; // milliseconds between two draws
const CALM_BEAT = 1000; // … with reduced motion
const LARGE = 1e7; // a score from which on it is shortened where there is little room
const HUGE = 1e9; // … and everywhere
const SVG = "http://www.w3.org/2000/svg";
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** The row of one member. What it shows is kept, so that only what changes is written, and nothing is read. */
class Row {
  index = -1;
  from = 0; // pixels from its place where its flight began
  /** @type {Animation | null} */
  flight = null;
  /** @type {string[]} the texts of rank, values and gap */
  texts = [];
  width = -1;
  /** @type {unknown} the ranks that its movement was told against */
  told = undefined;
  /** @type {BoardRecord["metadata"] | null} */
  metadata = null;

  /** @param {HTMLTableRowElement} element */
  constructor(element) {
    this.element = element;
    this.name = element.cells[1];
    this.bar = this.name.querySelector("rect");
    this.line = this.name.querySelector("polyline");
    this.trend = this.line?.getAttribute("points") ?? "";
    const values = [...element.cells].slice(2);
    this.parts = [element.cells[0], ...values].map((cell) => cell.firstChild ?? cell.appendChild(new Text()));
    this.texts = this.parts.map((part) => part.nodeValue ?? "");
    this.score = values[0];
    this.gap = this.score.dataset.gap ?? "";
    this.isShort = "short" in this.score.dataset || "tight" in this.score.dataset;
  }

  /** Where it is now, in pixels from its place. */
  offset() {
    return this.flight ? this.from * (1 - (this.flight.effect?.getComputedTiming().progress ?? 1)) : 0;
  }

  /** @param {number} from pixels from its place */
  fly(from) {
    this.flight?.cancel();
    this.from = from;
    const { style } = this.element;
    style.zIndex = from > 0 ? "1" : ""; // risers pass in front
    const faller = from < 0 ? { opacity: [0.7, 1] } : {};
    const flight = this.element.animate({ transform: [`translateY(${from}px)`, "none"], ...faller }, FLIGHT);
    flight.onfinish = () => {
      this.flight = null;
      style.zIndex = "";
    };
    this.flight = flight;
  }

  /**
   * @param {number} part
   * @param {string} text
   * @returns {boolean} whether it was another text
   */
  write(part, text) {
    if (this.texts[part] === text) return false;
    this.parts[part].nodeValue = this.texts[part] = text;
    return true;
  }

  /**
   * Write the score, and where it may not fit also a short form of it.
   *
   * @param {number} score
   */
  writeScore(score) {
    const size = Math.abs(score);
    if (!this.write(1, grouped(score)) || (size < LARGE && !this.isShort)) return;
    const { dataset } = this.score;
    delete dataset.short;
    delete dataset.tight;
    this.isShort = size >= LARGE;
    if (this.isShort) dataset[size < HUGE ? "tight" : "short"] = short(score);
    if (this.isShort) this.score.title = this.texts[1];
    else this.score.removeAttribute("title");
  }

  /** @param {string} gap */
  writeGap(gap) {
    this.gap = gap;
    if (gap) this.score.dataset.gap = gap;
    else delete this.score.dataset.gap;
  }

  /**
   * Write how far the member has moved.
   *
   * @param {number} rank
   * @param {number | undefined} before
   */
  writeMove(rank, before) {
    const [seen, heard] = moveWords(rank, before);
    const { dataset } = this.element.cells[0];
    if ((dataset.move ?? "") === seen) return;
    if (seen) [dataset.move, dataset.moved] = [seen, heard];
    else this.clearMove();
  }

  clearMove() {
    const { dataset } = this.element.cells[0];
    delete dataset.move;
    delete dataset.moved;
  }
}

/**
 * @typedef {{columns: number, bars: boolean, trends: boolean, own?: string, link?: ((key: string) => string | null) | ""}} Shape
 * @typedef {{fields?: string[], gaps?: boolean, onDraw?: () => void} & Partial<Shape>} Options
 *   `fields`: the columns, if they are not the score; `onDraw` is called with each draw; `link` returns the address of a
 *   member's page; `own` is the member whose row stands out
 */
export class TableView {
  /** @type {Map<string, Row>} */
  #rows = new Map();
  /** @type {readonly BoardRecord[]} */
  #records = [];
  /** @type {number[]} heights of the first rows; the last is that of all others */
  #heights = [];
  #timer = 0;
  #asked = false;
  #drawnAt = -Infinity;
  #restedAt = -Infinity; // when all rows were written last
  #beat = 0;
  #heavyAt = -Infinity;
  #glows = 0;
  /** @type {Map<string, number> | null | undefined} ranks to compare with; null: there are none; undefined: unknown yet */
  #before;
  /** @type {Map<string, string> | undefined} points of sparklines */
  #trends;

  /**
   * @param {HTMLTableSectionElement} body as the server renders it, or empty
   * @param {Options} [options]
   */
  constructor(body, { fields = [], bars = false, gaps = false, trends = false, link, own, onDraw = () => {} } = {}) {
    this.body = body;
    this.fields = fields;
    this.shape = { columns: fields.length || 1, bars, trends, link, own };
    this.gaps = gaps;
    this.onDraw = onDraw;
    for (const [index, element] of [...body.rows].entries()) {
      const row = new Row(element);
      row.index = index;
      this.#rows.set(element.dataset.key ?? "", row);
    }
    new ResizeObserver(() => this.#measure()).observe(body.closest("table") ?? body);
    addEventListener("scroll", () => this.#ask(), { passive: true });
  }

  /** The least time between two draws; more than 0 while the page has much to do. */
  get beat() {
    return calm.matches ? CALM_BEAT : BEATS[this.#beat];
  }

  /**
   * Show records with the next frame: the latest, if more come until then.
   *
   * @param {readonly BoardRecord[]} records
   */
  show(records) {
    this.#records = records;
    this.#ask();
  }

  /**
   * Show how records have moved since they had these ranks.
   *
   * @param {Map<string, number> | null} before
   */
  compare(before) {
    if (before === this.#before) return;
    this.#before = before;
    this.#refresh();
  }

  /**
   * Show a sparkline in each row that has one.
   *
   * @param {Map<string, string>} trends their points
   */
  setTrends(trends) {
    this.#trends = trends;
    this.#refresh();
  }

  /** Write all rows with the next draw. */
  #refresh() {
    this.#restedAt = -Infinity;
    if (this.#records.length) this.#ask();
  }

  /** Draw with the next frame, or when the beat allows it; never while the page is hidden. */
  #ask() {
    if (this.#asked) return;
    this.#asked = true;
    const pause = this.#drawnAt + this.beat - performance.now();
    const draw = () => requestAnimationFrame((now) => this.#draw(now));
    if (pause > 0) setTimeout(draw, pause);
    else draw();
  }

  #measure() {
    this.#heights = [...this.body.rows].slice(0, 4).map((row) => row.offsetHeight);
  }

  /** @param {number} index */
  #top(index) {
    const heights = this.#heights;
    let top = 0;
    for (let i = 0; i < Math.min(index, 3); i++) top += heights[i] ?? heights.at(-1) ?? 0;
    return index > 3 ? top + (index - 3) * (heights[3] ?? 0) : top;
  }

  /** @param {number} now */
  #draw(now) {
    const began = performance.now();
    this.#asked = false;
    this.#drawnAt = now;
    const box = this.body.getBoundingClientRect(); // the only read, and before all writes
    const sees = (/** @type {number} */ index) =>
      this.#top(index + 1) + box.top > 0 && this.#top(index) + box.top < innerHeight;
    const isWhole = now - this.#restedAt >= REST;
    const rows = this.#records.map((record) => this.#rowOf(record));
    const moved = rows.filter((row, index) => row.index !== index);
    const offsets = calm.matches ? [] : moved.map((row) => (row.index < 0 ? 0 : this.#top(row.index) + row.offset()));
    this.#place(rows);
    this.#records.forEach((record, index) => {
      const row = rows[index];
      if (isWhole || row.index < 0 || sees(index) || sees(row.index)) this.#write(row, record, index);
    });
    if (!calm.matches) this.#move(moved, offsets, rows, sees);
    rows.forEach((row, index) => (row.index = index));
    if (isWhole) this.#restedAt = now;
    clearTimeout(this.#timer);
    if (!isWhole) this.#timer = setTimeout(() => this.#ask(), REST);
    this.onDraw();
    this.#pace(now, performance.now() - began > HEAVY, moved.length * 3 > rows.length && rows.length > 20);
  }

  /**
   * Draw more rarely while draws are heavy, and faster after a quiet time.
   *
   * @param {number} now
   * @param {boolean} isHeavy
   * @param {boolean} isBusy
   */
  #pace(now, isHeavy, isBusy) {
    if (isHeavy || isBusy) {
      this.#heavyAt = now;
      this.#beat = Math.max(this.#beat, isHeavy ? Math.min(this.#beat + 1, BEATS.length - 1) : 1);
    } else if (this.#beat && now - this.#heavyAt > QUIET) {
      this.#heavyAt = now;
      this.#beat--;
    }
  }

  /** @param {BoardRecord} record */
  #rowOf({ key }) {
    let row = this.#rows.get(key);
    if (!row) {
      row = new Row(newRow(key, this.shape));
      this.#rows.set(key, row);
    }
    return row;
  }

  /**
   * Put the rows into the document in their order, with few moves, and take out those that left.
   *
   * @param {Row[]} rows
   */
  #place(rows) {
    const { body } = this;
    let cursor = body.firstElementChild;
    for (const { element } of rows) {
      while (cursor && cursor !== element && cursor.nextElementSibling === element) {
        move(body, cursor, null); // one row fell, instead of all others rising
        cursor = element;
      }
      if (cursor === element) cursor = element.nextElementSibling;
      else move(body, element, cursor);
    }
    while (cursor) {
      const next = cursor.nextElementSibling;
      this.#rows.delete(/** @type {HTMLElement} */ (cursor).dataset.key ?? "");
      cursor.remove();
      cursor = next;
    }
  }

  /**
   * @param {Row} row
   * @param {BoardRecord} record
   * @param {number} index
   */
  #write(row, record, index) {
    const before = this.#before;
    if (row.write(0, grouped(record.rank)) || row.told !== before) {
      if (before) row.writeMove(record.rank, before.get(record.key));
      else if (before === null) row.clearMove();
      row.told = before;
    }
    const trend = this.#trends?.get(record.key) ?? row.trend;
    if (row.trend !== trend) row.line?.setAttribute("points", (row.trend = trend));
    if (row.metadata !== record.metadata) {
      describe(row.name, metadataWords(record.metadata));
      row.metadata = record.metadata;
    }
    if (this.fields.length) this.fields.forEach((field, i) => row.write(i + 1, grouped(record.fields?.[field] ?? null)));
    else row.writeScore(record.score);
    const gap = this.gaps ? gapWords(record, this.#records[index - 1]) : "";
    if (row.gap !== gap) row.writeGap(gap);
    const width = barWidth(record.score, this.#records[0].score);
    if (row.bar && row.width !== width) row.bar.setAttribute("width", String((row.width = width)));
  }

  /**
   * Let the rows that can be seen fly from where they were to where they are.
   *
   * @param {Row[]} moved
   * @param {number[]} offsets where each was
   * @param {Row[]} rows
   * @param {(index: number) => boolean} sees
   */
  #move(moved, offsets, rows, sees) {
    const places = new Map(rows.map((row, index) => [row, index]));
    moved.forEach((row, i) => {
      const index = places.get(row) ?? 0;
      if (!sees(index) && !sees(row.index)) {
        row.flight?.finish();
      } else if (row.index < 0) {
        row.element.animate({ opacity: [0, 1] }, FLIGHT);
      } else {
        row.fly(offsets[i] - this.#top(index));
        if (index < row.index && this.#glows < MOST_GLOWS) this.#glow(row);
      }
    });
  }

  /** @param {Row} row */
  #glow(row) {
    this.#glows++;
    row.name.animate({ opacity: [1, 0] }, GLOW).onfinish = () => this.#glows--;
  }
}

/**
 * Move an element, with its focus and its animations where the browser can.
 *
 * @param {any} parent
 * @param {Element} element
 * @param {Element | null} before
 */
function move(parent, element, before) {
  if (element.parentNode === parent && parent.moveBefore) parent.moveBefore(element, before);
  else parent.insertBefore(element, before);
}

/**
 * @param {string} key
 * @param {Shape} shape
 */
function newRow(key, { columns, bars, trends, link, own }) {
  const row = document.createElement("tr");
  row.dataset.key = key;
  if (key === own) row.className = "me";
  const name = document.createElement("th");
  name.scope = "row";
  if (bars) name.append(drawing("bar", "0 0 100 1", "rect", { width: 0, height: 1 }));
  if (trends) name.append(drawing("trend", "0 0 100 20", "polyline", { points: "" }));
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
  row.append(cell("rank"), name, ...Array.from({ length: columns }, () => cell("score")));
  return row;
}

/**
 * A decoration that is stretched to its box.
 *
 * @param {string} kind
 * @param {string} box
 * @param {string} shape
 * @param {Object<string, string | number>} attributes of the shape
 */
function drawing(kind, box, shape, attributes) {
  const whole = element("svg", { class: kind, viewBox: box, preserveAspectRatio: "none", "aria-hidden": "true" });
  whole.append(element(shape, attributes));
  return whole;
}

/**
 * @param {string} name
 * @param {Object<string, string | number>} attributes
 */
function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, String(value));
  return made;
}

/**
 * Put a small line about a record under its name, or take it away.
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
  name.append(line);
}

/**
 * Text that keeps its direction to itself.
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
