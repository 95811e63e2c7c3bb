// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { stories, storyWords, Teller, withStory } from "../../static/client/stories.js";

const MINUTE = 60_000;

/**
 * A moment with members in the order of their ranks. `a=50` gives `a` this score. A score that is not given is ten less
 * than the score before it.
 *
 * @param {string} list
 * @param {number} [at]
 * @param {{epoch?: string, period?: string, dense?: boolean}} [more]
 */
function moment(list, at = 0, { epoch = "e", period, dense = false } = {}) {
  let [score, rank] = [1000, 0];
  const records = list.split(" ").filter(Boolean).map((text, index) => {
    const [member, given] = text.split("=");
    const next = given === undefined ? score - 10 : Number(given);
    if (!dense || next !== score || index === 0) rank = dense ? rank + 1 : index + 1;
    score = next;
    return { key: member, rank, score };
  });
  return { at, epoch, period, records };
}

/** @param {import("../../static/client/stories.js").Story} story */
const brief = ({ kind, member, by, rank, other }) => `${kind} ${member} ${rank} ${by}${other ? ` ${other}` : ""}`;
const TWELVE = "a b c d e f g h i j k l";

/** @type {[string, string, string, string[]][]} */
const TABLE = [
  ["nothing changed", TWELVE, TWELVE, []],
  ["a new leader", "a b c", "b a c", ["lead b 1 0 a"]],
  ["a leader that was not on the board", "a b", "x a b", ["lead x 1 0 a"]],
  ["a leader after the first was removed", "a b", "b", ["lead b 1 0 a"]],
  ["an entry into the top ten", TWELVE, "a b c d e f g h i k j l", ["top k 10 1"]],
  ["an entry that climbs", TWELVE, "a b c d e l f g h i j k", ["top l 6 6"]],
  ["an entry of a new member", TWELVE, "a b c x d e f g h i j k l", ["top x 4 0"]],
  ["a board that only fills up", "a b c", "a b c d", []],
  ["an entry that takes the first rank", TWELVE, "l a b c d e f g h i j k", ["lead l 1 0 a"]],
  ["a climb", "a b c d e f", "a e b c d f", ["climb e 2 3"]],
  ["a small move", "a b c d e f", "a d b c e f", []],
  ["the largest climbs first", "a b c d e f g h i", "a i h b c d e f g", ["climb i 2 7", "climb h 3 5"]],
  ["a lead that reaches a round number", "a=1900 b=1000", "a=2010 b=1000", ["ahead a 1 1000"]],
  ["a lead that reaches no further round number", "a=2010 b=1000", "a=2990 b=1000", []],
  ["a small lead", "a=60 b=10", "a=70 b=10", []],
  ["a lead that shrinks", "a=2010 b=1000", "a=2010 b=1500", []],
  ["a lead where the lowest score is first", "a=1000 b=1400", "a=1000 b=1500", ["ahead a 1 500"]],
  ["the first records", "", "a b", []],
  ["no records any more", "a b", "", []],
];

test("each change of a board has its stories", () => {
  for (const [name, before, after, expected] of TABLE) {
    assert.deepEqual(stories(moment(before), moment(after, 1)).map(brief), expected, name);
  }
});

test("a change to another epoch or period of the board has no stories", () => {
  assert.deepEqual(stories(moment("a b"), moment("b a", 1, { epoch: "f" })), []);
  assert.deepEqual(stories(moment("a b", 0, { period: "2026-W47" }), moment("b a", 1, { period: "2026-W48" })), []);
});

test("members that share the first rank do not lead", () => {
  const dense = { dense: true };
  assert.deepEqual(stories(moment("a=9 b=8", 0, dense), moment("b=9 a=9", 1, dense)), []);
  assert.deepEqual(stories(moment("b=9 a=9", 0, dense), moment("a=10 b=9", 1, dense)).map(brief), ["lead a 1 0 b"]);
});

test("where differences of scores mean nothing, no story tells that a lead reaches a round number", () => {
  assert.deepEqual(stories(moment("a=1900 b=1000"), moment("a=2010 b=1000", 1), false), []);
});

test("the stories of random changes are true, and tell of different members", () => {
  const random = generator(7);
  for (let round = 0; round < 2000; round++) {
    const [before, after] = [randomMoment(random, 0), randomMoment(random, 1)];
    const frozen = JSON.stringify([before, after]);
    const found = stories(before, after);
    assert.equal(JSON.stringify([before, after]), frozen);
    assert.deepEqual(stories(before, before), []);
    const was = (/** @type {string} */ member) => before.records.find((record) => record.key === member)?.rank;
    const is = (/** @type {string} */ member) => after.records.find((record) => record.key === member)?.rank;
    const members = found.filter(({ kind }) => kind !== "ahead").map(({ member }) => member);
    assert.equal(new Set(members).size, members.length);
    for (const story of found) {
      assert.equal(story.rank, is(story.member));
      if (story.kind === "lead") assert.ok(after.records[0].key === story.member && before.records[0].key !== story.member);
      if (story.kind === "top") assert.ok(story.rank <= 10 && (was(story.member) ?? 11) > 10);
      if (story.kind === "climb") assert.ok(story.by >= 3 && was(story.member) === story.rank + story.by);
      if (story.kind === "ahead") assert.ok(after.records[0].score - after.records[1].score >= story.by);
    }
    const isFirst = before.records[0]?.key === after.records[0]?.key;
    const hasBoth = before.records.length > 0 && after.records.length > 0;
    assert.equal(found.some(({ kind }) => kind === "lead"), hasBoth && !isFirst);
  }
});

