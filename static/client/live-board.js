/** Watches the top of a board: it reconnects by any transport that works, and never shows old data as live. */
import { Choice, Connection } from "./connection.js";
import { applied } from "./state.js";
import { TRANSPORTS } from "./transports.js";
//#region tokens: left out of the server's pages, which have the same origin and send a cookie
import { asking, openWithToken } from "./transports.js";
//#endregion

/**
 * @typedef {import("./state.js").BoardRecord} BoardRecord
 * @typedef {import("./state.js").Board} Board
 * @typedef {import("./connection.js").Report} Report
 * @typedef {import("./transports.js").TransportName} TransportName
 *
 * @typedef {Omit<Report, "name"> & {name: Report["name"] | "paused"}} State
 *   `since`: when the records were last known to be current, or when the state began. Times by the clock of the server,
 *   in milliseconds since 1970.
 * @typedef {{epoch: string | null, offset: number, records: readonly BoardRecord[], rankCount: number | null,
 *            totalScore: number | null, period?: string, ranks?: import("./state.js").Ranks,
 *            facts?: import("./state.js").Facts, definition?: string, viewers: number | null,
 *            around: import("./state.js").Around | null, state: Readonly<State>, waiting: number}} Values
 * @typedef {Readonly<Values>} Snapshot `epoch` is null before the first records; `waiting`: changes since the pause
 * @typedef {{limit?: number, member?: string, around?: number, interval?: "auto" | number, transports?: TransportName[],
 *            position?: Board, staleAfter?: number, whenHidden?: "coalesce" | "disconnect", signal?: AbortSignal,
 *            token?: () => string | Promise<string>}} Wish `token`: returns a viewer token, for each connection
 * @typedef {Partial<import("./connection.js").Setting & {storage: import("./connection.js").Memory}>} Injected for tests
 * @typedef {{state: (state: Readonly<State>) => void, change: (snapshot: Snapshot) => void,
 *            error: (error: unknown) => void}} Listeners
 */

export class LiveBoard {
  /** @type {Board | null} */
  #board;
  /** @type {Snapshot["viewers"]} */
  #viewers = null;
  /** @type {Snapshot["around"]} */
  #around = null;
  /** @type {{board: Board | null, around: Snapshot["around"], since: number} | null} what is shown while the watch is paused */
  #held = null;
  /** @type {Board | null} the board after the last message; see `#isBehind` */
  #base;
  #isBehind = false; // whether a new connection has sent less than its predecessor; `#base` is then older than `#board`
  /** @type {AbortController | null} ends listening to the page */
  #page = null;
  #hidden = false;
  #connection;
  #setting;
  #skew = NaN; // milliseconds by which the clock of the server is ahead of `now` of the setting; NaN before its first message
  /** @type {Report | undefined} */
  #report; // what `#state` was made from
  /** @type {Readonly<State> | undefined} */
  #state;
  /** @type {Record<keyof Listeners | "any", Set<(value: any) => void>>} */
  #listeners = { any: new Set(), state: new Set(), change: new Set(), error: new Set() };
  /** @type {Snapshot} */
  #snapshot;
  /** @type {Snapshot} the last snapshot that subscribers received */
  #published;

