/** Scripts that a board's page loads once it is live: story, past, contest, controls, likes, titles of new rows. */
import { Announcer } from "./client/announcer.js";
import { Motion } from "./client/motion.js";
import { StatusView, write } from "./client/parts.js";
import { momentWords, translate } from "./client/words.js";
import { startContest } from "./contest.js";
import { followDefinition, showLocalTimes, startItems } from "./drawn.js";
import { startLikes } from "./likes.js";
import { startProgramme } from "./programme.js";
import { startPast } from "./past.js";
import { startStory } from "./story.js";
import { startTools } from "./tools.js";

/** @typedef {import("./client/table.js").LiveTable & import("./story.js").Shown} Shown */

/** @param {import("./client/table.js").LiveTable[]} shown */
export function start(shown) {
  const { announce } = new Announcer(document.getElementById("announcer"));
  const title = plainTitle(shown[0].section);
  const now = () => shown[0].board.now();
  showLocalTimes(now()); // by now, the time of the server is known
  startItems();
  for (const one of shown) {
    one.announce = announce;
    one.table.motion = new Motion();
    startStory(one, (name) => {
      if (shown.length === 1) document.title = `${translate("leader_title", { name })} · ${title}`;
    });
    followDefinition(one.board, one.section);
    one.onDraw = drawer(one, new StatusView(one.board, one.section, { status: one.part("connection"), retry: one.part("retry"), announce }));
  }
  startLikes(now);
  startProgramme(shown.map(({ section }) => section));
  const printed = document.querySelector("#printed time");
  if (printed) addEventListener("beforeprint", () => (printed.textContent = momentWords(now(), 0)));
  if (!document.getElementById("tools")) return;
  if (document.getElementById("past")) startPast(shown[0], announce);
  startTools(shown, announce);
}

/** What is drawn beside the records, at the same moments. @param {Shown} one @param {StatusView} status */
function drawer(one, status) {
  const { section } = one;
  const showContest = "contest" in section.dataset ? startContest(one, status) : undefined;
  const title = document.getElementById(`period${section.dataset.tail}`);
  return () => {
    if (!one.past) one.showOwn?.();
    const { period, rankCount } = one.page;
    if (rankCount === null && !one.past) return; // no message has come, so the texts of the server stay
    showContest?.();
    if (!period || !title?.dataset.unit) return;
    write(title, periodWords(title.dataset.unit, period, title.dataset.zone ?? ""));
    section.querySelector("a[rel=prev]")?.removeAttribute("hidden");
  };
}

/** The title of the page without the leader, whom the server may have named. @param {HTMLElement} section */
function plainTitle(section) {
  const [leader, ...rest] = document.title.split(` · ${section.querySelector("h1")?.textContent ?? ""} · `);
  return rest.length ? document.title.slice(leader.length + 3) : document.title;
}

/** A period of a calendar in words, as the server's `words.py` writes it: `2026-W47` is week 47 of 2026. @param {string} unit @param {string} name @param {string} zone in words */
export function periodWords(unit, name, zone) {
  const [, year, part = "", day = "", hour, offset = ""] =
    /^(\d+)(?:-[WQ]?(\d+))?(?:-(\d+))?(?:T(\d+)([+-]\d+)?)?$/.exec(name) ?? [];
  const number = String(Number(part));
  const month = translate("month_names").split(" ")[Number(part) - 1] ?? "";
  const time = `${hour}:00${offset && ` ${offset.slice(0, 3)}:${offset.slice(3)}`}`;
  const values = { year: String(Number(year)), week: number, quarter: number, month, day: String(Number(day)), time };
  const period = translate(/** @type {import("./client/row-words.js").Unit} */ (unit), values);
  return translate("in_zone", { period, zone });
}
