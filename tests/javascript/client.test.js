// @ts-check
/** What the client does in each state of its connection, in virtual time. */
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { LiveBoard } from "../../static/client/live-board.js";
import { Board, Clock, seeded, World } from "./model.js";

const SECOND = 1000;

const watching = /** @type {LiveBoard[]} */ ([]); // stopped after each test, because a page has a limited number of streams

/** @param {import("../../static/client/live-board.js").Wish & {storage?: any}} [wish] */
function watched(wish) {
  const clock = new Clock();
  const random = seeded(7);
  const world = new World(new Board(5, "ordinal"), clock, random);
  const live = new LiveBoard("http://x/root/", "b", {
    random, now: clock.now, setTimeout: clock.setTimeout, clearTimeout: clock.clearTimeout,
    fetch: world.fetch, WebSocket: world.WebSocket, ...wish,
  }); // prettier-ignore
  watching.push(live);
  return { clock, world, live, state: () => live.snapshot.state };
}

/** A session storage. */
class Memory {
  values = /** @type {Map<string, string>} */ (new Map());
  getItem = (/** @type {string} */ name) => this.values.get(name) ?? null;
  setItem = (/** @type {string} */ name, /** @type {string} */ value) => void this.values.set(name, value);
  removeItem = (/** @type {string} */ name) => void this.values.delete(name);
}

const { warn } = console;
afterEach(() => {
  for (const live of watching.splice(0)) live.stop();
  for (const name of ["document", "location"]) delete (/** @type {any} */ (globalThis)[name]);
  console.warn = warn;
});

/** Collect the warnings that the client writes to the console. */
function warnings() {
  const said = /** @type {string[]} */ ([]);
  console.warn = (...texts) => said.push(texts.join(" "));
  return said;
}

/** @param {"refuse" | "hang"} how */
async function givesWay(how) {
  const { clock, world, live, state } = watched();
  world.board.like("a", 1);
  world.blocked.websocket = how;
  live.start();
  await clock.advance(5 * SECOND);
  assert.equal(state().name, "live");
  assert.deepEqual(world.opened, ["websocket", "websocket", "sse"]);
  assert.deepEqual(live.snapshot.records, [{ key: "a", score: 1, rank: 1 }]);
}

test("a refused WebSocket is replaced by an event stream within 5 s", () => givesWay("refuse"));

test("a WebSocket that never opens is replaced by an event stream within 5 s", () => givesWay("hang"));

test("if streams are refused too, the client polls once a second", async () => {
  const { clock, world, live, state } = watched();
  world.blocked.websocket = world.blocked.sse = "refuse";
  live.start();
  await clock.advance(5 * SECOND);
  assert.equal(state().name, "live");
  assert.deepEqual(world.opened.slice(0, 5), ["websocket", "websocket", "sse", "sse", "poll"]);
  await clock.advance(60 * SECOND);
  assert.equal(state().name, "live", "an answer without news is taken for silence");
  world.board.like("a", 2);
  await clock.advance(3 * SECOND);
  assert.equal(live.snapshot.records[0].score, 2);
  assert.equal(live.snapshot.viewers, 1);
});

test("the client remembers which transport works, and tries the WebSocket again after ten minutes", async () => {
  const storage = new Memory();
  const first = watched({ storage });
  first.world.blocked.websocket = "refuse";
  first.live.start();
  await first.clock.advance(5 * SECOND);
  first.live.stop();

  const { clock, world, live, state } = watched({ storage });
  world.blocked.websocket = "refuse";
  live.start();
  await clock.advance(300 * SECOND);
  assert.deepEqual(world.opened, ["sse"]);
  await clock.advance(310 * SECOND);
  assert.deepEqual(world.opened, ["sse", "websocket"], "the client does not try the WebSocket beside the stream");
  assert.equal(state().name, "live");
  world.blocked.websocket = "";
  await clock.advance(610 * SECOND);
  assert.deepEqual(world.opened, ["sse", "websocket", "websocket"]);
  assert.equal(world.viewers.size, 1, "the stream stays open beside the WebSocket");
  assert.equal(storage.values.size, 0);
});

test("a transport that breaks after the first records is left after three times, and for good", async () => {
  const storage = new Memory();
  const first = watched({ storage });
  first.world.broken = ["websocket"];
  first.live.start();
  for (let n = 0; n < 100; n++) {
    first.world.board.like("a", 1);
    await first.clock.advance(SECOND);
  }
  assert.deepEqual(first.world.opened, ["websocket", "websocket", "websocket", "sse"]);
  assert.equal(first.live.snapshot.records[0].score, 100);
  await first.clock.advance(700 * SECOND);
  assert.equal(first.world.opened.length, 4, "the WebSocket is tried again");
  first.live.stop();

  const { clock, world, live, state } = watched({ storage });
  world.broken = ["websocket", "sse"];
  live.start();
  for (let n = 0; n < 100; n++) {
    world.board.like("a", 1);
    await clock.advance(SECOND);
  }
  assert.deepEqual(world.opened.slice(0, 4), ["sse", "sse", "sse", "poll"]);
  assert.ok(world.opened.slice(4).every((kind) => kind === "poll"));
  assert.deepEqual([state().name, live.snapshot.records[0].score], ["live", 100]);
});

