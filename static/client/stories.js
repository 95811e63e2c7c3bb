/** What happens on a board: a new leader, entries to the top ten, round leads, climbs. No DOM. */
import { nameWords, plain, translate } from "./words.js";

/**
 * @typedef {{key: string, rank: number, score: number}} Place a record, or the part of a record that a baseline has
 * @typedef {{at: number, epoch: string | null, period?: string | null, records: readonly Place[]}} Moment
 *   the first records of a board; `at` in milliseconds since 1970
 * @typedef {{kind: "lead" | "top" | "ahead" | "climb", member: string, rank: number, at: number, since: number,
 *            by: number, other?: string, times?: number}} Story
 *   `by`: how many ranks the member has gained; with `ahead`, the round number of its lead; with `lead`, 0.
 *   `other`: the leader before.
 *   `times`: how often the member and `other` have taken the lead from each other in a row
 */

const TOP = 10;
const LEAST_CLIMB = 3; // ranks
const MOST_CLIMBS = 3;
const LEAST_LEAD = 100; // points; a smaller lead is no story
const MINUTES = 60_000; // in milliseconds
const KEPT = 6; // stories in a list
const EXCHANGE = 5 * MINUTES; // milliseconds; members that take the lead from each other within this time are one story
const REST = 3_000; // milliseconds between two stories
const REACH = 10; // minutes over which climbs are measured
const AGAIN = 10 * MINUTES; // milliseconds before the page tells a story again, unless it is about a new leader
const MOST_WAITING = 3;
/** @type {Story["kind"][]} */
const IMPORTANCE = ["lead", "ahead", "top", "climb"]; // the most important first

/**
 * What is new and true after a moment, the most important first, and no two stories about the same member.
 * @param {Moment} before @param {Moment} after @param {boolean} [gaps] whether the difference of two scores has a meaning
 * @returns {Story[]}
 */
export function stories(before, after, gaps = true) {
  if (!continues(before, after) || !before.records.length || !after.records.length) return [];
  const ranks = new Map(before.records.map(({ key: member, rank }) => [member, rank]));
  const span = { at: after.at, since: before.at };
  const told = [...leads(before.records, after.records, gaps), ...entries(before.records, after.records, ranks)];
  const members = new Set(told.map(({ member }) => member));
  const climbs = after.records
    .map(({ key: member, rank }) => /** @type {const} */ ({ kind: "climb", member, rank, by: (ranks.get(member) ?? rank) - rank }))
    .filter(({ member, by }) => by >= LEAST_CLIMB && !members.has(member))
    .sort((one, other) => other.by - one.by)
    .slice(0, MOST_CLIMBS);
  return [...told, ...climbs].map((story) => ({ ...story, ...span }));
}

/** Whether two moments belong to the same epoch and period of a board. @param {Moment} before @param {Moment} after */
export function continues(before, after) {
  return before.epoch === after.epoch && (before.period ?? null) === (after.period ?? null);
}

/** @param {readonly Place[]} before @param {readonly Place[]} after @param {boolean} gaps */
function leads(before, after, gaps) {
  const [old, leader] = [leaderOf(before), leaderOf(after)];
  if (leader === undefined) return [];
  const { key: member, rank } = after[0];
  if (leader !== old) {
    const other = before.find((record) => record.rank === 1 && record.key !== leader)?.key;
    return [/** @type {const} */ ({ kind: "lead", member, rank, by: 0, other })];
  }
  const [least, most] = [leadOf(before), leadOf(after)];
  const by = gaps ? roundBelow(most) : 0;
  return by > least && by >= LEAST_LEAD ? [/** @type {const} */ ({ kind: "ahead", member, rank, by })] : [];
}

/** The member that holds the first rank alone. @param {readonly Place[]} records */
function leaderOf(records) {
  return records[1]?.rank === 1 ? undefined : records[0].key;
}

/** @param {readonly Place[]} records */
function leadOf(records) {
  return records.length > 1 ? Math.abs(records[0].score - records[1].score) : 0;
}

/** The largest of 1, 2, 5, 10, 20, 50, … that is not above a number; 0 if there is none. @param {number} value */
function roundBelow(value) {
  if (value < 1) return 0;
  const unit = 10 ** (String(Math.floor(value)).length - 1);
  return unit * (value >= 5 * unit ? 5 : value >= 2 * unit ? 2 : 1);
}

/** The leader has a story of its own. @param {readonly Place[]} before @param {readonly Place[]} after @param {Map<string, number>} ranks */
function entries(before, after, ranks) {
  if (before.length < TOP) return []; // while a board has fewer than ten members, each new member enters the top ten
  return after
    .filter(({ key: member, rank }) => rank > 1 && rank <= TOP && (ranks.get(member) ?? Infinity) > TOP)
    .map(({ key: member, rank }) => {
      const by = (ranks.get(member) ?? rank) - rank;
      return /** @type {const} */ ({ kind: "top", member, rank, by });
    });
}

