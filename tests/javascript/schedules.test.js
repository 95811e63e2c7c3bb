// @ts-check
/** Random schedules of drops, gaps, stalls and blocked transports: the client finally has the state of the server. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { LiveBoard } from "../../static/client/live-board.js";
import { Board, Clock, seeded, World } from "./model.js";

const SCHEDULES = 1000;
const RANKS = /** @type {const} */ (["ordinal", "dense", "competition"]);
const TRANSPORTS = ["websocket", "sse", "poll"];
const STALE_AFTER = 12_000;
const LONGEST_STEP = 3_000;

/** Change something on the board, in the network or in the server. */
function act(/** @type {World} */ world, /** @type {() => number} */ random) {
  const pick = (/** @type {any[]} */ list) => list[Math.floor(random() * list.length)];
  const like = () => world.board.like(`m${Math.floor(random() * 12)}`, pick([1, 1, 2, 5, -1]));
  pick([
    like, like, like, like, like, like,
    () => world.cut(),
    () => world.cut(3001, "the server is shutting down", random() * 3),
    () => void (world.lossy = pick([0, 0, 0.3])),
    () => void (world.stalled = random() < 0.3),
    () => void (world.blocked[pick(TRANSPORTS)] = pick(["", "", "refuse", "hang"])),
    () => random() < 0.2 && world.board.lose(),
  ])(); // prettier-ignore
}

/** Check that the shown records were the board's top at the shown position, and are not called live after a silence. */
function check(/** @type {LiveBoard} */ live, /** @type {World} */ world, /** @type {number} */ stalledAt) {
  const { state, epoch, offset, records } = live.snapshot;
  if (epoch === null) return;
  assert.deepEqual(records, world.board.tops.get(`${epoch}:${offset}`));
  const silence = world.stalled ? world.clock.time - stalledAt : 0;
  if (state.name === "live") assert.ok(silence <= STALE_AFTER + 100, `live after ${silence} ms of silence`);
}

async function run(/** @type {number} */ seed) {
  const random = seeded(seed);
  const clock = new Clock();
  const world = new World(new Board(5, RANKS[seed % 3]), clock, random);
  const live = new LiveBoard("http://x", "b", {
    random, now: clock.now, setTimeout: clock.setTimeout, clearTimeout: clock.clearTimeout,
    fetch: world.fetch, WebSocket: world.WebSocket, staleAfter: STALE_AFTER,
  }); // prettier-ignore
  live.start();
  let stalledAt = 0;
  for (let step = 0; step < 40; step++) {
    const before = world.stalled;
    act(world, random);
    if (world.stalled && !before) stalledAt = clock.time;
    await clock.advance(random() ** 3 * LONGEST_STEP);
    check(live, world, stalledAt);
  }
  Object.assign(world, { stalled: false, lossy: 0, blocked: { websocket: "", sse: "", poll: "" } });
  world.board.like("last", 3); // the update for this like reveals a gap if the last message was lost
  await clock.advance(60_000);
  const { snapshot } = live;
  assert.equal(snapshot.state.name, "live", JSON.stringify(snapshot.state));
  assert.deepEqual(snapshot.records, world.board.top());
  assert.deepEqual([snapshot.epoch, snapshot.offset], [world.board.epoch, world.board.offset]);
  assert.equal(snapshot.rankCount, world.board.scores.size);
  live.stop();
  return new Set(world.opened);
}

test(`${SCHEDULES} schedules end with the state of the server`, async () => {
  const used = new Set();
  for (let seed = 1; seed <= SCHEDULES; seed++) {
    try {
      for (const kind of await run(seed)) used.add(kind);
    } catch (error) {
      throw new Error(`schedule ${seed}: ${error instanceof Error ? error.name : error}`, { cause: error });
    }
  }
  assert.deepEqual([...used].sort(), ["poll", "sse", "websocket"]);
});
