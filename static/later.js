// @ts-check
/** Scripts that a board's page loads once it is live: story, past, contest, controls, likes, titles of new rows. */
import "./items.js";
import { Announcer } from "./announcer.js";
import { say } from "./client/stories.js";
import { momentWords } from "./client/words.js";
import { Contest } from "./contest.js";
import { followDefinition } from "./definition.js";
import { startLikes } from "./likes.js";
import { periodWords } from "./periods.js";
import { startProgramme } from "./programme.js";
import { startPast } from "./past.js";
import { startStory } from "./story.js";
import { showLocalTimes } from "./times.js";
import { startTools } from "./tools.js";

/** @param {(import("./contest.js").Shown & import("./past.js").Shown)[]} shown */
export function start(shown) {
  const { announce } = new Announcer(document.getElementById("announcer"));
  for (const one of shown) {
    one.announce = announce;
    startStory(one);
    followDefinition(one.board, one.section);
    one.periodWords = periodWords;
    if ("contest" in one.section.dataset) one.contest = new Contest(one);
  }
  const now = () => shown[0].board.now();
  showLocalTimes(now()); // by now, the time of the server is known
  startLikes(now);
  startProgramme(shown.map(({ section }) => section), now);
  const printed = document.querySelector("#printed time");
  if (printed) addEventListener("beforeprint", () => (printed.textContent = momentWords(now(), 0)));
  if (shown.length === 1) nameLeader(shown[0].section);
  if (!document.getElementById("tools")) return;
  if (document.getElementById("past")) startPast(shown[0], announce);
  startTools(shown, announce);
}

/**
 * Let the title of the page name a new leader.
 *
 * @param {HTMLElement} section
 */
function nameLeader(section) {
  const { title } = document;
  const rest = title.slice(Math.max(0, title.indexOf(section.querySelector("h1")?.textContent ?? "")));
  section.addEventListener("story", (event) => {
    const { story, name } = /** @type {CustomEvent<import("./story.js").Told>} */ (event).detail;
    if (story.kind === "lead") document.title = `${say("leader_title", { name })} · ${rest}`;
  });
}
