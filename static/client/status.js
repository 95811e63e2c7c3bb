// @ts-check
/** The state of the connection of a board, in words. No DOM. */
import { momentWords, reasonWords, translate } from "./language.js";

/**
 * @typedef {import("./live-board.js").Snapshot} Snapshot
 * @typedef {{frozen: boolean, opens?: number, closes: number, finalAt?: number, votes?: boolean}} Kind of a board.
 *   `opens` and `closes`: when voting begins and ends; `finalAt`: when its result is final; milliseconds since 1970
 */

/**
 * The state of a board as a word for styles, and as a sentence.
 *
 * @param {Pick<Snapshot, "state" | "waiting" | "epoch">} snapshot
 * @param {Kind} board
 * @param {number} now
 * @returns {[string, string]}
 */
export function stateWords({ state, waiting, epoch }, { frozen, opens = -Infinity, closes, finalAt = closes, votes = closes < Infinity }, now) {
  const { name, reason, since, retryAt } = state;
  const why = reason && reason !== "nothing heard" ? reasonWords(reason) : "";
  const aged = (/** @type {string} */ text) => (epoch === null ? text : `${text} · ${translate("rows_of", { time: momentWords(since, now) })}`);
  switch (name) {
    case "live":
      if (frozen) return ["frozen", translate("frozen")];
      if (finalAt <= now) return ["closed", translate("closed", { time: momentWords(closes, now) })];
      if (closes <= now) return ["counting", translate("counting")];
      if (opens > now) return [name, translate("opens", { time: momentWords(opens, now) })];
      return [name, translate(votes ? "voting_open" : "live")];
    case "paused":
      return [name, waiting > 0 ? translate("waiting", { n: waiting }) : translate("paused")];
    case "stale":
      return [name, translate(why ? "stale_because" : "stale", { time: momentWords(since, now), reason: why })];
    case "reconnecting":
      if (retryAt === undefined) return [name, aged(translate("reconnecting"))];
      return [name, aged(translate("reconnecting_in", { n: Math.max(1, Math.ceil((retryAt - now) / 1000)) }))];
    case "ended":
      return [name, why ? translate("ended_because", { reason: why }) : translate("ended")];
    case "offline":
      return [name, aged(translate("offline"))];
    default:
      return ["connecting", translate("connecting")];
  }
}
