// @ts-check
/** Numbers, periods and metadata as people read them; the server's `words.py` writes them alike. No DOM. */

const MOST_MEMBERS = 8;
const MOST_NAME = 32;
const MOST_VALUE = 40;
const number = new Intl.NumberFormat("en");

/**
 * A number with its thousands apart; none is a dash.
 *
 * @param {number | null} value
 */
export function grouped(value) {
  return value === null ? "–" : number.format(value);
}

/**
 * @param {string} unit
 * @param {string} name
 * @param {string} zone
 */
export function periodWords(unit, name, zone) {
  return `${unit} ${name} in ${zone}`;
}

/**
 * Where a key stands, in two parts: the first changes seldom, and is read aloud.
 *
 * @param {number | null} rank none for a key that is not on the board
 * @param {number | null} gap what it misses to the rank above; none for the first, and where it can't be told
 * @returns {[string, string]}
 */
export function placeWords(rank, gap) {
  if (rank === null) return ["not ranked", ""];
  if (gap === null) return [`rank ${grouped(rank)}`, ""];
  return [`rank ${grouped(rank)}`, gap ? `, ${grouped(gap)} behind the next` : ", tied with the next"];
}

/**
 * The members of a metadata object that are strings or numbers, each as `name: value`, what is long cut off.
 *
 * @param {Object<string, unknown> | undefined} metadata
 * @returns {string[]}
 */
export function metadataWords(metadata) {
  const told = Object.entries(metadata ?? {})
    .filter(([, value]) => typeof value === "string" || typeof value === "number")
    .map(([name, value]) => `${cut(name, MOST_NAME)}: ${cut(String(value), MOST_VALUE)}`);
  return told.length <= MOST_MEMBERS ? told : [...told.slice(0, MOST_MEMBERS), "…"];
}

/**
 * Cut by code points, so that none is broken in two.
 *
 * @param {string} text
 * @param {number} most
 */
function cut(text, most) {
  const points = Array.from(text);
  return points.length <= most ? text : `${points.slice(0, most - 1).join("")}…`;
}
