// @ts-check
/** Computes and describes sparklines, like the server's `words.py`. This module uses no DOM. */
import { say } from "./client/stories.js";
import { scaled } from "./client/words.js";

/**
 * The scale of all sparklines of a board: from the lowest value to the highest, and always with zero.
 *
 * @param {(number | null)[]} values
 * @returns {[number, number]}
 */
export function trendScale(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value ?? 0), Math.max(high, value ?? 0)], [0, 0]);
}

/**
 * The points of a sparkline, 100 wide and 20 high. Empty with fewer than two values, or if the scale has no height.
 *
 * @param {(number | null)[]} values null for a slot without a value
 * @param {[number, number]} [scale]
 */
export function trendPoints(values, [low, high] = trendScale(values)) {
  const known = values.filter((value) => value !== null);
  const height = high - low;
  if (known.length < 2 || height === 0) return "";
  return values
    .map((value, i) => (value === null ? "" : `${scaled(i, values.length - 1, 100)},${19 - scaled(value - low, height, 18)}`))
    .filter(Boolean)
    .join(" ");
}

/**
 * Whether the newest values differ clearly from the usual ones: their mean is at least a half higher or lower.
 *
 * @param {number[]} values
 */
export function differsClearly(values) {
  const newest = values.slice(-Math.max(1, Math.floor(values.length / 24)));
  const mean = (/** @type {number[]} */ some) => some.reduce((sum, value) => sum + value, 0) / some.length;
  const usual = mean(values);
  return values.length > 1 && Math.abs(mean(newest) - usual) * 2 >= Math.abs(usual) && usual !== 0;
}

/**
 * What a sparkline shows, in words for screen readers.
 *
 * @param {string} length of the window, in words
 * @param {number[]} values those that are drawn
 * @param {import("./client/words.js").Writing} writing
 */
export function trendWords(length, values, { grouped }) {
  const [low, high, now] = [Math.min(...values), Math.max(...values), values[values.length - 1] ?? 0].map(grouped);
  return say("trend", { span: length, low, high, now });
}
