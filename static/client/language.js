// @ts-check
/** The language of the texts: English or the language of the page's script, until another language is set. */
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
 * A time in the viewer's zone: `14:00`, or `21 November 2026, 14:00` if that is not today. Seconds are left out if they
 * are 0. The server writes UTC in the same way.
 *
 * @param {number} time milliseconds since 1970
 * @param {number} [now] the time by the clock of the server, as `board.now()` tells it
 */
export function momentWords(time, now = Date.now()) {
  const at = new Date(time);
  const clock = at.toTimeString().slice(0, 8).replace(/:00$/, "");
  if (at.toDateString() === new Date(now).toDateString()) return clock;
  const month = translate("month_names").split(" ")[at.getMonth()];
  return translate("moment", { year: String(at.getFullYear()), month, day: String(at.getDate()), time: clock });
}

/**
 * A sentence of the table. If the sentence counts something, `n` chooses its form.
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
