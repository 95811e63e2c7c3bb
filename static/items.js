// @ts-check
/** Titles and pictures of members, for rows that are added to the page. The server renders those of the first rows. */
import { Items, replaceBroken } from "./client/items.js";

const home = /** @type {HTMLElement | null} */ (document.querySelector("[data-root]"))?.dataset.root ?? "/";
const items = new Items(home.replace(/\/$/, ""), () => document.querySelectorAll(":is(tr, li, div)[data-key]"));

if (document.querySelector("[data-items]")) {
  items.skip();
  replaceBroken(document);
  const observer = new MutationObserver(() => items.show());
  for (const list of document.querySelectorAll("tbody, ol, dl")) observer.observe(list, { childList: true });
}
