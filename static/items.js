// @ts-check
/** Titles and pictures of members, for rows that are added to the page; the server renders the first ones. */

/** @typedef {{key: string, title: string, image?: string}} Item */

const ASK_REST = 1000; // milliseconds between two requests
const FAULT_REST = 10_000; // … after one that failed
const MOST = 100; // members in one request
const ROW = ":is(tr, li)[data-key]";

const home = /** @type {HTMLElement | null} */ (document.querySelector("[data-root]"))?.dataset.root ?? "/";
/** @type {Map<string, Item | null>} */
const known = new Map();
/** @type {WeakSet<Element>} rows that show what is known of their member */
const done = new WeakSet(document.querySelectorAll(ROW));
let isAsking = false;

/** Show known titles, and request the others. */
function show() {
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(ROW)].filter((row) => !done.has(row)));
  const missing = new Set();
  for (const row of rows) {
    const key = row.dataset.key ?? "";
    const item = known.get(key);
    if (item === undefined) {
      missing.add(key);
    } else {
      done.add(row);
      if (item) write(row, item);
    }
  }
  if (missing.size && !isAsking) void ask([...missing].slice(0, MOST));
}

/** @param {string[]} members */
async function ask(members) {
  isAsking = true;
  let rest = ASK_REST;
  try {
    const response = await fetch(`${home}v1/items?${new URLSearchParams(members.map((member) => ["key", member]))}`);
    const found = new Map((await response.json()).items.map((/** @type {Item} */ item) => [item.key, item]));
    for (const member of members) known.set(member, found.get(member) ?? null);
    show();
  } catch {
    rest = FAULT_REST; // until then the rows show their members
  }
  setTimeout(() => {
    isAsking = false;
    show();
  }, rest);
}

/**
 * @param {HTMLElement} row
 * @param {Item} item
 */
function write(row, item) {
  const name = row.querySelector("bdi");
  if (!name) return;
  (name.querySelector("a") ?? name).textContent = item.title;
  if (!(row instanceof HTMLTableRowElement)) return;
  name.title = item.key;
  name.before(picture(item));
}

/** @param {Item} item */
function picture({ title, image }) {
  const made = document.createElement(image ? "img" : "span");
  made.className = "picture";
  if (made instanceof HTMLImageElement) {
    made.alt = "";
    made.referrerPolicy = "no-referrer";
    made.src = image ?? "";
  } else {
    made.ariaHidden = "true";
    made.textContent = title.match(/[\p{L}\p{N}]/u)?.[0] ?? [...title][0];
  }
  return made;
}

const observer = new MutationObserver(show);
if (document.querySelector("[data-items]")) {
  for (const list of document.querySelectorAll("tbody, ol")) observer.observe(list, { childList: true });
  show();
}
