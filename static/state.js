// @ts-check
/**
 * What a viewer knows of a board, and how a message changes it. No DOM, no network.
 *
 * @typedef {{key: string, score: number, rank: number, position?: number, fields?: Object<string, number>,
 *            metadata?: Object<string, unknown>}} BoardRecord
 * @typedef {"ordinal" | "dense" | "competition"} Ranks
 * @typedef {{epoch: string, offset: number, rankCount: number, totalScore: number | null, records: BoardRecord[],
 *            period?: string, ranks: Ranks}} Board
 * @typedef {{type: "sync", board: string, epoch: string, offset: number, rank_count: number, total_score: number | null,
 *            recovered: boolean, records: BoardRecord[], period?: string, ranks?: Ranks}} Sync
 * @typedef {{type: "update", epoch: string, since: number, offset: number, rank_count: number, total_score: number | null,
 *            changed: BoardRecord[], removed: string[], period?: string, recovered?: boolean}} Update
 * @typedef {{type: "status", stale: boolean, reason?: string, retry_after?: number}} Status
 * @typedef {{type: "viewers", count: number}} Viewers
 * @typedef {{type: "around", epoch: string, offset: number, key: string, rank_count: number, score: number | null,
 *            rank: number | null, gap: number | null, records: BoardRecord[]}} Around
 * @typedef {Sync | Update | Status | Viewers | Around} Message
 */

/** A message that does not follow from what we hold: something was missed. */
export class Gap extends Error {}

/**
 * The board after a message.
 *
 * @param {Board | null} board what is held so far
 * @param {Sync | Update} message
 * @returns {Board}
 * @throws {Gap} for an update that starts from another position than ours
 */
export function applied(board, message) {
  const sums = {
    epoch: message.epoch,
    offset: message.offset,
    rankCount: message.rank_count,
    totalScore: message.total_score,
    period: message.period,
  };
  if (message.type === "sync") return { ...sums, records: message.records, ranks: message.ranks ?? "ordinal" };
  if (board === null || board.epoch !== message.epoch || board.offset !== message.since) {
    throw new Gap(`an update since ${message.since}, and we stand at ${board?.offset}`);
  }
  const records = ranked(reordered(board.records, message.changed, message.removed), board.ranks);
  return { ...sums, records, ranks: board.ranks };
}

/**
 * The records after an update: take out what left or changed, then put each changed record at its position.
 *
 * @param {BoardRecord[]} records
 * @param {BoardRecord[]} changed by position, rising
 * @param {string[]} removed
 * @returns {BoardRecord[]}
 */
function reordered(records, changed, removed) {
  const moving = new Set(removed);
  for (const record of changed) moving.add(record.key);
  const after = records.filter((record) => !moving.has(record.key));
  for (const record of changed) after.splice((record.position ?? record.rank) - 1, 0, record);
  return after;
}

/**
 * The records from the first one on, each with its rank, and with its position where that is another: equal scores
 * share a rank, but for `ordinal`.
 *
 * @param {BoardRecord[]} records
 * @param {Ranks} ranks
 * @returns {BoardRecord[]}
 */
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