/** @param {number} seed */
function generator(seed) {
  return () => (seed = (seed * 48271) % 2147483647) / 2147483647;
}

/**
 * @param {() => number} random
 * @param {number} at
 */
function randomMoment(random, at) {
  const members = [..."abcdefghijklmnop"].filter(() => random() < 0.9).map((member) => [random(), member]).sort();
  return moment(members.map(([, member], i) => `${member}=${2000 - 100 * i - Math.floor(random() * 90)}`).join(" "), at);
}

test("two leaders that take turns are one story in the list", () => {
  /** @type {(member: string, other: string, at: number) => import("../../static/client/stories.js").Story} */
  const lead = (member, other, at) => ({ kind: "lead", member, other, at, since: at - 1, rank: 1, by: 0 });
  let list = withStory([], lead("a", "b", 0));
  list = withStory(list, lead("b", "a", 1000));
  list = withStory(list, lead("a", "b", 2000));
  assert.deepEqual(list.map(({ member, times }) => [member, times]), [["a", 3]]);
  list = withStory(list, lead("c", "a", 3000));
  assert.deepEqual(list.map(({ member }) => member), ["c", "a"]);
  assert.equal(withStory(list, lead("b", "a", 9 * MINUTE)).length, 3);
  for (let i = 0; i < 20; i++) list = withStory(list, { ...lead(`x${i}`, "y", i), kind: "top" });
  assert.equal(list.length, 6);
});

test("a story is said in words that follow the name", () => {
  const said = stories(moment(TWELVE), moment("l a b c d e f g h i j k", MINUTE)).map((story) => storyWords(story));
  assert.deepEqual(said, ["takes first from a"]);
  const climb = stories(moment("a b c d e"), moment("a e b c d", 10 * MINUTE));
  assert.equal(storyWords(climb[0]), "up 3 to 2 in 10 min");
  assert.equal(storyWords({ ...climb[0], since: -60 * MINUTE }), "up 3 to 2");
});

/** A teller whose clock and timer the test moves. */
function tellerAt() {
  const told = /** @type {string[]} */ ([]);
  const timers = /** @type {{at: number, work: () => void}[]} */ ([]);
  const clock = { now: 0 };
  const teller = new Teller((story) => told.push(`${clock.now / 1000} ${brief(story)}`), {
    now: () => clock.now,
    setTimeout: (work, pause) => void timers.push({ at: clock.now + pause, work }),
  });
  /** @param {number} at */
  const until = (at) => {
    for (;;) {
      timers.sort((one, other) => one.at - other.at);
      if (!timers.length || timers[0].at > at) break;
      const { at: due, work } = /** @type {{at: number, work: () => void}} */ (timers.shift());
      clock.now = due;
      work();
    }
    clock.now = at;
  };
  return { teller, told, until };
}

test("a teller tells at most one story in three seconds", () => {
  const { teller, told, until } = tellerAt();
  teller.take(moment(TWELVE));
  until(100);
  teller.take(moment("b a c d e f g h k i j l"));
  until(20_000);
  assert.deepEqual(told, ["3 lead b 1 0 a", "6 top k 9 2"]);
});

test("a teller tells of a new leader before the stories that wait", () => {
  const { teller, told, until } = tellerAt();
  teller.take(moment(TWELVE));
  until(100);
  teller.take(moment("a b c d e f g x y z l k"));
  until(3100);
  teller.take(moment("b a c d e f g x y z l k"));
  until(8000);
  assert.deepEqual(told, ["3 top x 8 0", "6 lead b 1 0 a"]);
});

test("a teller leaves out a leader that leads only for a moment, and repeats no story for ten minutes", () => {
  const { teller, told, until } = tellerAt();
  teller.take(moment(TWELVE));
  until(100);
  teller.take(moment("b a c d e f g h i j k l"));
  until(200);
  teller.take(moment(TWELVE));
  until(5000);
  assert.deepEqual(told, []);
  for (let i = 1; i <= 8; i++) {
    teller.take(moment(i % 2 ? "a b c d e f g h i k j l" : TWELVE));
    until(5000 + 4000 * i);
  }
  assert.deepEqual(told.map((text) => text.replace(/^\S+ /, "")).sort(), ["top j 10 1", "top k 10 1"]);
});

test("climbs are measured over ten minutes", () => {
  const { teller, told, until } = tellerAt();
  for (let minute = 0; minute <= 12; minute++) {
    until(minute * MINUTE);
    teller.take(moment(["a b c d e f", "a b c d f e", "a b c f d e", "a b f c d e"][Math.min(3, minute >> 1)]));
    until(minute * MINUTE + 10);
  }
  assert.deepEqual(told.map((text) => text.replace(/^\S+ /, "")), ["climb f 3 3"]);
});

test("a teller leaves out changes from before a new epoch, or from before it was told to forget", () => {
  const { teller, told, until } = tellerAt();
  teller.take(moment("a b"));
  until(10);
  teller.take(moment("b a", 0, { epoch: "f" }));
  until(10_000);
  teller.forget();
  teller.take(moment("a b", 0, { epoch: "f" }));
  until(20_000);
  assert.deepEqual(told, []);
});
