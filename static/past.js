// @ts-check
/** The time slider of a board's page: shows how the board stood at a time, and plays what viewers received then. */
import { applied } from "./client/state.js";
import { grouped } from "./client/words.js";
import { write } from "./page.js";

const REST = 150; // milliseconds without a move of the slider, after which the page requests the board
const BEAT = 500; // milliseconds between two looks at the clock while the past is played

/**
 * @typedef {{rank_count: number, total_score: number | null, records: import("./client/state.js").BoardRecord[]}} Top
 */

/**
 * @param {string} name
 * @returns {any}
 */
const part = (name) => document.getElementById(name);

class Past {
  #timer = 0;
  #requests = 0; // only the answer to the last one is shown
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {number | null} the time that is shown, in milliseconds since 1970; null while the page is live */
  #at = null;

  /**
   * @param {import("./tools.js").Shown} shown
   * @param {(text: string) => void} announce
   */
  constructor({ board, table }, announce) {
    this.board = board;
    this.table = table;
    this.announce = announce;
    this.panel = part("past-panel");
    const { board: id, root, limit } = /** @type {HTMLElement} */ (this.panel.closest("section[data-board]")).dataset;
    this.address = `${root}v1/boards/${id}`;
    this.limit = Number(limit);
    this.slider = part("past-time");
    this.play = part("past-play");
    this.format = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "medium" });
    this.slider.addEventListener("input", () => this.#move());
    part("past-range").addEventListener("change", () => this.#stretch());
    part("past-live").addEventListener("click", () => this.leave());
    this.play?.addEventListener("click", () => (this.#socket ? this.#stop() : this.#start()));
    part("past-speed")?.addEventListener("change", () => this.#socket && this.#start());
    part("past").addEventListener("click", () => this.toggle());
  }

  /** Open the panel, or close it and go back to live. */
  toggle() {
    const opens = this.panel.hidden;
    this.panel.hidden = !opens;
    part("past").setAttribute("aria-expanded", String(opens));
    if (opens) this.slider.focus();
    else if (this.#at !== null) this.leave();
  }

  /** @param {number} at a time, in milliseconds since 1970 */
  open(at) {
    const range = part("past-range");
    const option = [...range.options].find(({ value }) => Number(value) * 1000 >= Date.now() - at) ?? range.options[2];
    range.value = option.value;
    this.#stretch();
    this.#show(at);
    void this.#request(at);
  }

  /** Watch the board live again. */
  leave() {
    this.#close();
    clearTimeout(this.#timer);
    this.#requests += 1;
    this.#at = null;
    this.slider.value = "0";
    part("past-banner").hidden = true;
    this.#lock(false);
    const { rankCount, totalScore, records } = this.board.snapshot;
    this.#draw({ rank_count: rankCount ?? 0, total_score: totalScore, records: [...records] });
    history.replaceState(null, "", this.#link());
    this.board.start();
  }

  #stretch() {
    const { value } = part("past-range");
    this.slider.min = `-${value}`;
    this.slider.step = String(Number(value) / 360);
    if (this.#at !== null) this.#mark(this.#at);
  }

  #move() {
    const at = Date.now() + Number(this.slider.value) * 1000;
    this.#close();
    clearTimeout(this.#timer);
    if (Number(this.slider.value) === 0) {
      if (this.#at !== null) this.leave();
      return;
    }
    this.#show(at);
    this.#timer = setTimeout(() => void this.#request(at), REST);
  }

  /** @param {number} at */
  #mark(at) {
    this.slider.value = String(Math.min(-Number(this.slider.step), (at - Date.now()) / 1000));
    this.slider.setAttribute("aria-valuetext", this.format.format(at));
  }

  /**
   * Say which time is shown.
   *
   * @param {number} at
   */
  #show(at) {
    if (this.#at === null) {
      this.board.stop();
      this.#lock(true);
    }
    this.#at = at;
    const banner = part("past-banner");
    const words = this.panel.dataset.asOf.replace("{time}", this.format.format(at));
    banner.hidden = false;
    write(banner.firstElementChild, words);
    banner.querySelector("a").href = this.#link(at);
    write(part("connection"), words);
    this.#mark(at);
  }

  /** @param {number} at */
  async #request(at) {
    const number = (this.#requests += 1);
    const query = new URLSearchParams({ as_of: new Date(at).toISOString(), limit: String(this.limit) });
    const answer = await fetch(`${this.address}?${query}`).catch(() => null);
    const top = answer?.ok ? await answer.json() : null;
    if (number !== this.#requests || this.#at === null) return;
    if (!top) {
      write(part("past-banner").firstElementChild, this.panel.dataset.missing);
      this.announce(this.panel.dataset.missing);
      return;
    }
    this.#draw(top);
    history.replaceState(null, "", this.#link(at));
    this.announce(part("connection").textContent);
  }

  /** @param {Top} top */
  #draw(top) {
    this.table.show(top.records.slice(0, this.limit));
    write(part("rank-count"), grouped(top.rank_count));
    write(part("total-score"), grouped(top.total_score));
    part("empty").hidden = top.records.length > 0;
  }

  #start() {
    const from = this.#at ?? Date.now() - 60_000;
    this.#close();
    this.#show(from);
    this.#requests += 1;
    const query = new URLSearchParams({ at: new Date(from).toISOString(), speed: part("past-speed").value });
    const socket = (this.#socket = new WebSocket(`${location.origin.replace("http", "ws")}${this.address}/live?${query}`));
    let clock = { at: from, speed: 0, since: performance.now() };
    let known = /** @type {import("./client/state.js").Board | null} */ (null);
    const beat = setInterval(() => this.#show(clock.at + (performance.now() - clock.since) * clock.speed), BEAT);
    socket.addEventListener("message", ({ data }) => {
      const message = JSON.parse(data);
      if (socket !== this.#socket) return;
      if (message.type === "replay") {
        if (message.at === null) this.leave();
        else clock = { at: Date.parse(message.at), speed: message.speed, since: performance.now() };
      } else if (message.type === "sync" || message.type === "update") {
        known = applied(known, message);
        this.#draw({ rank_count: known.rankCount, total_score: known.totalScore, records: [...known.records] });
      }
    });
    socket.addEventListener("close", () => {
      clearInterval(beat);
      if (socket === this.#socket) this.#stop();
    });
    write(this.play, this.panel.dataset.stop);
  }

  /** Stand still at the time that is shown. */
  #stop() {
    this.#close();
    if (this.#at !== null) history.replaceState(null, "", this.#link(this.#at));
  }

  #close() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    write(this.play, this.panel.dataset.play);
  }

  /** @param {boolean} isPast what controls the live records has no use meanwhile */
  #lock(isPast) {
    for (const control of [part("pause"), part("speed")]) control.disabled = isPast;
  }

  /** @param {number} [at] the address of the page, at a time or live */
  #link(at) {
    const url = new URL(location.href);
    url.hash = "";
    url.searchParams.delete("as_of");
    if (at !== undefined) url.searchParams.set("as_of", new Date(at).toISOString());
    return url.href;
  }
}

/**
 * Open the time slider, at the time that the address names after `#past=` if it does.
 *
 * @param {import("./tools.js").Shown} shown
 * @param {(text: string) => void} announce
 */
export function openPast(shown, announce) {
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = part("past-panel").dataset.style;
  style.addEventListener("load", () => past.toggle(), { once: true });
  const past = new Past(shown, announce);
  const at = Number(/^#past=(\d{1,15})$/.exec(location.hash)?.[1]);
  if (at) past.open(at);
  document.head.append(style);
}