  /** @param {string} server its address, with the root path @param {string} board its id @param {Wish & Injected} [options] */
  constructor(server, board, options = {}) {
    const { limit, interval, member, around, position } = options;
    this.watched = { limit, interval: interval === "auto" ? undefined : interval, member, around };
    this.whenHidden = options.whenHidden ?? "coalesce";
    this.#board = this.#base = position ?? null;
    const setting = (this.#setting = {
      WebSocket: globalThis.WebSocket,
      fetch: (/** @type {Parameters<typeof fetch>} */ ...given) => fetch(...given),
      now: () => performance.timeOrigin + performance.now(), // goes on evenly, whatever happens to the clock of the computer
      random: Math.random,
      setTimeout: (/** @type {() => void} */ work, /** @type {number} */ pause) => setTimeout(work, pause),
      clearTimeout: (/** @type {any} */ timer) => clearTimeout(timer),
      ...options,
      staleAfter: options.staleAfter ?? 12_000,
    });
    let { transports = /** @type {TransportName[]} */ (Object.keys(TRANSPORTS)) } = options;
    if (!setting.WebSocket) console.warn("no WebSocket:", (transports = transports.filter((name) => name !== "websocket")));
    const root = `${server.replace(/\/$/, "")}/v1/boards/${encodeURIComponent(board)}`;
    const { origin } = new URL(root);
    const choice = new Choice(transports, setting.now, storageOf(options), `live-board ${origin}`);
    /** @type {import("./transports.js").Address} */
    const address = (path, query = {}) => {
      const given = Object.entries(query).filter(([, value]) => value !== undefined);
      return `${root}${path}${given.length ? `?${new URLSearchParams(/** @type {any} */ (given))}` : ""}`;
    };
    /** @type {import("./connection.js").Open} */
    let open = (at, link, whole, token) => {
      //#region tokens
      const hasReceived = this.#board && this.#board !== position;
      const isForeign = !options.token && "location" in globalThis && location.origin !== origin;
      if (isForeign && transports[at] !== "sse" && !hasReceived) link = asking(link, address, setting);
      //#endregion
      const watched = { ...this.watched, position: whole ? undefined : this.#position(), token };
      return TRANSPORTS[transports[at]](address, link, setting, watched);
    };
    //#region tokens
    const ask = options.token;
    if (ask) {
      const bare = open;
      open = (at, link, whole) =>
        openWithToken(ask, () => this.#connection.renew(), link, setting, (ending, given) => bare(at, ending, whole, given));
    }
    //#endregion
    this.#connection = new Connection(
      open,
      choice,
      {
        message: (message, replaces) => this.#take(message, replaces),
        report: () => this.#publish(),
        error: (error) => this.#emit("error", error),
      },
      setting,
    );
    this.#snapshot = this.#published = this.#make();
    //#region waiting
    options.signal?.addEventListener("abort", () => this.stop());
    //#endregion
  }

  /** The current state; a new object after every change. The records do not change while paused. */
  get snapshot() {
    return this.#snapshot;
  }

  /** When something was last received from the server, by its clock, in milliseconds since 1970. */
  get receivedAt() {
    return this.#connection.receivedAt + (this.#skew || 0);
  }

  /** The time by the clock of the server, in milliseconds since 1970. Before its first message, by this one. */
  now() {
    return this.#setting.now() + (this.#skew || 0);
  }

  get paused() {
    return this.#held !== null;
  }

  /** The minimum time between two updates, in milliseconds; `auto` stands for the interval of the board. */
  get interval() {
    return this.watched.interval ?? "auto";
  }

  set interval(interval) {
    if (interval === this.interval) return;
    this.watched.interval = interval === "auto" ? undefined : interval;
    this.#connection.renew();
  }

  start() {
    this.#page ??= this.#followPage();
    this.#connection.connect();
  }

  stop() {
    this.#page?.abort();
    this.#page = null;
    this.#connection.close("idle");
  }

  /** Freeze the records; the connection stays open. */
  pause() {
    this.#held ??= { board: this.#board, around: this.#around, since: this.now() };
    this.#publish();
  }

  resume() {
    this.#held = null;
    this.#publish();
  }

  /** Connect now instead of at `state.retryAt`. */
  retry() {
    this.#connection.connect(true);
  }

  /** Call a function after each change. @param {() => void} subscriber @returns {() => void} unsubscribes */
  subscribe(subscriber) {
    return this.#add("any", () => subscriber());
  }

  /**
   * Listen to changes of the state, to any other changes, or to errors.
   * @template {keyof Listeners} E @param {E} event @param {Listeners[E]} listener
   * @returns {() => void} stops listening
   */
  on(event, listener) {
    return this.#add(event, (value) => listener(value));
  }

  //#region waiting: left out of the server's pages
  /** Wait for the first records. @returns {Promise<Snapshot>} rejects if the watch ends before */
  async ready() {
    for await (const snapshot of this) if (snapshot.epoch !== null) return snapshot;
    throw new Error(`no records: ${this.#snapshot.state.reason ?? "stopped"}`);
  }

