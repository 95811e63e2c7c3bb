// @ts-check
/** A hook for React: the snapshot of a board. Components that ask for the same share one connection. */
// @ts-ignore: the application brings React
import { useSyncExternalStore } from "react";

import { LiveBoard } from "./live-board.js";

/** @typedef {import("./live-board.js").Snapshot} Snapshot */

const LINGER = 1_000; // milliseconds that a board without components stays connected: React may mount them again

/** A board that is open while a component shows it. */
class Store {
  #components = 0;
  #timer = /** @type {any} */ (undefined);

  /** @param {() => LiveBoard} make */
  constructor(make) {
    this.board = make();
  }

  /** @param {() => void} changed */
  subscribe = (changed) => {
    clearTimeout(this.#timer);
    if (this.#components++ === 0) this.board.start();
    const unsubscribe = this.board.subscribe(changed);
    return () => {
      unsubscribe();
      if (--this.#components === 0) this.#timer = setTimeout(() => this.board.stop(), LINGER);
    };
  };

  snapshot = () => this.board.snapshot;
}

/** @type {Map<string, Store>} */
const stores = new Map();

/**
 * Watch a board. The component renders again after each change.
 *
 * @param {string} server its address, with the root path if there is one
 * @param {string} board its id
 * @param {Pick<import("./live-board.js").Wish, "limit" | "key" | "around" | "interval" | "transports" | "staleAfter">} [options]
 *   components with equal options share a connection
 * @returns {Snapshot}
 */
export function useLiveBoard(server, board, options = {}) {
  const name = JSON.stringify([server, board, Object.entries(options).sort()]);
  let store = stores.get(name);
  if (!store) stores.set(name, (store = new Store(() => new LiveBoard(server, board, options))));
  return useSyncExternalStore(store.subscribe, store.snapshot, store.snapshot);
}
