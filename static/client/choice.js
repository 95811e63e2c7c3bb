// @ts-check
/**
 * Which transport to use: the next one after two failures in a row, and the first one again after a while. A transport
 * that breaks again and again after its first records is not used any more.
 *
 * @typedef {import("./transports.js").TransportName} TransportName
 * @typedef {Pick<Storage, "getItem" | "setItem" | "removeItem">} Memory
 */
const FAILURES = 2; // failures in a row, without a message
const OPEN_TIMEOUT = 2_000; // milliseconds that an attempt may take to open; doubled after each of the first two rounds in which no transport worked
const UPGRADE = 600_000; // milliseconds until the first transport is tried again
const UPGRADE_SOON = 5_000; // the same, if the first transport has worked before: the server was away, and nothing blocks this transport
const BREAKS = 3; // connections that broke after their first records, within `BREAK_SPAN`
const BREAK_SPAN = 120_000; // milliseconds

export class Choice {
  at = 0;
  first = 0; // the transports before this one are not used any more
  #breaks = 0;
  #brokeAt = 0; // the time of the first of these breaks
  #failures = 0;
  #rounds = 0;
  #worked = false;
  #until = 0;

  /**
   * @param {readonly TransportName[]} transports
   * @param {() => number} now
   * @param {Memory | undefined} memory of this session
   * @param {string} name in the memory
   */
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

  /**
   * Note that a connection broke after its first records. Returns whether to use the next transport immediately: a
   * server or proxy may compress wrongly for this browser, so that only the first message is right.
   */
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

  /**
   * Note that a transport delivered a message. Returns the milliseconds until the first transport is tried again; 0 if
   * it is the first transport that is used.
   *
   * @param {number} at index of the transport
   */
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
