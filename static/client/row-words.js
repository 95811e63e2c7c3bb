/** Numbers, names and gaps as rows show them, in the language of the page. No DOM. */
import { few, tag } from "./words/few/en.js";

const LONGEST_NAME = 80;
const NAME_START = 50;
const NAME_END = 29;
const INVISIBLE = /^[\p{Cc}\p{Cf}\p{Z}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]*$/u;

/**
 * @typedef {{one?: string, other: string}} Counted the forms for one, and for any other number
 * @typedef {"hour" | "day" | "week" | "month" | "quarter" | "year"} Unit of a calendar
 * @typedef {typeof import("./words/en.js").words} English
 * @typedef {{[name in keyof English]: English[name] extends string ? string : Counted}} Table
 */

/** @type {Partial<Table>} */
let dictionary;
/** @type {Intl.NumberFormat} */
let numbers;
/** @type {Intl.PluralRules} */
let plurals;
setLanguage(tag, few);

/** Use another language from now on. @param {string} tag such as `zh-Hans` @param {Partial<Table>} words */
export function setLanguage(tag, words) {
  dictionary = words;
  numbers = new Intl.NumberFormat(tag);
  plurals = new Intl.PluralRules(tag);
}

/** A number with thousands separators and a true minus; null is a dash. @param {number | null} value */
export function grouped(value) {
  return value === null ? "–" : numbers.format(value).replace("-", "−");
}

/** A sentence with its values; `n` chooses its form. @param {keyof Table} name @param {Object<string, string | number>} [values] */
export function translate(name, values = {}) {
  const message = dictionary[name] ?? "";
  const text = typeof message === "string" ? message : (plurals.select(Number(values.n)) === "one" && message.one) || message.other;
  return text.replace(/\{(\w+)\}/g, (_, hole) => {
    const value = values[hole];
    return typeof value === "number" ? grouped(value) : value;
  });
}

/** A member as its row shows it: cut in the middle if it is long; a word for “blank” without visible text. @param {string} member */
export function nameWords(member) {
  if (INVISIBLE.test(member)) return translate("blank");
  const points = member.length > LONGEST_NAME ? Array.from(member) : [];
  if (points.length <= LONGEST_NAME) return member;
  return `${points.slice(0, NAME_START).join("")}…${points.slice(-NAME_END).join("")}`;
}

/** How the numbers of a board are written. @typedef {{grouped: (value: number | null) => string}} Writing */

/** @type {Writing} for boards without a unit, decimals or durations */
export const plain = { grouped };

/**
 * The gap between a record and the record above it. For the first record, the gap to the record below it.
 * @param {{score: number, rank?: number}} record @param {{score: number, rank: number} | undefined} above
 * @param {{score: number} | undefined} below @param {Writing} [writing]
 */
export function gapWords(record, above, below, writing = plain) {
  const other = above ?? (record.rank === 1 ? below : undefined);
  if (!other) return "";
  const gap = record.score - other.score;
  if (gap === 0) return translate("tied");
  return `${gap > 0 ? "+" : "−"}${writing.grouped(Math.abs(gap))}`;
}

/** The part of all votes that a contestant has. @param {number} votes @param {number | null} total */
export function shareWords(votes, total) {
  const tenths = total ? scaled(votes, total, 1000) : 0;
  return `${Math.floor(tenths / 10)}.${tenths % 10}%`;
}

/** A part of a whole, scaled to a size. @param {number} part @param {number} whole @param {number} size */
export function scaled(part, whole, size) {
  return Math.floor((size * part) / whole + 0.5);
}

/** The length of a bar in percent of the first one's, in quarters: about a pixel. @param {number} score @param {number} first */
export function barWidth(score, first) {
  return first > 0 ? Math.max(0, Math.floor((400 * score) / first)) / 4 : 0;
}
