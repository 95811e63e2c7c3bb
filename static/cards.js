// @ts-check
/** The list of boards: each visible card shows the first records of its board, live. */
import { showLocalTimes } from "./times.js";
import { LiveBoard } from "./client/live-board.js";
import { grouped, nameWords, stateWords } from "./client/words.js";

const MOST = 12; // cards that are live at the same time, because each needs a connection
const CALM = 1000; // milliseconds between two updates of a card

/** @typedef {import("./client/live-board.js").Snapshot} Snapshot */

class Card {
  /** @type {LiveBoard | null} */
  board = null;
  #requested = false;

  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.list = /** @type {HTMLElement} */ (element.querySelector("ol"));
    this.status = /** @type {HTMLElement} */ (element.querySelector(".connection"));
    this.rankCount = element.querySelector("[data-sum=rank-count]");
    this.totalScore = element.querySelector("[data-sum=total-score]");
    this.fields = (element.dataset.fields ?? "").split(" ").filter(Boolean);
  }

  start() {
    const { board = "", root = "", limit } = this.element.dataset;
    this.board ??= new LiveBoard(location.origin + root, board, { limit: Number(limit), interval: CALM });
    this.board.subscribe(() => this.#request());
    this.board.start();
  }

  stop() {
    this.board?.stop();
    this.board = null;
    this.#showStatus("still", this.status.dataset.still ?? "");
  }

  #request() {
    if (this.#requested) return;
    this.#requested = true;
    requestAnimationFrame(() => {
      this.#requested = false;
      if (this.board) this.#draw(this.board.snapshot);
    });
  }

  /** @param {Snapshot} snapshot */
  #draw(snapshot) {
    const kind = { frozen: "frozen" in this.element.dataset, closes: Number(this.element.dataset.closes ?? Infinity) };
    this.#showStatus(...stateWords(snapshot, kind, Date.now()));
    if (snapshot.epoch === null) return;
    write(this.rankCount, grouped(snapshot.rankCount));
    write(this.totalScore, grouped(snapshot.totalScore));
    const held = new Map([...this.list.children].map((item) => [/** @type {HTMLElement} */ (item).dataset.key, item]));
    const items = snapshot.records.map((record) => {
      const item = /** @type {HTMLLIElement} */ (held.get(record.key) ?? this.#made(record.key));
      if (item.value !== record.rank) item.value = record.rank;
      const values = this.fields.length ? this.fields.map((field) => record.fields?.[field] ?? null) : [record.score];
      item.querySelectorAll(".value").forEach((place, i) => write(place, grouped(values[i])));
      return item;
    });
    if (items.length !== held.size || items.some((item, i) => item !== this.list.children[i])) {
      this.list.replaceChildren(...items);
    }
  }

  /**
   * A row as the server renders it.
   *
   * @param {string} key
   */
  #made(key) {
    const item = /** @type {HTMLElement} */ (this.element.querySelector("template")?.content.firstElementChild?.cloneNode(true));
    item.dataset.key = key;
    write(item.querySelector("bdi"), nameWords(key));
    return item;
  }

  /**
   * @param {string} state
   * @param {string} text
   */
  #showStatus(state, text) {
    this.status.dataset.state = state;
    write(this.status, text);
  }
}

/**
 * @param {Element | null} element
 * @param {string} text
 */
function write(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

showLocalTimes();
const cards = new Map([...document.querySelectorAll("[data-board]")].map((card) => [card, new Card(/** @type {any} */ (card))]));
const seen = new Set();
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target) : seen.delete(target);
  const live = [...cards.keys()].filter((card) => seen.has(card)).slice(0, MOST);
  for (const [element, card] of cards) {
    if (!live.includes(element)) card.board && card.stop();
    else if (!card.board) card.start();
  }
});
for (const element of cards.keys()) observer.observe(element);