  /** The snapshots, the latest one at a time, until the watch ends. */
  async *[Symbol.asyncIterator]() {
    let last = null;
    for (;;) {
      while (last !== this.#snapshot) yield (last = this.#snapshot);
      if (last.state.name === "ended" || !this.#page) return;
      await new Promise((resolve) => {
        const off = this.subscribe(() => resolve(off()));
      });
    }
  }
  //#endregion

  /** @type {import("./connection.js").Listener["message"]} */
  #take(message, replaces) {
    if ("time" in message && message.time) this.#setClock(Date.parse(message.time));
    if (message.type === "viewers") this.#viewers = message.count;
    else if (message.type === "around") this.#around = message;
    else if ("offset" in message) {
      const board = this.#board;
      const base = (this.#base = applied(this.#base, message));
      const follows = board?.epoch === base.epoch;
      this.#isBehind = (this.#isBehind || replaces) && follows && board.offset > base.offset;
      //#region tokens: a connection with a new token begins with the whole top; if it is known already, nothing changes
      const isSame = follows && board.offset === base.offset && board.ranks === base.ranks && board.definition === base.definition;
      if (isSame && board.records.length === base.records.length) this.#base = board;
      //#endregion
      if (!this.#isBehind) this.#board = this.#base;
    } else return;
    this.#publish();
  }

  /** A message may be late, so of two times that differ little, the later one counts. @param {number} time */
  #setClock(time) {
    const skew = time - this.#setting.now();
    if (!(Math.abs(skew - this.#skew) < LATENESS) || skew > this.#skew) this.#skew = skew;
  }

  /** The position to resume from. Undefined before the first `sync` of an epoch, which tells the kind of ranks. */
  #position() {
    const base = this.#base;
    return base?.ranks && { epoch: base.epoch, offset: base.offset };
  }

  /** @returns {Snapshot} */
  #make() {
    const held = this.#held;
    const latest = this.#board;
    const board = held ? held.board : latest;
    const report = this.#connection.report;
    if (report !== this.#report || !this.#state) {
      const skew = this.#skew || 0;
      this.#state = Object.freeze({ ...report, since: report.since + skew, retryAt: report.retryAt && report.retryAt + skew });
      this.#report = report;
    }
    /** @type {State} */
    const state = held && report.name === "live" ? { name: "paused", since: held.since } : this.#state;
    const previous = this.#snapshot?.state;
    return Object.freeze({
      epoch: board?.epoch ?? null,
      offset: board?.offset ?? -1,
      records: board?.records ?? NONE,
      rankCount: board?.rankCount ?? null,
      totalScore: board?.totalScore ?? null,
      //#region facts
      facts: board?.facts,
      //#endregion
      definition: board?.definition,
      period: board?.period,
      ranks: board?.ranks,
      viewers: this.#viewers,
      around: held ? held.around : this.#around,
      state: previous?.name === "paused" && state.name === "paused" ? previous : Object.freeze(state),
      waiting: held && latest ? latest.offset - (held.board?.epoch === latest.epoch ? held.board.offset : 0) : 0,
    });
  }

  #publish() {
    this.#snapshot = this.#make();
    if (this.#hidden) return;
    const previous = this.#published;
    const made = (this.#published = this.#snapshot);
    if (previous.state !== made.state) this.#emit("state", made.state);
    if (/** @type {(keyof Snapshot)[]} */ (Object.keys(made)).some((name) => name !== "state" && previous[name] !== made[name])) this.#emit("change", made);
    this.#emit("any");
  }

  /** @param {keyof Listeners | "any"} event @param {(value: any) => void} listener */
  #add(event, listener) {
    const listeners = this.#listeners[event].add(listener);
    return () => void listeners.delete(listener);
  }

  /** An error of a listener is reported as an unhandled one, and the connection continues. @param {keyof Listeners | "any"} event @param {unknown} [value] */
  #emit(event, value) {
    for (const listener of [...this.#listeners[event]]) new Promise(() => listener(value));
  }

  /** React to the network, the tab, and the back-forward cache. That cache accepts no page with an open connection. */
  #followPage() {
    const abort = new AbortController();
    const { document } = globalThis;
    if (!document) return abort;
    const connection = this.#connection;
    const on = (/** @type {string} */ name, /** @type {() => void} */ work, /** @type {EventTarget} */ target = globalThis) =>
      target.addEventListener(name, work, { signal: abort.signal });
    on("offline", () => connection.close("offline"));
    on("online", () => connection.connect());
    on("pagehide", () => connection.close("idle"));
    on("pageshow", () => connection.connect());
    const refresh = () => {
      this.#hidden = document.hidden;
      if (this.#hidden && this.whenHidden === "disconnect") connection.close("idle");
      if (this.#hidden) return;
      if (connection.report.name === "idle") connection.connect();
      else connection.wake();
      if (this.#published !== this.#snapshot) this.#publish();
    };
    on("visibilitychange", refresh, document);
    this.#hidden = document.hidden;
    return abort;
  }
}

/** @type {Snapshot["records"]} */
const NONE = [];
const LATENESS = 2_000; // milliseconds by which a message is late at most; beyond that, the clock of the server was set

/** @param {Injected} options */
function storageOf({ storage }) {
  try {
    return storage ?? globalThis.sessionStorage;
  } catch {
    return undefined; // not available in a frame without an origin: then nothing is remembered
  }
}
