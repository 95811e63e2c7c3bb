/** Numbers, times, names, gaps and states in words, as the server writes them too. No DOM. */
import { grouped, plain, setLanguage, translate } from "./row-words.js";
import { tag, words } from "./words/en.js";
/** @import { Snapshot } from "./live-board.js" */
/** @typedef {import("./row-words.js").Table} Table @typedef {import("./row-words.js").Writing} Writing */

export { metadataWords } from "./metadata.js";
export { barWidth, gapWords, grouped, nameWords, plain, scaled, setLanguage, shareWords, translate } from "./row-words.js";

setLanguage(tag, words);

/**
 * A time in the viewer's zone: `14:00`, or `21 November 2026, 14:00` if that is not today. The server writes UTC so.
 * @param {number} time milliseconds since 1970 @param {number} [now] by the clock of the server: `board.now()`
 */
export function momentWords(time, now = Date.now()) {
  const at = new Date(time);
  const clock = at.toTimeString().slice(0, 8).replace(/:00$/, "");
  if (at.toDateString() === new Date(now).toDateString()) return clock;
  const month = translate("month_names").split(" ")[at.getMonth()];
  return translate("moment", { year: String(at.getFullYear()), month, day: String(at.getDate()), time: clock });
}

/** Movement in symbols and words. @param {number} rank @param {number | undefined} before @returns {[string, string]} */
export function moveWords(rank, before) {
  if (before === undefined) return [translate("new").toUpperCase(), translate("new")];
  const n = before - rank;
  if (n === 0) return ["", ""];
  return n > 0 ? [`▲${grouped(n)}`, translate("up", { n })] : [`▼${grouped(-n)}`, translate("down", { n: -n })];
}

/**
 * The rank of a member, of which the first part is read aloud, and its gap to the next rank, if that is known.
 * @param {number | null} rank @param {number | null} gap @param {Writing} [writing] @returns {[string, string]}
 */
export function placeWords(rank, gap, writing = plain) {
  if (rank === null) return [translate("not_ranked"), ""];
  const place = translate("rank", { n: rank });
  if (gap === null) return [place, ""];
  return [place, gap ? translate("behind", { n: writing.grouped(gap) }) : translate("tied_with_next")];
}

/**
 * @typedef {{frozen: boolean, opens?: number, closes: number, finalAt?: number, votes?: boolean}} Kind of a board.
 *   `opens` and `closes`: when voting begins and ends; `finalAt`: when its result is final; milliseconds since 1970
 */

/**
 * The state of a board as a word for styles, and as a sentence.
 * @param {Pick<Snapshot, "state" | "waiting" | "epoch">} snapshot @param {Kind} board @param {number} now
 * @returns {[string, string]}
 */
export function stateWords({ state, waiting, epoch }, { frozen, opens = -Infinity, closes, finalAt = closes, votes = closes < Infinity }, now) {
  const { name, reason, since, retryAt } = state;
  const cause = /** @type {keyof Table} */ (`reason: ${reason}`);
  const why = !reason || reason === "nothing heard" ? "" : translate(cause) || reason;
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
