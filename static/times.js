// @ts-check
/** Shows times in the viewer's zone. */
import { momentWords } from "./client/words.js";

/** @param {number} now the time by the clock of the server; times of the same day are shown without the day */
export function showLocalTimes(now) {
  for (const time of /** @type {NodeListOf<HTMLTimeElement>} */ (document.querySelectorAll("time[datetime]"))) {
    time.title ||= time.textContent;
    time.textContent = momentWords(Date.parse(time.dateTime), now);
  }
}
