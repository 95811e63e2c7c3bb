// @ts-check
/** What the page of a board with units loads before it is live. */
export { writingOf } from "./client/units.js";
