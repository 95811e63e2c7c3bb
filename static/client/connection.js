/** Keeps one connection to a board open by any transport that works, reconnects as often as needed, and reports its state. */
import { Backoff } from "./backoff.js";
/** @import { End, Environment, Link, TransportName } from "./transports.js" */
/** @import { Message } from "./state.js" */

/**
 * @typedef {Pick<Storage, "getItem" | "setItem" | "removeItem">} Memory
 * @typedef {"idle" | "connecting" | "live" | "stale" | "reconnecting" | "offline" | "ended"} Condition
 * @typedef {{name: Condition, reason?: string, since: number, retryAt?: number}} Report times in milliseconds since 1970
 * @typedef {{message: (message: Message, replaces: boolean) => void, report: (report: Report) => void,
 *            error: (error: unknown) => void}} Listener `replaces`: this message is the first of a connection that replaces another
 * @typedef {Environment & {random: () => number, staleAfter: number}} Setting
 * @typedef {(at: number, link: Link, whole: boolean, token?: string) => () => void} Open `whole`: request the whole top
 * @typedef {{close: () => void, hasReceived: boolean, current: boolean, proved: boolean}} Attempt `hasReceived`: a message has come; `current`: records have come; `proved`: more than the first records have come
 */

const FAILURES = 2; // failures in a row, without a message
const OPEN_TIMEOUT = 2_000; // milliseconds that an attempt may take to open; doubled after each of the first two rounds in which no transport worked
const UPGRADE = 600_000; // milliseconds until the first transport is tried again
const UPGRADE_SOON = 5_000; // the same, if the first transport has worked before: the server was away, and nothing blocks this transport
const BREAKS = 3; // connections that broke after their first records, within `BREAK_SPAN`
const BREAK_SPAN = 120_000; // milliseconds
const STABLE = 5_000; // milliseconds after which a connection counts as stable

export class Connection {
  /** @type {Attempt | null} */
  #link = null;
  /** @type {Attempt | null} the attempt that replaces `#link` as soon as it receives records */
  #trial = null;
  #earliest = 0; // the earliest reconnect that the server allows
  receivedAt = 0; // when something was last received, in milliseconds since 1970
  /** @type {number | undefined} when the records were last known to be current; undefined if they never were */
  #currentAt;
  #silent = false;
  /** @type {string | undefined} why the records are out of date, as the server says */
  #stale;
  /** @type {Map<string, unknown>} */
  #timers = new Map();

  /**
   * @param {Open} open @param {Choice} choice @param {Listener} listener @param {Setting} setting
   */
  constructor(open, choice, listener, setting) {
    this.open = open;
    this.choice = choice;
    this.listener = listener;
    this.setting = setting;
    this.backoff = new Backoff({ random: setting.random, now: setting.now });
    /** @type {Report} */
    this.report = { name: "idle", since: setting.now() };
  }

