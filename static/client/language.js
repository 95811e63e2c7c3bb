// @ts-check
/** The language of the texts: English, or that of the page's script, until another one is set. */
import { tag, words } from "./words/en.js";

/**
 * @typedef {{one?: string, other: string}} Counted the forms for one, and for any other number
 * @typedef {"hour" | "day" | "week" | "month" | "quarter" | "year"} Unit of a calendar
 * @typedef {{[name in keyof typeof words]: (typeof words)[name] extends string ? string : Counted}} Table
 * @typedef {{[name in keyof typeof import("./words/story/en.js").storyTable]: string | Counted}} StoryTable
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
 * Use another language from now on.
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
 * A number with thousands separators and a true minus; null is a dash.
 *
 * @param {number | null} value
 */
export function grouped(value) {
  return value === null ? "–" : numbers.format(value).replace("-", "−");
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
 * @param {Object<string, string | number>} [values] the values in braces; numbers are grouped
 */
export function translate(name, values = {}) {
  return phrase(dictionary[name], values);
}

/**
 * A sentence with its values.
 *
 * @param {string | Counted} message
 * @param {Object<string, string | number>} values
 */
export function phrase(message, values) {
  const text = typeof message === "string" ? message : (plurals.select(Number(values.n)) === "one" && message.one) || message.other;
  return text.replace(/\{(\w+)\}/g, (_, hole) => {
    const value = values[hole];
    return typeof value === "number" ? grouped(value) : value;
  });
}

/**
 * Why a board is not live, in words; the server's text if the table has no translation.
 *
 * @param {string} reason
 */
export function reasonWords(reason) {
  const name = /** @type {keyof Table} */ (`reason: ${reason}`);
  return name in dictionary ? translate(name) : reason;
}