/** Add a story, the newest first. Members that take the lead in turn are one. @param {readonly Story[]} list @param {Story} story */
export function withStory(list, story) {
  const exchange = list.find(
    ({ kind, member, other, at }) =>
      kind === "lead" && story.kind === "lead" && member === story.other && other === story.member && story.at - at < EXCHANGE,
  );
  const times = exchange ? (exchange.times ?? 1) + 1 : story.times;
  return [{ ...story, times }, ...list.filter((one) => one !== exchange)].slice(0, KEPT);
}

/**
 * What a member did, in words that follow its name.
 * @param {Story} story @param {(member: string) => string} [nameOf] @param {import("./words.js").Writing} [writing]
 */
export function storyWords({ kind, rank, by, other, at, since }, nameOf = nameWords, writing = plain) {
  if (kind === "lead") return other === undefined ? translate("takes_first") : translate("takes_first_from", { other: nameOf(other) });
  if (kind === "top") return translate("enters_top", { rank });
  if (kind === "ahead") return translate("leads_by", { by: writing.grouped(by) });
  const minutes = Math.round((at - since) / MINUTES);
  return minutes > 0 && minutes <= 15 ? translate("climbs_in", { by, rank, minutes }) : translate("climbs", { by, rank });
}

/** Tells the stories of a board as they happen: one in three seconds, none twice in ten minutes except new leaders. */
export class Teller {
  /** @type {Moment | null} the latest moment that the stories cover */
  #before = null;
  /** @type {Moment | null} */
  #after = null;
  /** @type {Moment[]} one moment of each of the last minutes, the oldest first */
  #minutes = [];
  /** @type {Story[]} */
  #waiting = [];
  /** @type {Map<string, number>} when the page told each story */
  #told = new Map();
  #lookedAt = -Infinity;
  #timer = false;

  /**
   * @param {(story: Story) => void} tell
   * @param {{gaps?: boolean, now: () => number, setTimeout?: (work: () => void, pause: number) => void}} options
   */
  constructor(tell, { gaps = true, now, setTimeout = (work, pause) => void globalThis.setTimeout(work, pause) }) {
    this.tell = tell;
    this.gaps = gaps;
    this.now = now;
    this.setTimeout = setTimeout;
  }

  /** Take note of the board as it is now. @param {Omit<Moment, "at">} board */
  take({ epoch, period, records }) {
    if (epoch === null) return;
    const moment = { at: this.now(), epoch, period, records };
    if (!this.#before || !continues(this.#before, moment)) this.forget();
    this.#before ??= moment;
    this.#after = moment;
    this.#wait();
  }

  /** Begin again with the next moment: what changes until then is no story. */
  forget() {
    this.#before = this.#after = null;
    this.#minutes = [];
    this.#waiting = [];
  }

  #wait() {
    if (this.#timer) return;
    this.#timer = true;
    this.setTimeout(() => this.#look(), Math.max(0, this.#lookedAt + REST - this.now()));
  }

  #look() {
    this.#timer = false;
    const [before, after] = [this.#before, this.#after];
    if (!before || !after) return;
    this.#lookedAt = this.now();
    this.#before = after;
    const found = stories(before, after, this.gaps).filter(({ kind }) => kind !== "climb");
    const isTrue = (/** @type {Story} */ { member, rank }) => after.records.some((record) => record.key === member && record.rank <= rank);
    this.#waiting = [...this.#waiting.filter(isTrue), ...found, ...this.#climbs(after)]
      .filter((story) => this.#isNew(story))
      .sort((one, other) => IMPORTANCE.indexOf(one.kind) - IMPORTANCE.indexOf(other.kind));
    const story = this.#waiting.shift();
    this.#waiting.length = Math.min(this.#waiting.length, MOST_WAITING);
    if (!story) return;
    this.#told.set(nameOfStory(story), this.#lookedAt);
    this.tell(story);
    this.#wait();
  }

  /** Once a minute, find who has climbed in the last ten minutes. @param {Moment} after */
  #climbs(after) {
    const [first] = this.#minutes;
    const last = this.#minutes[this.#minutes.length - 1];
    if (last && after.at - last.at < MINUTES) return [];
    this.#minutes = [...this.#minutes.filter(({ at }) => after.at - at < REACH * MINUTES), after];
    return first ? stories(first, after, this.gaps).filter(({ kind }) => kind === "climb") : [];
  }

  /** @param {Story} story */
  #isNew(story) {
    for (const [name, at] of this.#told) if (this.#lookedAt - at >= AGAIN) this.#told.delete(name);
    return story.kind === "lead" || !this.#told.has(nameOfStory(story));
  }
}

/** @param {Story} story */
function nameOfStory({ kind, member, by }) {
  return kind === "ahead" ? `${kind} ${by} ${member}` : `${kind} ${member}`;
}
