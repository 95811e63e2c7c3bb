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

/** @type {Map<string, ReturnType<typeof storeOf>>} the boards that components show */
const stores = new Map();

/** Keep a board open while a component shows it. @param {string} name @param {LiveBoard} board */
function storeOf(name, board) {
  let components = 0;
  /** @type {any} */
  let timer;
  const linger = () => {
    timer = setTimeout(() => {
      board.stop();
      if (stores.get(name) === store) stores.delete(name);
    }, LINGER);
  };
  const subscribe = (/** @type {() => void} */ changed) => {
    clearTimeout(timer);
    stores.set(name, store);
    if (components++ === 0) board.start();
    const unsubscribe = board.subscribe(changed);
    return () => {
      unsubscribe();
      if (--components === 0) linger();
    };
  };
  const store = { subscribe, snapshot: () => board.snapshot };
  linger(); // stops the board if React renders the component but never shows it
  return store;
}

/**
 * Watch a board. The component renders again after each change.
 * @param {string} server its address, with the root path if there is one
 * @param {string} board its id
 * @param {Pick<import("./live-board.js").Wish, "limit" | "member" | "around" | "interval" | "transports" | "staleAfter">} [options]
 *   components with equal options share a connection
 * @returns {Snapshot} without records on a server
 */
export function useLiveBoard(server, board, options = {}) {
  if (typeof window === "undefined") return NOTHING; // on a server, nothing is watched or kept
  const name = JSON.stringify([server, board, Object.entries(options).sort()]);
  let store = stores.get(name);
  if (!store) stores.set(name, (store = storeOf(name, new LiveBoard(server, board, options))));
  return useSyncExternalStore(store.subscribe, store.snapshot, () => NOTHING);
}