  /** Connect now, or as soon as the server allows; with `force`, now in any case. */
  connect(force = false) {
    if (this.#link) return;
    const pause = this.#earliest - this.setting.now();
    if (pause > 0 && !force) this.#wait(pause, this.report.reason);
    else this.#start();
  }

  /** Close, and stay disconnected until `connect`. @param {Condition} name @param {string} [reason] */
  close(name, reason) {
    this.#drop();
    this.#silent = false;
    this.#report({ name, reason });
  }

  /** Check the connection when the page is visible again, because timers of a hidden page may be late. */
  wake() {
    if (this.#link) this.#checkSilence();
    else if (this.report.retryAt) this.connect();
  }

  /** Replace the connection by one with other parameters, without a gap. */
  renew() {
    if (this.#link?.hasReceived) this.#run(this.choice.at, true);
    else if (this.#link) this.#start();
  }

  #start() {
    this.#drop();
    const { name, reason } = this.report;
    this.#report(name === "reconnecting" || name === "stale" ? { name, reason } : { name: "connecting" });
    this.receivedAt = this.setting.now();
    this.#after("silence", this.setting.staleAfter, () => this.#checkSilence());
    this.#run(this.choice.at, false);
  }

  #drop() {
    for (const timer of this.#timers.values()) this.setting.clearTimeout(timer);
    this.#timers.clear();
    this.#link?.close();
    this.#trial?.close();
    this.#link = this.#trial = null;
    this.#stale = undefined;
  }

  /** @param {string} name @param {number} pause @param {() => void} work */
  #after(name, pause, work) {
    this.setting.clearTimeout(this.#timers.get(name));
    this.#timers.set(name, this.setting.setTimeout(work, pause));
  }

  /** Make an attempt with a transport. @param {number} at @param {boolean} isTrial */
  #run(at, isTrial) {
    const { setTimeout, clearTimeout } = this.setting;
    /** @type {Attempt} */
    const attempt = { close: () => clearTimeout(timer), hasReceived: false, current: false, proved: false };
    const isOn = () => attempt === this.#link || attempt === this.#trial;
    const closed = (/** @type {End} */ end) => {
      if (isOn()) this.#closed(attempt, end);
    };
    const timer = setTimeout(() => closed({ reason: "no answer" }), this.choice.timeout);
    const opened = () => {
      clearTimeout(timer);
      if (attempt === this.#link) this.receivedAt = this.setting.now();
    };
    const received = (/** @type {Message | undefined} */ message) => {
      if (!isOn()) return;
      opened();
      if (message) this.#receive(attempt, at, message);
    };
    this.#trial?.close();
    this.#trial = isTrial ? attempt : null;
    if (!isTrial) this.#link = attempt;
    try {
      const close = this.open(at, { opened, received, closed }, isTrial);
      attempt.close = () => {
        clearTimeout(timer);
        close();
      };
      if (!isOn()) close();
    } catch (error) {
      this.listener.error(error);
      closed({ reason: String(error) });
    }
  }

  /** @param {Attempt} attempt @param {number} at @param {Message} message */
  #receive(attempt, at, message) {
    const { type } = message;
    const isRecords = "offset" in message && type !== "around";
    const replaces = attempt !== this.#link;
    if (replaces) {
      if (!isRecords) return;
      this.#link?.close();
      this.#link = attempt;
      this.#trial = null;
      this.#stale = undefined;
    }
    if (!attempt.hasReceived) this.#settle(at);
    attempt.hasReceived = true;
    if (type === "status") {
      this.#stale = message.stale ? (message.reason ?? "") : undefined;
      if (message.retry_after) this.#earliest = this.setting.now() + this.backoff.after(message.retry_after);
    } else {
      try {
        this.listener.message(message, replaces);
      } catch (error) {
        this.listener.error(error);
        this.#closed(attempt, { reason: "a message was missed" });
        return;
      }
    }
    if (isRecords && attempt.current && !attempt.proved) {
      attempt.proved = true;
      this.choice.proved();
    }
    attempt.current ||= isRecords;
    if (this.#stale !== undefined) this.#report({ name: "stale", reason: this.#stale });
    else if (attempt.current) this.#report({ name: "live" });
    if (attempt.current) this.#silent = false;
  }

  /** @param {number} at the transport that brought a first message */
  #settle(at) {
    const pause = this.choice.worked(at);
    if (pause) this.#after("upgrade", pause, () => this.#run(this.choice.first, true));
    this.#after("stable", STABLE, () => this.backoff.reset());
    this.receivedAt = this.setting.now();
  }

  /** Check whether anything was received recently. */
  #checkSilence() {
    const { now, staleAfter } = this.setting;
    const link = this.#link;
    const rest = this.receivedAt + staleAfter - now();
    if (!link || rest > 0) return this.#after("silence", rest, () => this.#checkSilence());
    this.#silent = true;
    const reason = "nothing heard";
    this.#report({ name: "stale", reason });
    this.#closed(link, { reason });
  }

  /** @param {Attempt} attempt @param {End} end */
  #closed(attempt, { final, reason, retryAfter, broken }) {
    if (attempt === this.#trial) {
      attempt.close();
      this.#trial = null;
      if (this.choice.at > this.choice.first) this.#after("upgrade", this.choice.postpone(), () => this.#run(this.choice.first, true));
      return;
    }
    this.#drop();
    if (final) return this.#report({ name: "ended", reason });
    const { now } = this.setting;
    if (retryAfter) this.#earliest = now() + this.backoff.after(retryAfter);
    const hasBroken = broken && attempt.current && !attempt.proved;
    const isNext = !retryAfter && (attempt.hasReceived ? hasBroken && this.choice.broke() : this.choice.failed());
    const pause = this.#earliest - now();
    this.#wait(pause > 0 ? pause : isNext ? 0 : this.backoff.next(attempt.hasReceived || this.choice.isRound), reason);
  }

