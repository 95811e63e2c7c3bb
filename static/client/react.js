// @ts-check
"use client";
/** A hook for React: the snapshot of a board. Components with equal arguments share one connection. */
// @ts-ignore: the application brings React
import { useSyncExternalStore } from "react";

import { LiveBoard } from "./live-board.js";

/** @typedef {import("./live-board.js").Snapshot} Snapshot */

const LINGER = 1_000; // milliseconds that a board without components stays connected; React may mount a component again

/** @type {Snapshot} what a server renders, and what a browser renders until React has taken over its page */
const NOTHING = Object.freeze({
  epoch: null,
  offset: -1,
  records: [],
  rankCount: null,
  totalScore: null,
  viewers: null,
  around: null,
  state: Object.freeze({ name: "idle", since: 0 }),
  waiting: 0,
});

/** @type {Map<string, Store>} the boards that components show */
const stores = new Map();

/** A board that is open while a component shows it. */
class Store {
  #components = 0;
  #timer = /** @type {any} */ (undefined);

  /**
   * @param {string} name
   * @param {LiveBoard} board
   */
  constructor(name, board) {
    this.name = name;
    this.board = board;
    this.#linger(); // stops the board if React renders the component but never shows it
  }

  /** @param {() => void} changed */
  subscribe = (changed) => {
    clearTimeout(this.#timer);
    stores.set(this.name, this);
    if (this.#components++ === 0) this.board.start();
    const unsubscribe = this.board.subscribe(changed);
    return () => {
      unsubscribe();
      if (--this.#components === 0) this.#linger();
    };
  };

  snapshot = () => this.board.snapshot;

  #linger() {
    this.#timer = setTimeout(() => {
      this.board.stop();
      if (stores.get(this.name) === this) stores.delete(this.name);
    }, LINGER);
  }
}

/**
 * Watch a board. The component renders again after each change.
 *
 * @param {string} server its address, with the root path if there is one
 * @param {string} board its id
 * @param {Pick<import("./live-board.js").Wish, "limit" | "key" | "around" | "interval" | "transports" | "staleAfter">} [options]
 *   components with equal options share a connection
 * @returns {Snapshot} without records on a server
 */
export function useLiveBoard(server, board, options = {}) {
  if (typeof window === "undefined") return NOTHING; // on a server, nothing is watched or kept
  const name = JSON.stringify([server, board, Object.entries(options).sort()]);
  let store = stores.get(name);
  if (!store) stores.set(name, (store = new Store(name, new LiveBoard(server, board, options))));
  return useSyncExternalStore(store.subscribe, store.snapshot, () => NOTHING);
}
