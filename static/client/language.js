// @ts-check
/** The language in which boards speak: English, or the one that the script of a page was made for, until it sets another. */
import { tag, words } from "./words/en.js";

/**
 * @typedef {{one?: string, other: string}} Counted what is said of one, and of any other number
 * @typedef {"hour" | "day" | "week" | "month" | "quarter" | "year"} Unit of a calendar
 * @typedef {{[name in keyof typeof words]: (typeof words)[name] extends string ? string : Counted}} Table
 */

/** @type {Table} */
let dictionary;
/** @type {Intl.NumberFormat} */
let numbers;
/** @type {Intl.PluralRules} */
let plurals;
/** @type {Intl.DateTimeFormat} */
let times;
setLanguage(tag, words);

/**
 * Speak another language from now on.
 *
 * @param {string} tag such as `zh-Hans`
 * @param {Table} words
 */
export function setLanguage(tag, words) {
  dictionary = words;
  numbers = new Intl.NumberFormat(tag);
  plurals = new Intl.PluralRules(tag);
  times = new Intl.DateTimeFormat(tag, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
}

/**
 * A number with its thousands apart; none is a dash.
 *
 * @param {number | null} value
 */
export function grouped(value) {
  return value === null ? "–" : numbers.format(value);
}

/**
 * A time of the day in the viewer's zone.
 *
 * @param {number} time milliseconds since 1970
 */
export function clock(time) {
  return times.format(time);
}

/**
 * A sentence of the table. `n` chooses between the forms of a counted one.
 *
 * @param {keyof Table} name
 * @param {Object<string, string | number>} [values] what stands in braces; numbers are grouped
 */
export function say(name, values = {}) {
  const said = dictionary[name];
  const text = typeof said === "string" ? said : (plurals.select(Number(values.n)) === "one" && said.one) || said.other;
  return text.replace(/\{(\w+)\}/g, (_, hole) => {
    const value = values[hole];
    return typeof value === "number" ? grouped(value) : value;
  });
}

/**
 * Why a board is not live, as people read it. The server's own words, if the table has none for them.
 *
 * @param {string} reason
 */
export function reasonWords(reason) {
  const name = /** @type {keyof Table} */ (`reason: ${reason}`);
  return name in dictionary ? say(name) : reason;
}
