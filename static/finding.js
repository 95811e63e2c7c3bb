// @ts-check
/**
 * How members are found by their names and titles: from the beginning of any word, without accents and case. The
 * server's `text.py` follows the same rule. This module uses no DOM.
 */

/** @type {Object<string, string>} letters that are not a base letter with an accent, but that people type as other letters */
const LETTERS = {
  "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ħ": "h", "ı": "i", "ł": "l", "ŋ": "n",
  "ŧ": "t", "ς": "σ", "\u02bb": "'", "\u02bc": "'", "\u2018": "'", "\u2019": "'",
};
const LETTER = new RegExp(`[${Object.keys(LETTERS).join("")}]`, "g");
// Accents of Latin, Greek and Cyrillic letters, and the points of Hebrew and Arabic letters.
const ACCENTS =
  /[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1-\u05c2\u05c4-\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]/g;
// Writing without spaces between words: Thai and its neighbours, Chinese characters and kana. A word may begin anywhere.
const DENSE = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\u{20000}-\u{3ffff}]/u;
const PART = /[\p{L}\p{M}\p{N}]/u;

/**
 * A text without accents and case, for `beginsWord`.
 *
 * @param {string} text
 */
export function formOf(text) {
  return text.normalize("NFKD").toLowerCase().replace(ACCENTS, "").replace(LETTER, (letter) => LETTERS[letter]);
}

/**
 * Whether a word of a text begins with what is wanted. Both are forms from `formOf`.
 *
 * @param {string} wanted
 * @param {string} text
 */
export function beginsWord(wanted, text) {
  if (!wanted) return false;
  for (let place = text.indexOf(wanted); place >= 0; place = text.indexOf(wanted, place + 1)) {
    const before = Array.from(text.slice(Math.max(0, place - 2), place)).pop();
    const first = String.fromCodePoint(text.codePointAt(place) ?? 0);
    if (before === undefined || !(PART.test(before) && PART.test(first)) || DENSE.test(before) || DENSE.test(first)) return true;
  }
  return false;
}
