/** Titles and pictures of members, for rows that a script has added. */
import { made } from "./dom.js";

/** @typedef {{key: string, title: string, image?: string}} Item */

const ASK_REST = 1000; // milliseconds between two requests
const FAULT_REST = 10_000; // milliseconds from a request that failed to the next one
const MOST_ASKED = 100; // members in one request

/** Shows the titles of members in their rows, and asks the server for unknown titles. */
export class Items {
  /** @type {Map<string, Item | null>} */
  #known = new Map();
  /** @type {WeakSet<Element>} rows that show the known title of their member */
  #done = new WeakSet();
  #isAsking = false;

  /** @param {string} server its address @param {() => Iterable<Element>} rows each with its member as `data-member` */
  constructor(server, rows) {
    this.server = server;
    this.rows = rows;
  }

  /** Take note of rows that the server has rendered with their titles. */
  skip() {
    this.#done = new WeakSet(this.rows());
  }

  /** Show known titles in rows that are in a document, and request the others. */
  show() {
    const missing = new Set();
    for (const row of /** @type {Iterable<HTMLElement>} */ (this.rows())) {
      if (this.#done.has(row) || !row.isConnected) continue;
      const member = row.dataset.member ?? "";
      const item = this.#known.get(member);
      if (item === undefined) {
        missing.add(member);
      } else {
        this.#done.add(row);
        writeItem(row, item ?? { key: member, title: row.querySelector("bdi")?.textContent || "?" });
      }
    }
    if (missing.size && !this.#isAsking) void this.#ask([...missing].slice(0, MOST_ASKED));
  }

  /** @param {string[]} members */
  async #ask(members) {
    this.#isAsking = true;
    let rest = ASK_REST;
    try {
      const response = await fetch(`${this.server}/v1/items?${new URLSearchParams(members.map((member) => ["key", member]))}`);
      const found = new Map((await response.json()).items.map((/** @type {Item} */ item) => [item.key, item]));
      for (const member of members) this.#known.set(member, found.get(member) ?? null);
      this.show();
    } catch {
      rest = FAULT_REST; // meanwhile, the rows show their members
    }
    setTimeout(() => {
      this.#isAsking = false;
      this.show();
    }, rest);
  }
}

/** @param {HTMLElement} row @param {Item} item */
function writeItem(row, item) {
  const name = row.querySelector("bdi");
  if (!name) return;
  (name.querySelector("a") ?? name).textContent = item.title;
  if (!(row instanceof HTMLTableRowElement)) return;
  if (item.title !== item.key) name.title = item.key;
  const table = row.closest("table");
  if (!table) return;
  if (item.image && !("pictures" in table.dataset)) showLetters(table);
  if (!("pictures" in table.dataset)) return;
  row.querySelector(".picture")?.remove();
  name.before(pictureOf(item));
}

/** Begin the column of pictures, with a letter in each row. @param {HTMLTableElement} table */
function showLetters(table) {
  table.dataset.pictures = "";
  for (const name of table.querySelectorAll("tr[data-member] bdi:first-of-type"))
    if (name.parentElement?.matches("th") && !name.parentElement.querySelector(".picture")) name.before(pictureOf({ key: "", title: name.textContent || "?" }));
}

/** Show an initial in place of each picture that can't be loaded. @param {Document} page */
export function replaceBroken(page) {
  const replace = (/** @type {unknown} */ image) => {
    if (!(image instanceof HTMLImageElement) || !image.matches(".picture")) return;
    const title = image.parentElement?.querySelector("bdi")?.textContent || "?";
    image.replaceWith(pictureOf({ key: "", title }));
  };
  page.addEventListener("error", ({ target }) => replace(target), true);
  for (const image of [...page.images]) if (image.complete && !image.naturalWidth && image.currentSrc) replace(image);
}

/** @param {Item} item */
function pictureOf({ title, image }) {
  if (image) return made("img", { class: "picture", alt: "", referrerpolicy: "no-referrer", src: image });
  return made("span", { class: "picture", "aria-hidden": "true" }, title.match(/[\p{L}\p{N}]/u)?.[0] ?? [...title][0]);
}
