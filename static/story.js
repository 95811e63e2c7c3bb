/** Loaded once a board's page is live: shows movement, sparklines and news, and announces them. */
import { Risers } from "./client/motion.js";
import { isolated, made } from "./client/parts.js";
import { stories, storyWords, Teller, withStory } from "./client/stories.js";
import { newRow, Row } from "./client/view.js";
import { momentWords, nameWords, placeWords, scaled, translate } from "./client/words.js";
import { followRank } from "./drawn.js";
import { applies, HOUR, MINUTE } from "./poll.js";
import { Trends } from "./trends.js";
/** @import { Story } from "./client/stories.js" */
/** @import { LiveTable } from "./client/table.js" */
/** @import { Baseline } from "./poll.js" */

const LOOK = 5_000; // milliseconds between two looks at who rises
const LEAST_SPAN = 5 * MINUTE; // the shortest time over which a pace is measured, in milliseconds
const RISING = 3; // members
const IDLE = 30_000; // milliseconds after which a pointer that does not move holds no rows any more
const LONGEST_FOCUS = 5_000; // milliseconds for which the focus of the keyboard holds rows
const LINGER = 300; // milliseconds for which rows stay held after the pointer or the focus has left: it may be on its way to the next control
const AFTER = { click: 1_000, voted: 3_000 }; // milliseconds for which rows stay held after a click and after a vote, so that a second click hits the same row
const FOCUS = ":focus-visible"; // a control that has the focus from the keyboard

/** @typedef {{trends?: Trends, showOwn?: () => void}} Parts of a board on the page */
/** @typedef {Pick<LiveTable, "board" | "table" | "section" | "announce" | "packed" | "past"> & Parts} Shown */

/** @param {Shown} shown @param {(name: string) => void} lead called with each new leader */
export function startStory(shown, lead) {
  const { board, table, section } = shown;
  const { board: id, root, tail = "" } = section.dataset;
  new Risers(table, (rows, name) => translate("passed", { rows, name }));
  if (table.shape.link) holdRows(table); // rows without links and buttons may move under a pointer
  const nameOf = (/** @type {string} */ member) => nameIn(table.body, member);
  const rail = section.querySelector(".rail") ? startRail(shown, nameOf) : undefined;
  const trends = new Trends(shown, `${root}v1/boards/${id}`, document.getElementById(`since${tail}`), rail?.compare);
  shown.trends = trends;
  if (table.shape.own !== undefined) shown.showOwn = startOwn(shown);
  const tell = (/** @type {Story} */ story) => {
    rail?.tell(story);
    if (story.kind !== "lead") return; // of all stories, screen readers hear only those of a new leader
    const name = nameOf(story.member);
    const news = translate("story", { name, what: storyWords(story, nameOf, table.writing) });
    const rank = board.snapshot.around?.rank;
    shown.announce(rank ? translate("story_and_you", { story: news, place: placeWords(rank, null)[0] }) : news);
    lead(name);
  };
  const teller = new Teller(tell, { gaps: !shown.packed, now: () => board.now() });
  const follow = () => {
    trends.compare();
    if (!board.paused) teller.take(board.snapshot);
  };
  board.on("change", follow);
  followRank(board, (place) => shown.announce(translate("place", { place })));
  follow();
  setInterval(() => !document.hidden && shown.past === null && rail?.showRising(), LOOK);
}

/** The name of a member as its row in a part of the page shows it. @param {HTMLElement} part @param {string} member */
export function nameIn(part, member) {
  return part.querySelector(`tr[data-member="${CSS.escape(member)}"] bdi`)?.textContent ?? nameWords(member);
}

/**
 * Keep the row of the member that the reader follows at the foot of the window, unless it is among the records. Returns
 * what draws it.
 * @param {Shown} shown
 */
function startOwn({ board, table }) {
  const whole = /** @type {HTMLTableElement} */ (table.body.closest("table"));
  const member = table.shape.own ?? "";
  const drawn = whole.tFoot?.rows[0];
  let row = drawn && new Row(drawn);
  return () => {
    const { around, records } = board.snapshot;
    if (!around) return;
    if (records.some((record) => record.key === member)) {
      whole.tFoot?.remove();
      row = undefined;
      return;
    }
    if (!row) {
      const element = newRow(member, table.shape);
      if (whole.tHead?.querySelector(".like")) element.insertCell().className = "like";
      whole.createTFoot().append(element);
      row = new Row(element);
    }
    const at = around.records.findIndex((record) => record.key === member);
    const own = around.records[at];
    row.name.dataset.note = translate(own ? "you" : "you_not_ranked");
    if (own) return table.write(row, own, around.records[at - 1]);
    for (const part of row.texts.keys()) row.write(part, "");
    row.writeGap("");
    row.writeBar(0);
  };
}

