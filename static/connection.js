// @ts-check
/** Keeps a WebSocket to one board open, over any number of cuts. No DOM. */

import { Backoff } from "./backoff.js";
import { applied, Gap } from "./state.js";

/** @typedef {import("./state.js").Board} Board */
/** @typedef {"connecting" | "live" | "stale" | "away" | "ended"} State */

/** Close codes from here to 3999 mean: do not come back. */
const FINAL = 3500;
/** A connection counts as stable after so many milliseconds; only then is the backoff reset. */
const STABLE = 5_000;
const GOING_AWAY = 1000;

export class Connection {
  /**
   * @param {string} url
   * @param {{onBoard: (board: Board) => void, onState: (state: State, detail: string) => void}} listener
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
  }

  /** Connect now, unless we are. */
  open() {
    if (this.socket || this.ended) return;
    clearTimeout(this.timer);
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

  /** @param {import("./state.js").Sync | import("./state.js").Update | import("./state.js").Status} message */
  receive(message) {
    if (message.type === "status") {
      this.stale = message.stale ? (message.reason ?? "the server says so") : "";
      this.report();
      return;
    }
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

  retry() {
    const pause = this.backoff.next();
    this.listener.onState("away", `trying again in ${Math.max(1, Math.ceil(pause / 1000))} s`);
    this.timer = setTimeout(() => this.open(), pause);
  }
}
