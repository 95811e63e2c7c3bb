// @ts-check
/** The race tape: the places of the first ten over time, as lines. */
import { say, stories, storyWords } from "./client/stories.js";
import { momentWords } from "./client/words.js";
import { nameIn } from "./story.js";

export const TAPED = 10; // members with a line
const TAPE_STORIES = 3; // stories in the description of the lines
const LANE = 6; // pixels between two places
const TAPE_WIDTH = 1000;
const SVG_NAMES = "http://www.w3.org/2000/svg";

/**
 * @typedef {{key: string, steps: {at: string, score: number | null, rank: number | null}[]}} History
 * @typedef {[at: number, rank: number | null]} Point
 */

/**
 * The line of a member, as the data of an SVG path. It has gaps where the member had no rank. Ranks below the tenth are
 * drawn below the last lane.
 *
 * @param {readonly Point[]} points
 * @param {number} begin
 * @param {number} end
 */
function pathOf(points, begin, end) {
  let isCut = true;
  let path = "";
  for (const [at, rank] of points) {
    if (rank !== null && at >= begin) {
      const x = ((at - begin) / (end - begin)) * TAPE_WIDTH;
      path += `${isCut ? "M" : "L"}${x.toFixed(1)} ${(Math.min(rank, TAPED + 1) - 0.5) * LANE}`;
    }
    isCut = rank === null || at < begin;
  }
  return path;
}

/**
 * The records at one of the steps, ordered by rank, for `stories`.
 *
 * @param {readonly History[]} records
 * @param {number} step
 */
function momentOf(records, step) {
  const found = records.flatMap(({ key, steps }) => {
    const { rank, score } = steps[step];
    return rank === null || score === null ? [] : { key, rank, score };
  });
  const at = Date.parse(records[0].steps[step].at);
  return { at, epoch: "", records: found.sort((one, other) => one.rank - other.rank) };
}

export class Tape {
  /** @type {Map<string, Point[]>} */
  #points = new Map();
  /** @type {Map<string, SVGPathElement>} */
  #lines = new Map();

  /**
   * @param {HTMLElement} element
   * @param {import("./client/view.js").TableView} table a line lights up while its row has the pointer or the focus
   * @param {string | undefined} own the member whose line is bold
   */
  constructor(element, table, own) {
    this.table = table;
    this.own = own;
    this.hasLines = "lines" in element.dataset; // not on boards with `clock = "event"`, whose slots have no time of day
    this.drawing = document.createElementNS(SVG_NAMES, "svg");
    this.drawing.setAttribute("viewBox", `0 0 ${TAPE_WIDTH} ${LANE * TAPED}`);
    this.drawing.setAttribute("preserveAspectRatio", "none");
    this.drawing.setAttribute("role", "none");
    element.prepend(this.drawing);
    const { body } = table;
    for (const name of ["pointerover", "focusin"]) body.addEventListener(name, (event) => this.#light(event.target));
    for (const name of ["pointerleave", "focusout"]) body.addEventListener(name, () => this.#light(null));
  }

  /**
   * Begin the lines with the ranks that the server knows. The ranks that were noted later follow.
   *
   * @param {readonly History[]} records
   */
  take(records) {
    if (!this.hasLines) return;
    for (const { key, steps } of records) {
      const known = steps.map(({ at, rank }) => /** @type {Point} */ ([Date.parse(at), rank]));
      const last = known.at(-1)?.[0] ?? 0;
      this.#points.set(key, [...known, ...(this.#points.get(key) ?? []).filter(([at]) => at > last)]);
    }
    if (!records.length || records[0].steps.length < 2) return;
    this.drawing.setAttribute("role", "img");
    this.drawing.setAttribute("aria-label", this.#words(records));
  }

  /**
   * Take note of the places now.
   *
   * @param {number} at
   * @param {readonly import("./client/state.js").BoardRecord[]} records
   */
  note(at, records) {
    if (!this.hasLines) return;
    const ranks = new Map(records.map(({ key, rank }) => [key, rank]));
    for (const { key } of records.slice(0, TAPED)) if (!this.#points.has(key)) this.#points.set(key, []);
    for (const [key, points] of this.#points) {
      const place = ranks.get(key);
      const rank = place === undefined ? null : Math.min(place, TAPED + 1); // all ranks below the tenth share one lane
      const last = points.at(-1);
      if (last?.[1] === rank && points.at(-2)?.[1] === rank) last[0] = at; // an unchanged rank needs only two points
      else points.push([at, rank]);
    }
  }

  /**
   * @param {number} begin
   * @param {number} end
   */
  draw(begin, end) {
    for (const [key, points] of this.#points) {
      while (points[1]?.[0] < begin) points.shift();
      let line = this.#lines.get(key);
      if (points.every(([, rank]) => rank === null || rank > TAPED)) {
        line?.remove();
        this.#lines.delete(key);
        this.#points.delete(key);
        continue;
      }
      if (!line) {
        line = document.createElementNS(SVG_NAMES, "path");
        if (key === this.own) line.classList.add("own");
        this.#lines.set(key, line);
        this.drawing.append(line);
      }
      line.setAttribute("d", pathOf(points, begin, end));
      line.dataset.rank = String(points.at(-1)?.[1] ?? "");
    }
  }

  /** @param {EventTarget | null} target in a row */
  #light(target) {
    const row = target instanceof Element ? target.closest("tr") : null;
    for (const [key, line] of this.#lines) line.classList.toggle("lit", key === row?.dataset.key);
  }

  /**
   * Describe in words when the lines begin, and what has happened since.
   *
   * @param {readonly History[]} records
   */
  #words(records) {
    const [before, after] = [momentOf(records, 0), momentOf(records, records[0].steps.length - 1)];
    const nameOf = (/** @type {string} */ key) => nameIn(this.table.body, key);
    const told = stories(before, after, false).slice(0, TAPE_STORIES);
    const news = told.map((story) => say("story", { name: nameOf(story.key), what: storyWords(story, nameOf) }));
    return [say("tape", { time: momentWords(before.at) }), ...news].join(". ");
  }
}
