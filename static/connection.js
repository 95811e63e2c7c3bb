// @ts-check
/** Keeps a WebSocket to one board open, over any number of cuts. No DOM. */

import { Backoff } from "./client/backoff.js";
import { applied, Gap } from "./client/state.js";

/** @typedef {import("./client/state.js").Board} Board */
/** @typedef {import("./client/state.js").Around} Around */
/** @typedef {"connecting" | "live" | "stale" | "away" | "ended"} State */

/** Close codes from here to 3999 mean: do not come back. */
const FINAL = 3500;
/** A connection counts as stable after so many milliseconds; only then is the backoff reset. */
const STABLE = 5_000;
const GOING_AWAY = 1000;

/**
 * @typedef {{onBoard: (board: Board) => void, onState: (state: State, detail: string) => void,
 *            onViewers: (count: number) => void, onAround: (around: Around) => void}} Listener
 */

export class Connection {
  /**
   * @param {string} url
   * @param {Listener} listener
   * @param {Backoff} [backoff]
   */
  constructor(url, listener, backoff = new Backoff()) {
    this.url = url;
    this.listener = listener;
    this.backoff = backoff;
    /** @type {Board | null} */
    this.board = null;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.timer = 0;
    this.stable = 0;
    this.stale = "";
    this.ended = false;
    this.earliest = 0; // when the server wants us back, by the clock of `performance`
  }

  /** Connect now, unless we are, or as soon as the server wants us back. */
  open() {
    if (this.socket || this.ended) return;
    clearTimeout(this.timer);
    if (this.patience() > 0) {
      this.wait(this.patience());
      return;
    }
    this.listener.onState("connecting", "");
    const socket = (this.socket = new WebSocket(this.position()));
    socket.onopen = () => {
      this.stable = setTimeout(() => this.backoff.reset(), STABLE);
    };
    socket.onmessage = (event) => this.receive(JSON.parse(event.data));
    socket.onclose = (event) => this.closed(event.code);
  }

  /** Leave, and stay away until `open`. */
  close() {
    clearTimeout(this.timer);
    clearTimeout(this.stable);
    const socket = this.socket;
    this.socket = null;
    if (socket) {
      socket.onclose = socket.onmessage = socket.onopen = null;
      socket.close(GOING_AWAY);
    }
  }

  /** The network is gone: drop the connection, and wait for `open`. */
  cut() {
    if (this.ended) return;
    this.close();
    this.listener.onState("away", "no network");
  }

  /** The address, with where we stand, so that the server can go on from there. */
  position() {
    const url = new URL(this.url);
    if (this.board) {
      url.searchParams.set("epoch", this.board.epoch);
      url.searchParams.set("offset", String(this.board.offset));
    }
    return url;
  }

  /** @param {import("./client/state.js").Message} message of a type that we do not know: from a newer server, not for us */
  receive(message) {
    switch (message.type) {
      case "sync":
      case "update":
        return this.move(message);
      case "status":
        return this.hear(message);
      case "viewers":
        return this.listener.onViewers(message.count);
      case "around":
        return this.listener.onAround(message);
    }
  }

  /** @param {import("./client/state.js").Sync | import("./client/state.js").Update} message */
  move(message) {
    try {
      this.board = applied(this.board, message);
    } catch (error) {
      if (!(error instanceof Gap)) throw error;
      this.close();
      this.retry();
      return;
    }
    this.listener.onBoard(this.board);
    this.report();
  }

  /** @param {import("./client/state.js").Status} message */
  hear(message) {
    this.stale = message.stale ? (message.reason ?? "reported by the server") : "";
    if (message.retry_after !== undefined) {
      this.earliest = performance.now() + this.backoff.after(message.retry_after);
    }
    this.report();
  }

  report() {
    this.listener.onState(this.stale ? "stale" : "live", this.stale);
  }

  /** @param {number} code */
  closed(code) {
    clearTimeout(this.stable);
    this.socket = null;
    this.stale = "";
    if (code >= FINAL && code < 4000) {
      this.ended = true;
      this.listener.onState("ended", `closed by the server (${code})`);
      return;
    }
    this.retry();
  }

  /** Come back when the server said, or else by the backoff. */
  retry() {
    this.wait(this.patience() > 0 ? this.patience() : this.backoff.next());
  }

  /** Milliseconds until the server wants us back. */
  patience() {
    return this.earliest - performance.now();
  }

  /** @param {number} pause milliseconds */
  wait(pause) {
    this.listener.onState("away", `retrying in ${Math.max(1, Math.ceil(pause / 1000))} s`);
    this.timer = setTimeout(() => this.open(), pause);
  }
}