test("connections that break after more than their first records do not count", async () => {
  const { clock, world, live } = watched();
  live.start();
  for (let n = 0; n < 5; n++) {
    await clock.advance(5 * SECOND);
    world.board.like("a", 1);
    await clock.advance(SECOND);
    world.cut();
  }
  await clock.advance(5 * SECOND);
  assert.ok(world.opened.every((kind) => kind === "websocket"));
});

test("a page has at most two event streams, and its other boards poll", async () => {
  const pages = Array.from({ length: 6 }, () => watched({ transports: ["sse", "poll"] }));
  for (const { live } of pages) live.start();
  for (const { clock } of pages) await clock.advance(3 * SECOND);
  assert.deepEqual(pages.map(({ world }) => world.opened[0]), ["sse", "sse", "poll", "poll", "poll", "poll"]);
  for (const { live } of pages) {
    assert.equal(live.snapshot.state.name, "live");
    live.stop();
  }
  const { clock, world, live } = watched({ transports: ["sse"] });
  live.start();
  await clock.advance(3 * SECOND);
  assert.deepEqual(world.opened, ["sse"], "a stream that has ended still counts");
});

test("after a restart of the server the WebSocket is used again soon", async () => {
  const { clock, world, live, state } = watched();
  live.start();
  await clock.advance(6 * SECOND);
  world.blocked = { websocket: "refuse", sse: "", poll: "" };
  world.cut();
  await clock.advance(3 * SECOND);
  assert.equal(world.opened.at(-1), "sse");
  world.blocked.websocket = "";
  await clock.advance(6 * SECOND);
  assert.equal(world.opened.at(-1), "websocket");
  assert.deepEqual([state().name, world.viewers.size], ["live", 1]);
});

test("after a failure of 40 s the page is live within 6 s, and knows since when its rows are old", async () => {
  const { clock, world, live, state } = watched();
  live.start();
  await clock.advance(6 * SECOND);
  const since = live.receivedAt;
  world.blocked = { websocket: "refuse", sse: "refuse", poll: "refuse" };
  world.cut();
  for (let i = 0; i < 40; i++) {
    await clock.advance(SECOND);
    assert.equal(state().since, since);
  }
  world.blocked = { websocket: "", sse: "", poll: "" };
  await clock.advance(6 * SECOND);
  assert.equal(state().name, "live");
  assert.ok(state().since > since + 40 * SECOND);
});

test("a board whose connection hangs is stale after 12 s, as of the last message", async () => {
  const { clock, world, live, state } = watched();
  live.start();
  await clock.advance(SECOND);
  world.board.like("a", 1);
  await clock.advance(SECOND);
  assert.equal(state().name, "live");
  world.stalled = true;
  const since = clock.time;
  await clock.advance(11 * SECOND);
  assert.equal(state().name, "live");
  await clock.advance(SECOND);
  assert.equal(state().name, "stale");
  assert.ok(Math.abs(state().since - since) < SECOND);
  const { since: first } = state();
  await clock.advance(60 * SECOND);
  assert.deepEqual([state().name, state().since], ["stale", first], "the board is not stale any more, although no message arrived");
  world.stalled = false;
  await clock.advance(30 * SECOND);
  assert.equal(state().name, "live");
});

test("a quiet board stays live", async () => {
  const { clock, live, state } = watched();
  live.start();
  await clock.advance(SECOND);
  const { since } = state();
  await clock.advance(600 * SECOND);
  assert.deepEqual(state(), { name: "live", reason: undefined, since, retryAt: undefined });
});

test("the client reconnects when the server asks, and immediately if the page asks", async () => {
  const { clock, world, live, state } = watched();
  live.start();
  await clock.advance(SECOND);
  world.cut(3001, "the server is shutting down", 8);
  const { name, retryAt = 0 } = state();
  assert.equal(name, "reconnecting");
  assert.ok(retryAt >= clock.time + 8 * SECOND && retryAt <= clock.time + 8.5 * SECOND);
  await clock.advance(7 * SECOND);
  assert.deepEqual([world.opened.length, state().retryAt], [1, retryAt]);
  live.retry();
  await clock.advance(SECOND / 2);
  assert.deepEqual([world.opened.length, state().name], [2, "live"]);
});

