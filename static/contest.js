// @ts-check
/** The parts that only contests have: the contestants without votes, and the result when voting ends. */

import { say } from "./client/stories.js";
import { grouped, shareWords, translate } from "./client/words.js";
import { write } from "./page.js";
import { nameIn } from "./story.js";

const ROWS_SPREAD = 3_000; // milliseconds over which the requests of pages are spread
const A_SECOND = 1_000;
const A_MINUTE = 60 * A_SECOND; // the countdown stands out in the last minute
const A_DAY = 86_400 * A_SECOND; // from this time on, the page shows when voting opens or closes instead of a countdown
const PODIUM_PLACES = 3; // of the result

/**
 * @typedef {import("./story.js").Shown & {status: import("./status.js").StatusView, contest?: Contest,
 *            periodWords?: unknown}} Shown a board on the page
 */

export class Contest {
  #isAsking = false;
  #isBefore = false; // whether voting had not opened at the last tick
  /** @type {Set<string>} the members that had votes when the table was last drawn */
  #ranked = new Set();

  #result = "";

  /** @param {Shown} shown */
  constructor({ section, table, board, status, announce }) {
    const { tail = "", opens, closes, finalAt = closes } = section.dataset;
    this.section = section;
    this.table = table;
    this.status = status;
    this.board = board;
    this.announce = announce;
    this.ballot = /** @type {HTMLTableSectionElement | null} */ (document.getElementById(`ballot${tail}`));
    this.podium = document.getElementById(`podium${tail}`);
    this.times = /** @type {HTMLElement | null} */ (section.querySelector(".voting")); // when voting opens and closes
    this.countdown = document.createElement("b"); // beside the state
    this.countdown.className = "clock";
    this.countdown.dataset.now = "";
    status.status.after(this.countdown);
    this.opens = Number(opens ?? -Infinity);
    this.closes = Number(closes ?? Infinity);
    this.finalAt = Number(finalAt ?? Infinity);
    this.show(board.snapshot);
    if (opens || closes) this.#tick();
  }