/** The column beside a board: what has happened since the baseline, and which members rise fastest. @param {Shown} shown @param {(member: string) => string} nameOf */
function startRail({ board, section, table, packed }, nameOf) {
  /** @type {Baseline | undefined} */
  let then;
  /** @type {Story[]} */
  let told = [];

  /** @param {Baseline} baseline */
  const compare = (baseline) => {
    const { epoch, period, ranks, scores } = (then = baseline);
    const places = Object.entries(scores).map(([member, score]) => ({ key: member, score, rank: ranks[member] ?? 0 }));
    const { records } = board.snapshot;
    const before = { at: Date.parse(baseline.since ?? ""), epoch, period, records: places.sort((one, other) => one.rank - other.rank) };
    const found = stories(before, { at: board.now(), epoch, period, records }, !packed);
    const since = before.at - (before.at % MINUTE);
    if (found.length && !told.length) list(found.map((story) => ({ ...story, at: since, since })));
    showRising();
  };

  /** @param {Story[]} stories */
  const list = (stories) => {
    told = stories;
    const lines = stories.map((story) => {
      const time = momentWords(story.at - (story.at % MINUTE), board.now());
      const words = ` ${storyWords(story, nameOf, table.writing)}`;
      const times = story.times && story.times > 1 ? ` ×${story.times}` : "";
      const began = made("time", {}, story.at === story.since ? translate("since_time", { time }) : time);
      return made("li", {}, began, " ", made("b", {}, isolated(nameOf(story.member))), words + times);
    });
    show("happened", lines);
  };

  /** Show by how much scores grow per hour, measured since the baseline as the server does. */
  const showRising = () => {
    const { snapshot } = board;
    if (!("paces" in section.dataset) || !then || !applies(then, snapshot)) return;
    const { scores, since } = then;
    const age = board.now() - Date.parse(since ?? "");
    if (!(age >= LEAST_SPAN)) return;
    const lines = snapshot.records
      .map(({ key: member, score }) => ({ member, pace: member in scores ? scaled(score - scores[member], age, HOUR) : 0 }))
      .filter(({ pace }) => pace > 0)
      .sort((one, other) => other.pace - one.pace)
      .slice(0, RISING)
      .map(({ member, pace }) => {
        const amount = translate("pace", { pace: `+${table.writing.grouped(pace)}` });
        return made("li", {}, isolated(nameOf(member)), " ", made("b", {}, amount));
      });
    if (lines.length) show("rising", lines);
  };

  return { compare, showRising, tell: (/** @type {Story} */ story) => list(withStory(told, story)) };
}

/** Fill a list, and show it with its heading. @param {string} id @param {HTMLElement[]} lines */
function show(id, lines) {
  const list = document.getElementById(id);
  list?.replaceChildren(...lines);
  list?.parentElement?.removeAttribute("hidden");
}

/** Keep rows in place while somebody is about to use one, so that no other row moves under a click, and say how many moves wait. @param {import("./client/view.js").TableView} table */
function holdRows(table) {
  const whole = /** @type {HTMLTableElement} */ (table.body.closest("table")); // with the contestants that have no votes
  const frame = /** @type {HTMLElement} */ (whole.parentElement);
  const ends = { pointer: 0, focus: 0, click: 0 }; // until when each of these holds the rows
  let timer = 0; // 0 while the rows are not held

  const show = (/** @type {number} */ waiting) => {
    if (waiting) frame.dataset.held = translate("moves_waiting", { n: waiting });
    else delete frame.dataset.held;
  };
  const look = () => {
    clearTimeout(timer);
    const left = Math.max(...Object.values(ends)) - performance.now();
    timer = left > 0 ? setTimeout(look, left) : 0;
    if (timer) return;
    show(0);
    table.release();
  };
  const hold = (/** @type {keyof typeof ends} */ by, /** @type {number} */ time, isPressed = false) => {
    ends[by] = performance.now() + time;
    table.hold(isPressed);
    look();
  };
  const leave = (/** @type {keyof typeof ends} */ by) => {
    ends[by] = Math.min(ends[by], performance.now() + LINGER);
    if (timer) look();
  };

  table.onHold = show;
  whole.addEventListener("pointerdown", () => hold("pointer", IDLE, true));
  whole.addEventListener("pointermove", () => hold("pointer", IDLE));
  whole.addEventListener("pointerleave", () => leave("pointer"));
  for (const [name, time] of Object.entries(AFTER)) whole.addEventListener(name, () => hold("click", time));
  whole.addEventListener("focusin", ({ target }) => target instanceof Element && target.matches(FOCUS) && hold("focus", LONGEST_FOCUS));
  whole.addEventListener("focusout", () => leave("focus"));
}