test("a deleted board ends the watch", async () => {
  const { clock, world, live, state } = watched();
  live.start();
  await clock.advance(SECOND);
  world.cut(3502, "board deleted");
  assert.deepEqual([state().name, state().reason], ["ended", "board deleted"]);
  await clock.advance(60 * SECOND);
  assert.equal(world.opened.length, 1);
});

test("HTTP reveals that a board does not exist", async () => {
  const { clock, world, live, state } = watched();
  [world.blocked.websocket, world.deleted] = ["refuse", true];
  live.start();
  const ready = assert.rejects(live.ready(), /Board not found/);
  await clock.advance(5 * SECOND);
  assert.deepEqual([state().name, state().reason], ["ended", "Board not found"]);
  await ready;
});

test("a forbidden origin ends the watch, and the setting to change is named once", async () => {
  const problem = { title: "Pages from that origin may not connect", code: "origin_forbidden", detail: "add it to LIVE_X" };
  const headers = { "Content-Type": "application/problem+json" };
  /** Browsers hide all answers except the answer to a request for a stream. @param {any} url */
  const fetch = async (url) => {
    if (!String(url).includes("/stream")) throw new TypeError("hidden");
    return Response.json(problem, { status: 403, headers });
  };
  /** @type {(import("../../static/client/transports.js").TransportName[] | undefined)[]} */
  const wishes = [undefined, ["websocket"], ["poll"], ["websocket", "poll"], ["poll", "sse"]];
  /** @type {import("../../static/client/state.js").Board} */
  const position = { epoch: "e", offset: 1, records: [], rankCount: 0, totalScore: 0, ranks: "ordinal" };
  for (const [transports, known] of wishes.flatMap((wish) => /** @type {const} */ ([[wish, undefined], [wish, position]]))) {
    const said = warnings();
    Object.assign(globalThis, { location: { origin: "http://other" } });
    const { clock, world, live, state } = watched({ fetch, transports, position: known });
    world.blocked.websocket = "refuse";
    live.start();
    await clock.advance(60 * SECOND);
    assert.deepEqual([state().name, state().reason], ["ended", problem.title], String(transports));
    assert.deepEqual(said, ["add it to LIVE_X"]);
  }
});

test("without a WebSocket the client uses the other transports, and says so", async () => {
  const said = warnings();
  const { clock, world, live, state } = watched({ WebSocket: undefined });
  live.start();
  await clock.advance(SECOND);
  assert.equal(state().name, "live");
  assert.deepEqual(world.opened, ["sse"]);
  assert.deepEqual(said, ["no WebSocket: sse,poll"]);
});

test("while paused the records do not change, and changes are counted", async () => {
  const { clock, world, live, state } = watched();
  world.board.like("a", 1);
  live.start();
  await clock.advance(SECOND);
  live.pause();
  for (let i = 0; i < 37; i++) world.board.like("b", 1);
  await clock.advance(SECOND);
  assert.deepEqual([state().name, live.snapshot.waiting, live.paused], ["paused", 37, true]);
  assert.deepEqual(live.snapshot.records, [{ key: "a", score: 1, rank: 1 }]);
  world.stalled = true;
  await clock.advance(13 * SECOND);
  assert.equal(state().name, "stale", "the pause hides the lost connection");
  world.stalled = false;
  await clock.advance(30 * SECOND);
  assert.equal(state().name, "paused");
  live.resume();
  assert.deepEqual([state().name, live.snapshot.waiting, live.snapshot.records[0].key], ["live", 0, "b"]);
});

test("subscribers are called for each change, and listeners for their kind", async () => {
  const { clock, world, live } = watched();
  const called = { any: 0, change: 0, states: /** @type {string[]} */ ([]) };
  const off = live.subscribe(() => called.any++);
  live.on("change", () => called.change++);
  live.on("state", ({ name }) => called.states.push(name));
  live.start();
  await clock.advance(SECOND);
  world.board.like("a", 1);
  await clock.advance(20 * SECOND);
  assert.deepEqual(called.states, ["connecting", "live"]);
  assert.equal(called.change, 2);
  const before = called.any;
  off();
  live.stop();
  assert.equal(called.any, before);
  assert.equal(called.states.at(-1), "idle");
});

test("a snapshot is another object only after a change, and can't be changed", async () => {
  const { clock, live } = watched();
  live.start();
  await clock.advance(SECOND);
  const { snapshot } = live;
  await clock.advance(20 * SECOND);
  assert.equal(live.snapshot, snapshot);
  assert.throws(() => Object.assign(snapshot, { offset: 9 }), TypeError);
});

