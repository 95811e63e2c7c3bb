// @ts-check
/** The list of boards: each visible card shows the first records and the figures of its board, live. */
import "./items.js";
import { LiveBoard } from "./client/live-board.js";
import { grouped, moveWords, nameWords, plain, stateWords } from "./client/words.js";
import { showMove } from "./marks.js";
import { followDefinition } from "./definition.js";
import { tell, whenWritten, write } from "./page.js";
import { baselinePause, Poll, Ranks } from "./poll.js";

const MOST = 12; // cards that are live at the same time, because each needs a connection
const LONGEST_TIMER = 10_000; // milliseconds until a card reads the clock of the server again
const CALM = 1000; // milliseconds between two updates of a card

class Card {
  /** @type {LiveBoard | null} */
  board = null;
  writing = plain;
  #requested = false;
  #ends = 0; // the timer of the end of voting
  /** @type {import("./poll.js").Baseline | null} */
  #baseline = null;
  /** @type {Poll | null} */
  #poll = null;

  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.list = /** @type {HTMLElement} */ (element.querySelector("ol"));
    this.status = /** @type {HTMLElement} */ (element.querySelector(".connection"));
    const sum = (/** @type {string} */ name) => element.querySelector(`[data-sum=${name}]`);
    this.sums = { rankCount: sum("rank-count"), totalScore: sum("total-score") };
    this.fields = (element.dataset.fields ?? "").split(" ").filter(Boolean);
  }

  start() {
    const { board = "", root = "", limit } = this.element.dataset;
    this.board ??= new LiveBoard(location.origin + root, board, { limit: Number(limit), interval: CALM });
    this.board.subscribe(() => this.#request());
    const { board: live } = this;
    followDefinition(live, this.element);
    whenWritten(this.element, this, () => live === this.board && live.start());
    this.#poll ??= new Poll(
      () => `${root}v1/boards/${board}/baseline`,
      (/** @type {import("./poll.js").Baseline} */ baseline) => {
        this.#baseline = baseline;
        this.#request();
        return baselinePause(baseline, live.now());
      },
    );
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
      if (this.board) this.#draw(this.board);
    });
  }

  /** @param {LiveBoard} live */
  #draw(live) {
    const { snapshot } = live;
    const { closes = Infinity, finalAt = Infinity } = this.element.dataset;
    const { opens = -Infinity } = this.element.dataset;
    const votes = "contest" in this.element.dataset;
    const kind = { frozen: "frozen" in this.element.dataset, votes, opens: Number(opens), closes: Number(closes), finalAt: Number(finalAt) };
    this.#showStatus(...stateWords(snapshot, kind, live.now()));
    const left = (live.now() < kind.closes ? kind.closes : kind.finalAt) - live.now();
    clearTimeout(this.#ends);
    if (left > 0 && left < Infinity) this.#ends = setTimeout(() => this.#request(), Math.min(left, LONGEST_TIMER));
    if (snapshot.epoch === null) return;
    const { rankCount, totalScore } = snapshot;
    tell(this.sums.rankCount, rankCount === null ? "" : grouped(rankCount));
    tell(this.sums.totalScore, totalScore === null ? "" : this.writing.grouped(totalScore));
    const { epoch, period, since } = this.#baseline ?? {};
    const fits = since && epoch === snapshot.epoch && period === (snapshot.period ?? null);
    const before = this.#baseline && fits ? new Ranks(this.#baseline) : null;
    const held = new Map([...this.list.children].map((item) => [/** @type {HTMLElement} */ (item).dataset.key, item]));
    const items = snapshot.records.map((record) => {
      const item = /** @type {HTMLLIElement} */ (held.get(record.key) ?? this.#made(record.key));
      if (item.value !== record.rank) item.value = record.rank;
      if (this.#baseline) showMove(/** @type {HTMLElement} */ (item.firstElementChild).dataset, before ? moveWords(record.rank, before.before(record.key, record.rank)) : ["", ""]);
      const values = this.fields.length ? this.fields.map((field) => record.fields?.[field] ?? null) : [record.score];
      item.querySelectorAll(".value").forEach((place, i) => write(place, this.writing.grouped(values[i])));
      return item;
    });
    if (items.length !== held.size || items.some((item, i) => item !== this.list.children[i])) {
      this.list.replaceChildren(...items);
    }
  }

  /**
   * Make a row like those that the server renders.
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
