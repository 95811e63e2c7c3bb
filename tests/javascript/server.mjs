// @ts-check
/** Watches a real server by each transport while likes arrive; run by `test_javascript.py` with the server's address. */
import assert from "node:assert/strict";

import { LiveBoard } from "./static/client/live-board.js";
import { Producer } from "./static/client/producer.js";

const server = process.argv[2];
const transports = /** @type {const} */ (["websocket", "sse", "poll"]);

const producer = new Producer(server, { rank: true, linger: 0 });

/** @param {string} member */
async function like(member) {
  const { outcome, records, event } = await producer.send({ key: member });
  assert.equal(outcome, "accepted");
  assert.equal(records[0].key, member);
  assert.equal((await producer.send(event)).outcome, "duplicate");
}

const boards = transports.map((transport) => {
  const board = new LiveBoard(server, "posts", { transports: [transport], limit: 5, member: "k9", around: 1 });
  board.start();
  return board;
});
const first = await Promise.all(boards.map((board) => board.ready()));
assert.deepEqual(first.map(({ state }) => state.name), ["live", "live", "live"]);
for (let i = 0; i < 100; i++) await like(`k${(i * i) % 13}`);

const page = await (await fetch(`${server}/v1/boards/posts?limit=5`)).json();
assert.equal(page.offset, 100);
const own = await (await fetch(`${server}/v1/boards/posts/records/k9`)).json();
/** @param {any} around */
const isOwn = (around) => ["key", "score", "rank", "gap"].every((name) => around?.[name] === own[name]);
await Promise.all(
  boards.map(async (board) => {
    for await (const snapshot of board) if (snapshot.offset === page.offset && isOwn(snapshot.around)) break;
    const { epoch, records, rankCount, totalScore, around } = board.snapshot;
    assert.deepEqual({ epoch, records, rankCount, totalScore }, {
      epoch: page.epoch, records: page.records, rankCount: page.rank_count, totalScore: page.total_score,
    }); // prettier-ignore
    assert.equal(around?.records.length, 3);
    board.stop();
  }),
);
console.log("all transports agree");
