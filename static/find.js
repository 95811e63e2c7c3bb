// @ts-check
/** Finds members by name: first in the rows of the page, and if no row matches, on the server. */
import { beginsWord, formOf } from "./finding.js";
import { say } from "./client/stories.js";
import { nameWords, placeWords } from "./client/words.js";
import { recordAddress, write } from "./page.js";

const TYPING_REST = 400; // milliseconds without input before the server is asked
const MOST_FOUND = 10; // members in the answer of the server

/** @typedef {{key: string, rank: number | null}} Found */

/**
 * @param {import("./tools.js").Shown[]} shown
 * @param {(text: string) => void} announce
 */
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
        const isHit = beginsWord(text, formOf(`${row.dataset.key}\n${row.querySelector("bdi")?.textContent}`));
        row.classList.toggle("hit", isHit);
        if (isHit) first ??= row;
      }
    }
    field.toggleAttribute("data-missed", text !== "" && !first);
    return first;
  };

  const ask = async () => {
    const text = field.value.trim();
    const { board, root, records = "" } = /** @type {HTMLElement} */ (list?.closest("section")).dataset;
    if (!list || !text || text === asked) return;
    asked = text;
    const query = new URLSearchParams({ prefix: text, limit: String(MOST_FOUND) });
    const answer = await fetch(`${root}v1/boards/${board}/records?${query}`).catch(() => null);
    const found = answer?.ok ? await answer.json() : null;
    if (text !== field.value.trim()) return;
    if (!found) {
      asked = ""; // so that the same text can be sent again
      return;
    }
    const members = found.records.map((/** @type {Found} */ one) => item(one, records));
    const none = members.length ? "" : say("found_none", { name: text });
    const more = found.next_cursor ? say(members.length ? "found_more" : "found_part") : "";
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

/**
 * @param {Found} found
 * @param {string} records the address of the pages of all records
 */
function item({ key, rank }, records) {
  const made = document.createElement("li");
  made.dataset.key = key;
  const name = document.createElement("bdi");
  const address = rank ? recordAddress(records, key) : null;
  if (address) {
    const link = document.createElement("a");
    link.href = address;
    link.textContent = nameWords(key);
    name.append(link);
  } else {
    name.textContent = nameWords(key);
  }
  const place = document.createElement("span");
  place.textContent = placeWords(rank, null)[0];
  made.append(name, " ", place);
  return made;
}
