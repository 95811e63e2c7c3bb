// @ts-check
/** Shows times in the viewer's zone. */
import { momentWords } from "./client/words.js";

export function showLocalTimes() {
  for (const time of /** @type {NodeListOf<HTMLTimeElement>} */ (document.querySelectorAll("time[datetime]"))) {
    time.title ||= time.textContent;
    time.textContent = momentWords(Date.parse(time.dateTime));
  }
}