test("an iteration yields the latest snapshot, and ends with the watch", async () => {
  const { clock, world, live } = watched();
  live.start();
  const seen = /** @type {number[]} */ ([]);
  const reading = (async () => {
    for await (const { offset } of live) seen.push(offset);
  })();
  for (let i = 0; i < 5; i++) {
    await clock.advance(SECOND);
    world.board.like("a", 1);
  }
  await clock.advance(SECOND);
  live.stop();
  await reading;
  assert.deepEqual([...new Set(seen)], [-1, 0, 1, 2, 3, 4, 5]);
  assert.equal((await watchedReady()).epoch, "e1");
});

async function watchedReady() {
  const { clock, live } = watched();
  live.start();
  const ready = live.ready();
  await clock.advance(SECOND);
  return ready;
}

test("a signal stops the watch", async () => {
  const abort = new AbortController();
  const { clock, world, live, state } = watched({ signal: abort.signal });
  live.start();
  await clock.advance(SECOND);
  abort.abort();
  assert.deepEqual([state().name, world.viewers.size], ["idle", 0]);
});

test("a hidden page is not updated until it is shown", async () => {
  const page = Object.assign(new EventTarget(), { hidden: false });
  Object.assign(globalThis, { document: page, addEventListener: () => {} });
  const { clock, world, live } = watched();
  let calls = 0;
  live.subscribe(() => calls++);
  live.start();
  await clock.advance(SECOND);
  const before = calls;
  const hide = (/** @type {boolean} */ hidden) => {
    page.hidden = hidden;
    page.dispatchEvent(new Event("visibilitychange"));
  };
  hide(true);
  for (let i = 0; i < 10; i++) {
    world.board.like("a", 1);
    await clock.advance(SECOND);
  }
  assert.equal(calls, before);
  hide(false);
  assert.deepEqual([calls, live.snapshot.records[0].score], [before + 1, 10]);
});

test("another interval is requested before the open connection is closed", async () => {
  const { clock, world, live, state } = watched({ interval: 200 });
  live.start();
  await clock.advance(SECOND);
  const states = /** @type {string[]} */ ([]);
  live.on("state", ({ name }) => states.push(name));
  live.interval = 5000;
  await clock.advance(SECOND);
  assert.deepEqual([world.opened.length, world.viewers.size, states], [2, 1, []]);
  assert.match(world.asked.at(-1) ?? "", /interval=5000ms/);
  live.interval = "auto";
  await clock.advance(SECOND);
  assert.doesNotMatch(world.asked.at(-1) ?? "", /interval/);
  assert.equal(state().name, "live");
});

test("a connection that replaces another one shows nothing older than the other one has shown", async () => {
  const { clock, world, live } = watched();
  const offsets = /** @type {number[]} */ ([]);
  live.on("change", ({ offset }) => offsets.push(offset));
  live.start();
  await clock.advance(SECOND);
  const watch = world.watch.bind(world);
  world.watch = (url, send, close) => watch(url, (text) => clock.setTimeout(() => send(text), 350), close);
  live.interval = 5000;
  for (let likes = 0; likes < 20; likes++) {
    world.board.like("a", 1);
    await clock.advance(100);
  }
  await clock.advance(SECOND);
  assert.deepEqual([world.opened.length, live.snapshot.offset, live.snapshot.records[0].score], [2, 20, 20]);
  assert.ok(offsets.length > 10);
  assert.deepEqual(offsets, [...new Set(offsets)].sort((a, b) => a - b));
});

test("a watch can begin at a known position", async () => {
  const records = [{ key: "a", score: 1, rank: 1 }];
  const position = { epoch: "e1", offset: 1, rankCount: 1, totalScore: null, records, ranks: /** @type {const} */ ("ordinal") };
  const { clock, world, live } = watched({ position, member: "me&you", around: 2, limit: 5 });
  assert.deepEqual(live.snapshot.records, records);
  world.board.like("a", 1);
  live.start();
  await clock.advance(SECOND);
  assert.equal(world.asked[0], "ws://x/root/v1/boards/b/live?limit=5&key=me%26you&around=2&epoch=e1&offset=1");
});

test("another definition of the board is taken over, although no record has changed", async () => {
  const { clock, world, live } = watched();
  live.start();
  await clock.advance(SECOND);
  const send = (/** @type {object} */ facts) => world.viewers.forEach((viewer) => viewer.send(JSON.stringify({ ...world.board.sync(), ...facts })));
  const changes = /** @type {unknown[]} */ ([]);
  live.on("change", ({ definition, facts }) => changes.push([definition, facts?.closes]));
  send({ definition: "d1" });
  send({ definition: "d2", closes: "2026-11-29T12:00:00Z" });
  send({ definition: "d2", closes: "2026-11-29T12:00:00Z" });
  assert.deepEqual(changes, [["d1", undefined], ["d2", "2026-11-29T12:00:00Z"]]);
});
