/** Finds members by name: first in the rows of the page, and if no row matches, on the server. */
import { made, write } from "./client/parts.js";
import { placeWords, translate } from "./client/words.js";
import { linkedName } from "./client/view.js";
import { recordAddress } from "./page.js";

const TYPING_REST = 400; // milliseconds without input before the server is asked
const MOST_FOUND = 10; // members in the answer of the server

/** @typedef {{key: string, rank: number | null}} Found */

/** @param {import("./tools.js").Shown[]} shown @param {(text: string) => void} announce */
export function startFind(shown, announce) {
  const field = /** @type {HTMLInputElement} */ (document.getElementById("find"));
  const list = document.getElementById("found"); // only pages of a single board have this element
  let timer = 0;
  let asked = "";

  const mark = () => {
    const text = formOf(field.value.trim());
    let first = /** @type {HTMLElement | undefined} */ (undefined);
    for (const { table } of shown) {
      for (const row of table.body.rows) {
        const isHit = beginsWord(text, formOf(`${row.dataset.member}\n${row.querySelector("bdi")?.textContent}`));
        row.classList.toggle("hit", isHit);
        if (isHit) first ??= row;
      }
    }
    field.toggleAttribute("data-missed", text !== "" && !first);
    return first;
  };

  const ask = async () => {
    const text = field.value.trim();
    clearTimeout(timer);
    if (!list || !text || text === asked) return;
    asked = text;
    const { board, root, records = "" } = /** @type {HTMLElement} */ (list.closest("section")).dataset;
    const query = new URLSearchParams({ prefix: text, limit: String(MOST_FOUND) });
    const answer = await fetch(`${root}v1/boards/${board}/records?${query}`).catch(() => null);
    const found = answer?.ok ? await answer.json() : null;
    if (!found) asked = ""; // so that the same text can be sent again
    if (!found || text !== field.value.trim()) return;
    const members = found.records.map((/** @type {Found} */ one) => item(one, records));
    const none = members.length ? "" : translate("found_none", { name: text });
    const more = found.next_cursor ? translate(members.length ? "found_more" : "found_part") : "";
    list.firstElementChild?.replaceChildren(...members);
    write(list.lastElementChild, `${none} ${more}`.trim());
    list.hidden = false;
    field.toggleAttribute("data-missed", none !== "");
    announce(none || members.map((/** @type {Element} */ one) => one.textContent).join(", "));
  };

  const clear = () => {
    clearTimeout(timer);
    asked = "";
    if (list) list.hidden = true;
  };

  field.addEventListener("input", () => {
    const first = mark();
    clear();
    if (first) first.scrollIntoView({ block: "center" });
    else timer = setTimeout(() => void ask(), TYPING_REST);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    field.value = "";
    mark();
    clear();
    field.blur();
  });
  field.form?.addEventListener("submit", (event) => {
    event.preventDefault();
    void ask();
  });
  if (field.value && !mark()) field.toggleAttribute("data-missed", !list?.querySelector("li"));
}

/** @param {Found} found @param {string} records the address of the pages of all records */
function item({ key: member, rank }, records) {
  return made("li", { "data-member": member }, linkedName(member, rank && recordAddress(records, member)), " ", made("span", {}, placeWords(rank, null)[0]));
}

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

/** A text without accents and case, for `beginsWord`. @param {string} text */
export function formOf(text) {
  return text.normalize("NFKD").toLowerCase().replace(ACCENTS, "").replace(LETTER, (letter) => LETTERS[letter]);
}

/** Both are forms from `formOf`. @param {string} wanted @param {string} text */
export function beginsWord(wanted, text) {
  if (!wanted) return false;
  for (let place = text.indexOf(wanted); place >= 0; place = text.indexOf(wanted, place + 1)) {
    const before = Array.from(text.slice(Math.max(0, place - 2), place)).pop();
    const first = String.fromCodePoint(text.codePointAt(place) ?? 0);
    if (before === undefined || !(PART.test(before) && PART.test(first)) || DENSE.test(before) || DENSE.test(first)) return true;
  }
  return false;
}
