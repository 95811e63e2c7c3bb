// @ts-check
/** Puts the periods of calendar boards into words, like the server's `words.py`. This module uses no DOM. */
import { say } from "./client/stories.js";
import { translate } from "./client/words.js";

/**
 * Put a period of a calendar into words: `2026-W47` is week 47 of 2026.
 *
 * @param {string} unit
 * @param {string} name
 * @param {string} zone in words
 */
export function periodWords(unit, name, zone) {
  const [, year, part = "", day = "", hour, offset = ""] =
    /^(\d+)(?:-[WQ]?(\d+))?(?:-(\d+))?(?:T(\d+)([+-]\d+)?)?$/.exec(name) ?? [];
  const number = String(Number(part));
  const month = translate("month_names").split(" ")[Number(part) - 1] ?? "";
  const time = `${hour}:00${offset && ` ${offset.slice(0, 3)}:${offset.slice(3)}`}`;
  const values = { year: String(Number(year)), week: number, quarter: number, month, day: String(Number(day)), time };
  const period = say(/** @type {import("./client/language.js").Unit} */ (unit), values);
  return say("in_zone", { period, zone });
}