  /** @param {number} pause @param {string} [reason] */
  #wait(pause, reason) {
    this.#report({ name: this.#silent ? "stale" : "reconnecting", reason, retryAt: this.setting.now() + pause });
    this.#after("retry", pause, () => this.#start());
  }

  /** @param {{name: Condition, reason?: string, retryAt?: number}} report */
  #report({ name, reason, retryAt }) {
    const held = this.report;
    if (held.name === "live") this.#currentAt = this.receivedAt;
    const since = name === "live" ? undefined : this.#currentAt;
    if (held.name === name && held.reason === reason && held.retryAt === retryAt) return;
    this.report = { name, reason, since: since ?? (held.name === name ? held.since : this.setting.now()), retryAt };
    this.listener.report(this.report);
  }
}

/** Which transport to use: the next one after two failures in a row, and the first one again after a while. */
export class Choice {
  at = 0;
  first = 0; // the transports before this one are not used any more
  #breaks = 0;
  #brokeAt = 0; // the time of the first of these breaks
  #failures = 0;
  #rounds = 0;
  #worked = false;
  #until = 0;

  /** @param {readonly TransportName[]} transports @param {() => number} now @param {Memory | undefined} memory @param {string} name */
  constructor(transports, now, memory, name) {
    this.transports = transports;
    this.now = now;
    this.memory = memory;
    this.name = name;
    const [transport, until] = (memory?.getItem(name) ?? "").split(" ");
    const at = transports.indexOf(/** @type {TransportName} */ (transport));
    if (at > 0 && Number(until) > now()) [this.at, this.#until] = [at, Number(until)];
    if (this.#until === Infinity) this.first = at;
  }

  /** How long an attempt may take to open. */
  get timeout() {
    return OPEN_TIMEOUT * 2 ** Math.min(this.#rounds, 2);
  }

  /** Whether each transport has been tried as often as the others. */
  get isRound() {
    return this.at === this.first && this.#failures === 0;
  }

  /** Note that an attempt failed without a message. Returns whether to try another transport immediately. */
  failed() {
    if (++this.#failures < FAILURES) return false;
    this.#failures = 0;
    this.at = this.at + 1 < this.transports.length ? this.at + 1 : this.first;
    if (this.at === this.first) this.#rounds++;
    return this.at > this.first;
  }

  /** Whether to use the next transport at once: one that compresses wrongly breaks after its first, right message. */
  broke() {
    if (this.now() - this.#brokeAt > BREAK_SPAN) [this.#breaks, this.#brokeAt] = [0, this.now()];
    if (++this.#breaks < BREAKS || this.at + 1 >= this.transports.length) return false;
    this.#breaks = 0;
    this.#until = Infinity;
    this.first = ++this.at;
    this.memory?.setItem(this.name, `${this.transports[this.at]} ${this.#until}`);
    return true;
  }

  /** Note that a connection has received more than its first records. */
  proved() {
    this.#breaks = 0;
  }

  /** Milliseconds until the first transport is tried again; 0 if it is the one that worked. @param {number} at */
  worked(at) {
    this.at = at;
    this.#failures = this.#rounds = 0;
    if (at === this.first) {
      this.#worked = true;
      if (at === 0) this.memory?.removeItem(this.name);
      return 0;
    }
    if (this.#until <= this.now() || this.first) this.#until = this.now() + (this.#worked ? UPGRADE_SOON : UPGRADE);
    if (!this.first) this.memory?.setItem(this.name, `${this.transports[at]} ${this.#until}`);
    return this.#until - this.now();
  }

  /** Note that the first transport was tried again, and failed. Returns the milliseconds until the next try. */
  postpone() {
    this.#worked = false;
    this.#until = 0;
    return this.worked(this.at);
  }
}
