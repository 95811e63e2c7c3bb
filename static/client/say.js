// @ts-check
/** The words of the scripts that a page loads after it is live: the second half of the table of words. */
import { phrase } from "./words.js";
import { storyTable } from "./words/story/en.js";

/**
 * A sentence of the table. If the sentence counts something, `n` chooses its form.
 *
 * @param {keyof typeof storyTable} name
 * @param {Object<string, string | number>} [values] the values in braces; numbers are grouped
 */
export function say(name, values = {}) {
  return phrase(storyTable[name], values);
}
