// @ts-check
/** Watches a private board by each transport with tokens that end while likes arrive; run by `test_javascript.py`. */
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";

import { LiveBoard } from "./static/client/live-board.js";
import { like as vote, Producer, RefusedError } from "./static/client/producer.js";

const [server, secret, key] = process.argv.slice(2);
const part = (/** @type {object} */ value) => Buffer.from(JSON.stringify(value)).toString("base64url");

/**
 * @param {number} exp
 * @param {object} [more]
 */
function sign(exp, more) {
  const text = `${part({ alg: "HS256" })}.${part({ aud: "live-board", exp, boards: ["staff"], ...more })}`;
  return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
}

async function like() {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${key}` };
  const body = JSON.stringify({ key: "a", board: "staff" });
  assert.equal((await fetch(`${server}/v1/events`, { method: "POST", headers, body })).status, 200);
}

const transports = /** @type {const} */ (["websocket", "sse", "poll"]);
const watches = transports.map((transport) => {
  const watch = { transport, asked: 0, offsets: /** @type {number[]} */ ([]), states: /** @type {Set<string>} */ (new Set()) };
  const token = async () => sign(Math.ceil(Date.now() / 1000) + (watch.asked++ ? 30 : 2));
  const board = new LiveBoard(server, "staff", { transports: [transport], token });
  board.on("state", ({ name }) => watch.states.add(name));
  /** @type {unknown} */
  let shown;
  board.on("change", ({ epoch, offset, records }) => {
    if (epoch && records !== shown) watch.offsets.push(offset);
    shown = records;
  });
  board.start();
  return { ...watch, watch, board };
});
await Promise.all(watches.map(({ board }) => board.ready()));
let likes = 0;
while (!watches.every(({ watch }) => watch.asked > 1)) {
  await like();
  likes++;
  await new Promise((resolve) => setTimeout(resolve, 50));
}
for (let i = 0; i < 3; i++, likes++) await like();
for (const { board, watch } of watches) {
  for await (const { offset } of board) if (offset === likes) break;
  assert.equal(board.snapshot.records[0].score, likes);
  assert.deepEqual([...watch.states], ["connecting", "live"], watch.transport);
  assert.ok(
      watch.offsets.every((offset, at) => !at || offset > watch.offsets[at - 1]), `${watch.transport}: ${watch.offsets}`,
    );
  board.stop();
}
const late = new LiveBoard(server, "staff", { token: () => sign(1) });
late.start();
for await (const { state } of late) if (state.name === "ended") break;
assert.equal(late.snapshot.epoch, null);
const producer = new Producer(server, { apiKey: key });
assert.equal((await producer.send({ key: "Ada", board: "cup", actor: "first" })).outcome, "accepted");
const token = sign(Math.ceil(Date.now() / 1000) + 30, { likes: ["cup"], sub: "ann" });
assert.equal(await vote(server, "cup", "Ada", { token }), true);
assert.equal(await vote(server, "cup", "Ada", { token }), false);
await assert.rejects(vote(server, "staff", "a", { token }), (error) => error instanceof RefusedError && error.code === "scope_forbidden");
console.log("no gap");
process.exit();
