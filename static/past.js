// @ts-check
/** The time slider of a board's page: shows the board at a time of the past. */
import { momentWords } from "./client/words.js";
import { write } from "./page.js";

const SLIDER_REST = 150; // milliseconds after the last move of the slider until the page requests the board
const SLIDER_STEPS = 360; // steps of the slider

/**
 * @typedef {Pick<import("./client/live-board.js").Snapshot, "records" | "rankCount" | "totalScore" | "period">} Moment the
 *   first records of a board at a time
 * @typedef {import("./story.js").Shown & {page: Moment}} Shown
 */

/** @type {Moment} */
const NOTHING = { records: [], rankCount: null, totalScore: null };

/**
 * @param {string} name
 * @returns {any}
 */
const control = (name) => document.getElementById(name);

class Past {
  #timer = 0;
  #requests = 0; // how many requests were made; only the answer to the last request is shown
  /** @type {number | null} the time that is shown, in milliseconds since 1970; null while the page is live */
  #at = null;
  /** @type {number | null} the first time that the journal has; null while it is unknown */
  #since = null;
  /** @type {number | null} the time that was shown when the slider was touched */
  #before = null;

  /**
   * @param {Shown} shown
   * @param {(text: string) => void} announce
   */
  constructor(shown, announce) {
    const { board, table, section } = shown;
    this.shown = shown;
    this.board = board;
    this.announce = announce;
    this.panel = control("past-panel");
    const { board: id, root, limit } = section.dataset;
    this.address = `${root}v1/boards/${id}`;
    this.limit = Number(limit);
    this.slider = control("past-time");
    this.range = control("past-range");
    this.rise = table.onRise;
    this.slider.addEventListener("input", () => this.#move());
    this.slider.addEventListener("pointerdown", () => (this.#before = this.#at));
    this.slider.addEventListener("pointercancel", () => this.#return());
    this.range.addEventListener("change", () => this.#stretch());
    control("past-live").addEventListener("click", () => this.leave());
    control("past").addEventListener("click", () => this.toggle());
  }

  /** Open the panel, or close it and go back to live. */
  toggle() {
    if (!this.panel.hidden) return this.leave();
    this.#open();
    this.slider.focus();
  }

  #open() {
    if (!this.panel.hidden) return;
    this.panel.hidden = false;
    control("past").setAttribute("aria-expanded", "true");
    this.#stretch();
    if (this.#since === null) void this.#begin();
  }

  /** Ask when the journal begins, and let the slider begin there too. */
  async #begin() {
    const answer = await fetch(`${this.address}/history`).catch(() => null);
    const { since } = answer?.ok ? await answer.json().catch(() => ({})) : {};
    if (since) this.#since = Date.parse(since);
    this.#stretch();
  }

  /** @param {number} at a time, in milliseconds since 1970 */
  open(at) {
    const option = [...this.range.options].find(({ value }) => Number(value) * 1000 >= this.board.now() - at);
    this.range.value = (option ?? this.range.options[2]).value;
    this.#open();
    this.#stretch();
    this.#aim(at);
    void this.#request(at);
  }

  /**
   * Show the board live again.
   *
   * @param {boolean} [closes] also close the panel
   */
  leave(closes = true) {
    clearTimeout(this.#timer);
    this.#requests += 1;
    if (closes) {
      const menu = /** @type {HTMLElement | null} */ (document.querySelector(".menu > summary"));
      if (this.panel.contains(document.activeElement)) menu?.focus();
      this.panel.hidden = true;
      control("past").setAttribute("aria-expanded", "false");
    }
    this.#aim(null);
    if (this.#at === null) return;
    this.#at = null;
    this.#lock(false);
    this.shown.table.onRise = this.rise;
    this.#put(null);
    this.#name();
    this.#note("");
    /** @type {HTMLElement | null} */ (this.shown.section.querySelector(".sub"))?.style.removeProperty("height");
    this.board.start();
  }

  /** Let the slider reach from the start of the range, but not from before the journal, to the present. */
  #stretch() {
    const now = this.board.now();
    const reach = Math.min(Number(this.range.value), (now - (this.#since ?? 0)) / 1000);
    const step = Math.max(1, Math.floor(reach / SLIDER_STEPS));
    this.slider.step = "any"; // the old step would round the value
    this.slider.min = String(-step * Math.max(1, Math.ceil(reach / step)));
    this.slider.step = String(step);
    const begin = this.#clamped(now + Number(this.slider.min) * 1000);
    write(control("past-from"), momentWords(begin, now));
    if (this.#at !== null) this.#mark(this.#at);
  }

  /** @param {number} at */
  #clamped(at) {
    return Math.max(at, this.#since ?? 0);
  }

  #move() {
    clearTimeout(this.#timer);
    this.#requests += 1;
    if (Number(this.slider.value) === 0) return this.leave(false);
    const at = this.#clamped(this.board.now() + Number(this.slider.value) * 1000);
    this.#open();
    this.#aim(at);
    this.#timer = setTimeout(() => void this.#request(at), SLIDER_REST);
  }

  /** Undo a move of the slider, because the finger scrolls the page. */
  #return() {
    clearTimeout(this.#timer);
    const at = this.#before;
    if (at === null) return this.leave(false);
    this.#aim(at);
    void this.#request(at);
  }

  /**
   * Move the slider to a time, and say which one. Null stands for the present.
   *
   * @param {number | null} at
   */
  #aim(at) {
    const words = at === null ? this.panel.dataset.live : momentWords(at, this.board.now());
    write(control("past-at"), at === null ? "" : words);
    this.slider.setAttribute("aria-valuetext", words);
    this.#mark(at);
  }

  /** @param {number | null} at */
  #mark(at) {
    const { slider } = this;
    slider.value = at === null ? "0" : String(Math.min(-Number(slider.step), (at - this.board.now()) / 1000));
    this.panel.style.setProperty("--at", String(1 - Number(slider.value) / Number(slider.min)));
  }

  /**
   * Show the board at a time. The page stays live until the first moment of the past has arrived.
   *
   * @param {number} at
   * @param {Moment} moment
   */
  #show(at, moment) {
    const { table, section } = this.shown;
    this.#put(moment);
    table.onRise = undefined; // while somebody moves the slider, no row is marked as rising
    if (this.#at === null) {
      for (const { classList, cells } of table.body.rows) {
        classList.remove("risen");
        delete cells[1].dataset.told;
      }
      this.board.stop();
      this.#lock(true);
      section.classList.remove("stale");
      const line = /** @type {HTMLElement | null} */ (section.querySelector(".sub"));
      if (line) line.style.height = `${line.getBoundingClientRect().height}px`; // this keeps the slider under the pointer
      control("connection").dataset.state = "past";
      control("retry").hidden = true;
    }
    this.#say(at, moment.rankCount === null ? this.panel.dataset.missing : "");
  }

  /**
   * Let the table show the board at a time, or at present. Parts that belong only to the present are hidden meanwhile.
   *
   * @param {Moment | null} moment
   */
  #put(moment) {
    const { shown } = this;
    shown.past = moment;
    shown.section.toggleAttribute("data-past", moment !== null);
    shown.section.toggleAttribute("data-blank", moment?.records.length === 0);
    shown.trends?.compare();
    shown.table.show(shown.page.records);
  }

  /**
   * Say which time is shown.
   *
   * @param {number} at
   * @param {string} note about it
   */
  #say(at, note) {
    this.#at = at;
    this.#note(note);
    write(control("connection"), this.panel.dataset.asOf.replace("{time}", momentWords(at, this.board.now())));
    this.#aim(at);
  }

  /** @param {string} text about the time that is shown */
  #note(text) {
    write(control("past-note"), text);
    control("past-note").hidden = !text;
  }

  /** @param {number} at */
  async #request(at) {
    const number = (this.#requests += 1);
    const query = new URLSearchParams({ as_of: this.#text(at), limit: String(this.limit) });
    const answer = await fetch(`${this.address}?${query}`).catch(() => null);
    const top = answer?.ok ? await answer.json().catch(() => null) : null;
    if (number !== this.#requests) return;
    if (top) this.#show(at, { records: top.records, rankCount: top.rank_count, totalScore: top.total_score, period: top.period });
    else if (answer?.status === 404) this.#show(at, NOTHING);
    else {
      write(control("past-at"), this.panel.dataset.failed);
      this.announce(this.panel.dataset.failed);
      return;
    }
    this.#name(at);
    this.announce(`${control("connection").textContent} ${control("past-note").textContent}`);
  }

  /** @param {boolean} isPast whether the page shows the past, when the controls of live records are of no use */
  #lock(isPast) {
    for (const name of ["pause", "speed"]) control(name).disabled = isPast;
  }

  /** @param {number} at */
  #text(at) {
    return new Date(at).toISOString();
  }

  /**
   * Let the address of the page, and the address that *Share* gives, name a time or the live page.
   *
   * @param {number} [at]
   */
  #name(at) {
    const named = (/** @type {string} */ address) => {
      const url = new URL(address);
      url.hash = "";
      url.searchParams.delete("as_of");
      if (at !== undefined) url.searchParams.set("as_of", this.#text(at));
      return url.href;
    };
    history.replaceState(null, "", named(location.href));
    const link = control("link");
    if (link) link.value = named(link.value);
  }
}

/**
 * Start the time slider. If the address of the page ends with `#past=` and a time, show this time.
 *
 * @param {Shown} shown
 * @param {(text: string) => void} announce
 */
export function startPast(shown, announce) {
  const past = new Past(shown, announce);
  const at = Number(/^#past=(\d{1,15})$/.exec(location.hash)?.[1]);
  if (at) past.open(at);
}