  /**
   * Hide the contestants that have a record now, unless rows are held. While there are more records than rows, hide all
   * contestants without votes, because they come after the last record.
   *
   * @param {Pick<import("./client/live-board.js").Snapshot, "records" | "rankCount" | "epoch">} snapshot
   */
  show({ records, rankCount, epoch }) {
    if (!this.ballot || epoch === null || this.table.isHeld) return;
    const ranked = new Set(records.map(({ key }) => key));
    const isWhole = (rankCount ?? 0) <= records.length;
    const lost = isWhole ? [...this.#ranked].filter((key) => !ranked.has(key) && !this.#row(key)) : [];
    this.#ranked = ranked;
    if (lost.length) this.#complete();
    const rows = /** @type {HTMLElement[]} */ ([...this.ballot.querySelectorAll("[data-key]")]);
    for (const row of rows) {
      if (row.hidden === ranked.has(row.dataset.key ?? "")) continue;
      const hadFocus = row.contains(document.activeElement);
      row.hidden = !row.hidden;
      if (hadFocus && row.hidden) requestAnimationFrame(() => this.#focus(row.dataset.key));
    }
    this.ballot.hidden = !isWhole || rows.every((row) => row.hidden);
  }

  /** @param {string} key of a contestant without votes */
  #row(key) {
    return [...(this.ballot?.rows ?? [])].find((one) => one.dataset.key === key);
  }

  /** Ask for the rows of contestants that have lost their last vote. */
  #complete() {
    if (this.#isAsking) return;
    this.#isAsking = true;
    setTimeout(async () => {
      this.#isAsking = false;
      const made = (await this.#drawn())?.getElementById(this.ballot?.id ?? "");
      // Rows stay for contestants that have votes now, so that the next change of a vote needs no request.
      if (!this.ballot?.rows.length) this.ballot?.replaceChildren(...(made?.childNodes ?? []));
      for (const row of /** @type {NodeListOf<HTMLElement>} */ (made?.querySelectorAll("[data-key]") ?? []))
        if (!this.#row(row.dataset.key ?? "")) this.ballot?.append(row);
      this.show(this.board.snapshot);
    }, Math.random() * ROWS_SPREAD);
  }

  /** Fetch the page as the server draws it now. Returns null if the server does not answer. */
  async #drawn() {
    const text = await fetch(location.href).then((answer) => (answer.ok ? answer.text() : "")).catch(() => "");
    return text ? new DOMParser().parseFromString(text, "text/html") : null;
  }

  /** @param {string | undefined} key of the member whose new row takes the focus */
  #focus(key) {
    const row = [...this.table.body.rows].find((one) => one.dataset.key === key);
    row?.querySelector("button")?.focus();
  }

  /** Count the seconds by the clock of the server. When the result is final, show it with the state in one step. */
  #tick() {
    const now = this.board.now();
    const isBefore = now < this.opens;
    // When voting opens, the page gets its buttons.
    if (this.#isBefore && !isBefore && this.section.dataset.records)
      setTimeout(() => location.reload(), Math.random() * ROWS_SPREAD);
    this.#isBefore = isBefore;
    const left = (isBefore ? this.opens : this.closes) - now;
    const counts = left > 0 && left < A_DAY;
    if (counts) write(this.countdown, say(isBefore ? "opens_in" : "closes_in", { time: clockSpan(left) }));
    this.countdown.hidden = !counts;
    this.countdown.toggleAttribute("data-last", !isBefore && left <= A_MINUTE);
    if (this.times) this.times.hidden = counts || left <= 0;
    if (left <= 0) this.status.show();
    if (now >= this.finalAt && this.board.snapshot.state.name === "live") this.#showResult(this.board.snapshot.records);
    const next = (left > 0 ? left : this.finalAt - now) % A_SECOND;
    setTimeout(() => this.#tick(), next > 0 ? next : A_SECOND);
  }

  /**
   * Show the first places, as the server draws them too.
   *
   * @param {readonly import("./client/stories.js").Place[]} records
   */
  #showResult(records) {
    const { totalScore } = this.board.snapshot;
    const result = JSON.stringify([totalScore, records.slice(0, PODIUM_PLACES)]);
    if (!this.podium || !records.length || records[0].rank !== 1 || result === this.#result) return;
    this.#result = result;
    const body = this.table.body;
    const winners = records.filter(({ rank }) => rank === 1);
    const [{ key, score }, second] = records;
    const nameOf = (/** @type {string} */ member) => nameIn(body, member);
    const names = winners.slice(0, PODIUM_PLACES).map((one) => nameOf(one.key)).join(say("list"));
    const share = (/** @type {number} */ votes) => shareWords(votes, totalScore);
    const isAlone = winners.length === 1;
    const places = records.slice(0, PODIUM_PLACES).map((record, index) => {
      const row = body.querySelector(`tr[data-key="${CSS.escape(record.key)}"]`);
      const copies = [".picture", ".about"].map((part) => row?.querySelector(part)?.cloneNode(true) ?? "");
      const place = record.rank > 1 ? translate("rank", { n: record.rank }) : say(isAlone ? "winner" : "tied_winner");
      const who = built("p", built("small", place), " ", built("bdi", nameOf(record.key)), copies[1]);
      const lead = index === 0 && isAlone && second ? say("ahead", { n: score - second.score }) : "";
      const sum = built("p", `${grouped(record.score)} `, built("small", share(record.score) + lead));
      [who.className, sum.className] = ["who", "sum"];
      return built("li", copies[0], who, sum);
    });
    const list = built("ol", ...places);
    list.className = "podium";
    list.setAttribute("aria-label", say("podium"));
    this.podium.replaceChildren(list);
    this.announce(isAlone ? say("wins", { name: nameOf(key), n: score, share: share(score) }) : say("tie", { names, n: score }));
  }
}

/**
 * A time as on a clock: `0:05`, `12:34` or `1:02:03`.
 *
 * @param {number} span in milliseconds
 */
export function clockSpan(span) {
  const seconds = Math.ceil(span / A_SECOND);
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const [first, ...rest] = parts[0] ? parts : parts.slice(1);
  return [first, ...rest.map((part) => String(part).padStart(2, "0"))].join(":");
}

/**
 * @param {string} name
 * @param {...(Node | string)} children
 */
function built(name, ...children) {
  const element = document.createElement(name);
  element.append(...children);
  return element;
}
