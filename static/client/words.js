// @ts-check
/** Puts gaps and metadata into words, like the server's `words.py`. This module uses no DOM. */
import { grouped, translate } from "./language.js";

export { grouped, momentWords, phrase, setLanguage, translate } from "./language.js";
export { stateWords } from "./status.js";

const LONGEST_NAME = 80;
const NAME_START = 50;
const NAME_END = 29;
const INVISIBLE = /^[\p{Cc}\p{Cf}\p{Z}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]*$/u;
const MOST_MEMBERS = 8;
const MOST_NAME = 32;
const MOST_VALUE = 40;

/**
 * A member as its row shows it: cut in the middle if it is long, and a word for “blank” if it has no visible character.
 *
 * @param {string} key
 */
export function nameWords(key) {
  if (INVISIBLE.test(key)) return translate("blank");
  const points = key.length > LONGEST_NAME ? Array.from(key) : [];
  if (points.length <= LONGEST_NAME) return key;
  return `${points.slice(0, NAME_START).join("")}…${points.slice(-NAME_END).join("")}`;
}

/**
 * How the numbers of a board are written.
 *
 * @typedef {{grouped: (value: number | null) => string}} Writing
 */

/** @type {Writing} for boards without a unit, decimals or durations */
export const plain = { grouped };

/**
 * The gap between a record and the record above it. For the first record, the gap to the record below it.
 *
 * @param {{score: number, rank?: number}} record
 * @param {{score: number, rank: number} | undefined} above
 * @param {{score: number} | undefined} below
 * @param {Writing} [writing]
 */
export function gapWords(record, above, below, writing = plain) {
  const other = above ?? (record.rank === 1 ? below : undefined);
  if (!other) return "";
  const gap = record.score - other.score;
  if (gap === 0) return translate("tied");
  return `${gap > 0 ? "+" : "−"}${writing.grouped(Math.abs(gap))}`;
}

/**
 * The part of all votes that a contestant has.
 *
 * @param {number} votes
 * @param {number | null} total
 */
export function shareWords(votes, total) {
  const tenths = total ? scaled(votes, total, 1000) : 0;
  return `${Math.floor(tenths / 10)}.${tenths % 10}%`;
}

/**
 * How a member moved since the baseline, as symbols and in words; empty if it has the same rank.
 *
 * @param {number} rank
 * @param {number | undefined} before undefined for a member that the baseline does not have
 * @returns {[string, string]}
 */
export function moveWords(rank, before) {
  if (before === undefined) return [translate("new").toUpperCase(), translate("new")];
  const n = before - rank;
  if (n === 0) return ["", ""];
  return n > 0 ? [`▲${grouped(n)}`, translate("up", { n })] : [`▼${grouped(-n)}`, translate("down", { n: -n })];
}

/**
 * A part of a whole, scaled to a size.
 *
 * @param {number} part
 * @param {number} whole
 * @param {number} size
 */
export function scaled(part, whole, size) {
  return Math.floor((size * part) / whole + 0.5);
}

/**
 * How long the bar of a record is, in percent of the first record's bar, down to a quarter of a percent: about a pixel.
 *
 * @param {number} score
 * @param {number} first
 */
export function barWidth(score, first) {
  return first > 0 ? Math.max(0, Math.floor((400 * score) / first)) / 4 : 0;
}

/**
 * The rank of a member in words, in two parts: the first changes seldom, and is read aloud.
 *
 * @param {number | null} rank null if the member is not on the board
 * @param {number | null} gap points behind the next rank; null for the first, and if it is unknown
 * @param {Writing} [writing]
 * @returns {[string, string]}
 */
export function placeWords(rank, gap, writing = plain) {
  if (rank === null) return [translate("not_ranked"), ""];
  const place = translate("rank", { n: rank });
  if (gap === null) return [place, ""];
  return [place, gap ? translate("behind", { n: writing.grouped(gap) }) : translate("tied_with_next")];
}

/**
 * The strings and numbers of a metadata object, each as `name: value`, with long ones cut off.
 *
 * @param {Object<string, unknown> | undefined} metadata
 * @returns {string[]}
 */
export function metadataWords(metadata) {
  const shown = Object.entries(metadata ?? {})
    .filter(([, value]) => typeof value === "string" || typeof value === "number")
    .map(([name, value]) => `${cut(name, MOST_NAME)}: ${cut(String(value), MOST_VALUE)}`);
  return shown.length <= MOST_MEMBERS ? shown : [...shown.slice(0, MOST_MEMBERS), "…"];
}

/**
 * Cut by code points, so that none is split.
 *
 * @param {string} text
 * @param {number} most
 */
function cut(text, most) {
  const points = Array.from(text);
  return points.length <= most ? text : `${points.slice(0, most - 1).join("")}…`;
}
