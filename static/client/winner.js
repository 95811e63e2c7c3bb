// @ts-check
/** The winner of a contest, in words. No DOM. */
import { translate } from "./words.js";

/**
 * Say that voting has closed, and who has won if that is known.
 *
 * @param {readonly {key: string, rank: number}[]} records
 * @param {(key: string) => string} nameOf
 */
export function closedWords([first, second], nameOf) {
  if (first?.rank !== 1) return translate("closed");
  return `${translate("closed")} · ${second?.rank === 1 ? translate("tied") : translate("winner", { name: nameOf(first.key) })}`;
}
