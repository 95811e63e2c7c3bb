// @ts-check
/**
 * What a viewer knows of a board, and how a message changes it. No DOM, no network.
 *
 * @typedef {{key: string, score: number, rank: number}} BoardRecord
 * @typedef {{epoch: string, offset: number, rankCount: number, totalScore: number, records: BoardRecord[]}} Board
 * @typedef {{type: "sync", board: string, epoch: string, offset: number, rank_count: number, total_score: number,
 *            recovered: boolean, records: BoardRecord[]}} Sync
 * @typedef {{type: "update", epoch: string, since: number, offset: number, rank_count: number, total_score: number,
 *            changed: BoardRecord[], removed: string[]}} Update
 * @typedef {{type: "status", stale: boolean, reason?: string}} Status
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
  };
  if (message.type === "sync") return { ...sums, records: message.records };
  if (board === null || board.epoch !== message.epoch || board.offset !== message.since) {
    throw new Gap(`an update since ${message.since}, and we stand at ${board?.offset}`);
  }
  return { ...sums, records: reordered(board.records, message.changed, message.removed) };
}

/**
 * The records after an update: take out what left or changed, then put each changed record at its rank.
 *
 * @param {BoardRecord[]} records
 * @param {BoardRecord[]} changed by rank, rising
 * @param {string[]} removed
 * @returns {BoardRecord[]}
 */
function reordered(records, changed, removed) {
  const moving = new Set(removed);
  for (const record of changed) moving.add(record.key);
  const after = records.filter((record) => !moving.has(record.key));
  for (const record of changed) after.splice(record.rank - 1, 0, record);
  return after.map((record, index) => (record.rank === index + 1 ? record : { ...record, rank: index + 1 }));
}
