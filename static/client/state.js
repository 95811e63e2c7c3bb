/**
 * What a viewer knows about a board, and how a message changes it.
 * @typedef {{key: string, score: number, rank: number, position?: number, fields?: Object<string, number>,
 *            metadata?: Object<string, unknown>}} BoardRecord
 * @typedef {"ordinal" | "dense" | "competition"} Ranks
 * @typedef {{period_start?: string, period_end?: string, opens?: string, closes?: string, final_at?: string} & import("./units.js").Format} Facts
 *   the beginning and end of the period and of voting in RFC 3339, and how scores are written for people
 * @typedef {{epoch: string, offset: number, rankCount: number, totalScore: number | null, facts?: Facts, definition?: string,
 *            records: readonly BoardRecord[], period?: string, ranks?: Ranks}} Board `ranks`: unknown before a `sync` of the epoch
 * @typedef {{epoch: string, offset: number, rank_count: number, total_score: number | null, period?: string | null}} Head
 * @typedef {{time?: string, definition?: string}} Told the time of the server, and a text that changes with the definition of the board
 * @typedef {Head & Facts & Told & {type: "sync", records: BoardRecord[], ranks?: Ranks, recovered?: boolean, board?: string}} Sync
 * @typedef {Head & Facts & {type: "page", records: BoardRecord[], definition?: string}} Page the answer to a poll
 * @typedef {Head & Facts & Told & {type: "update", since: number, changed: BoardRecord[], removed: string[], recovered?: boolean}} Update
 * @typedef {{type: "status", stale: boolean, reason?: string, retry_after?: number}} Status
 * @typedef {{type: "viewers", count: number}} Viewers
 * @typedef {{type: "around", epoch: string, offset: number, key: string, rank_count: number, score: number | null,
 *            rank: number | null, gap: number | null, records: BoardRecord[]}} Around
 * @typedef {Sync | Page | Update | Status | Viewers | Around | {type: "alive", time?: string}} Message
 */

//#region facts
const FACTS = ["period_start", "period_end", "opens", "closes", "final_at", "unit", "format", "scale"];
//#endregion

/** An update does not start at the position of the board, so a message is missing. */
export class Gap extends Error {}

/** The board after a message. @param {Board | null} board @param {Sync | Page | Update} message @returns {Board} @throws {Gap} */
export function applied(board, message) {
  const head = {
    epoch: message.epoch,
    offset: message.offset,
    //#region facts: the server writes them into its pages
    facts: message.type === "update" && !message.recovered ? board?.facts : JSON.parse(JSON.stringify(message, FACTS)),
    //#endregion
    definition: ("definition" in message && message.definition) || board?.definition,
    rankCount: message.rank_count,
    totalScore: message.total_score,
    period: message.period ?? undefined,
  };
  if (message.type === "sync") return { ...head, records: message.records, ranks: message.ranks ?? "ordinal" };
  const follows = board?.epoch === message.epoch;
  if (message.type === "page") return { ...head, records: message.records, ranks: follows ? board.ranks : undefined };
  if (!follows || board.offset !== message.since) throw new Gap(`update since ${message.since}, at ${board?.offset}`);
  const records = ranked(reordered(board.records, message.changed, message.removed), board.ranks);
  return { ...head, records, ranks: board.ranks };
}

/** @param {readonly BoardRecord[]} records @param {BoardRecord[]} changed by position @param {string[]} removed */
function reordered(records, changed, removed) {
  const moving = new Set(removed);
  for (const record of changed) moving.add(record.key);
  const after = records.filter((record) => !moving.has(record.key));
  for (const record of changed) after.splice((record.position ?? record.rank) - 1, 0, record);
  return after;
}

/** Number the records again: equal scores share a rank, except on ordinal boards. @param {BoardRecord[]} records @param {Ranks} [ranks] */
function ranked(records, ranks) {
  let rank = 0;
  return records.map((record, index) => {
    const tied = ranks !== "ordinal" && index > 0 && record.score === records[index - 1].score;
    if (!tied) rank = ranks === "dense" ? rank + 1 : index + 1;
    const place = index + 1;
    if (record.rank === rank && (record.position ?? rank) === place) return record;
    const { position: _, ...rest } = record;
    return rank === place ? { ...rest, rank } : { ...rest, rank, position: place };
  });
}
