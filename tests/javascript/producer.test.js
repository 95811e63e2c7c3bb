// @ts-check
/** The producer for Node.js and browsers: batches in which each event counts once, whatever fails. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { BufferFullError, Producer, RefusedError, UnavailableError } from "../../static/client/producer.js";

/** @typedef {{status?: number, body?: object | string, after?: string}} Reply */

/**
 * A server that counts each id once. It answers the first bodies with the `replies`, without counting their events. In
 * place of a null, it counts the events, and the response is lost.
 *
 * @param {(Reply | null)[]} replies
 */
function server(...replies) {
  /** @type {any[][]} */
  const bodies = [];
  const known = new Set();
  /** @type {typeof fetch} */
  const fetch = async (_url, init) => {
    const events = String(init?.body).split("\n").map((line) => JSON.parse(line));
    bodies.push(events);
    const reply = replies.shift();
    if (reply) {
      const headers = new Headers(reply.after ? { "Retry-After": reply.after } : {});
      const text = typeof reply.body === "string" ? reply.body : JSON.stringify(reply.body ?? {});
      return new Response(text, { status: reply.status ?? 200, headers });
    }
    /** @type {number[]} */
    const duplicates = [];
    events.forEach(({ source, id }, index) => (known.has(`${source} ${id}`) ? duplicates.push(index) : known.add(`${source} ${id}`)));
    if (reply === null) throw new TypeError("the connection was lost");
    const accepted = events.length - duplicates.length;
    return new Response(JSON.stringify({ accepted, duplicate: duplicates.length, rejected: [], ...(accepted && duplicates.length && { duplicates }) }));
  };
  return { bodies, known, fetch };
}

/** A clock that each pause moves on at once. @param {number[]} pauses */
function clock(pauses) {
  let time = 1e12;
  return {
    now: () => time,
    random: () => 1,
    setTimeout: (/** @type {() => void} */ work, /** @type {number} */ pause) => {
      pauses.push(pause);
      time += pause;
      setTimeout(work);
    },
  };
}

test("a batch whose response is lost is sent again with the same ids, so each event counts once", async () => {
  const { bodies, known, fetch } = server(null, { status: 502 });
  const producer = new Producer("http://host/", { fetch, ...clock([]) });
  const results = ["a", "b", "a"].map((key) => producer.send({ key }));
  results.push(producer.send({ key: "c", source: "shop" }), producer.send({ key: "d", source: "shop", id: "7" }));
  await producer.flush();
  assert.deepEqual((await Promise.all(results)).map(({ outcome }) => outcome), Array(5).fill("duplicate"));
  assert.equal(bodies.length, 3);
  assert.deepEqual(bodies[1], bodies[0]);
  assert.deepEqual(bodies[2], bodies[0]);
  assert.equal(known.size, 5);
  assert.ok(known.has("shop 7"));
  assert.equal(producer.pendingBytes, 0);
});

test("a full batch does not wait, and a batch has at most 1,000 events", async () => {
  const { bodies, fetch } = server();
  const producer = new Producer("http://host", { fetch, linger: 1e6, setTimeout: () => {} }); // only `flush` ends a wait
  for (let number = 0; number < 2_500; number++) void producer.send({ key: `m${number}` });
  await producer.flush();
  assert.deepEqual(bodies.map(({ length }) => length), [1000, 1000, 500]);
  assert.equal(bodies.flat().at(-1).key, "m2499");
});

test("the producer waits for as long as the server asks, and a 429 does not use up the patience", async () => {
  /** @type {number[]} */
  const pauses = [];
  const busy = { status: 429, after: "90", body: { code: "rate_exceeded" } };
  const { fetch } = server(busy, busy, { status: 503, after: "2" }, { ...busy, after: "1e12" });
  const producer = new Producer("http://host", { fetch, linger: 1, patience: 5_000, ...clock(pauses) });
  assert.equal((await producer.send({ key: "a" })).outcome, "accepted");
  assert.deepEqual(pauses, [1, 90_100, 90_100, 2_100, 86_400_100]);
});

test("a server that stays away or refuses the body fails the producer, which returns the events with their ids", async () => {
  const away = () => Promise.reject(new TypeError("refused"));
  const producer = new Producer("http://host", { fetch: away, patience: 3_000, ...clock([]) });
  void producer.send({ key: "a" });
  await assert.rejects(producer.flush(), UnavailableError);
  await assert.rejects(producer.send({ key: "b" }), UnavailableError);
  const [{ key, source, id }] = producer.unsent;
  assert.equal(key, "a");
  const { known, fetch } = server();
  await new Producer("http://host", { fetch }).send(producer.unsent[0]);
  assert.ok(known.has(`${source} ${id}`));

  for (const body of [{ code: "credentials_invalid", detail: "unknown" }, "<html>"]) {
    const refusing = server({ status: 401, body });
    const refused = new Producer("http://host", { fetch: refusing.fetch });
    await assert.rejects(refused.send({ key: "a" }), RefusedError);
    assert.equal(refusing.bodies.length, 1);
  }
  const other = server({ body: "hello" });
  await assert.rejects(new Producer("http://host", { fetch: other.fetch }).send({ key: "a" }), RefusedError);
});

test("if nobody has ever answered at the address, the producer says so after 5 s", async () => {
  const refused = Object.assign(new TypeError("fetch failed"), { cause: { code: "ECONNREFUSED" } });
  /** @type {typeof fetch} */
  const away = async () => Promise.reject(refused);
  for (const answers of [0, 1]) {
    /** @type {number[]} */
    const pauses = [];
    const { fetch } = server();
    let asked = 0;
    const producer = new Producer("http://host:8000", {
      fetch: (...given) => (asked++ < answers ? fetch : away)(...given),
      linger: 0,
      ...clock(pauses),
    });
    if (answers) await producer.send({ key: "a" });
    const expected = answers
      ? /^http:.* stays unavailable \(TypeError: fetch failed: ECONNREFUSED\)$/
      : /^no Live Board server answers at http:\/\/host:8000\/v1\/events \(.*ECONNREFUSED\): check the address and the port/;
    await assert.rejects(producer.send({ key: "b" }), { name: "UnavailableError", message: expected });
    const waited = pauses.reduce((sum, pause) => sum + pause, 0);
    assert.ok(answers ? waited > 50_000 && waited <= 60_000 : waited > 2_000 && waited <= 5_000, `${waited}`);
  }
});

test("each event has its own result", async () => {
  const rejected = [
    { index: 1, code: "late", detail: "", retryable: false },
    { index: 2, code: "frozen", detail: "", retryable: true, counted: true },
  ];
  const records = [{ index: 0, board: "b", key: "a", score: 5, rank: 1 }];
  const { fetch } = server({ body: { accepted: 2, duplicate: 1, rejected, duplicates: [3], records } });
  const producer = new Producer("http://host", { fetch, rank: true });
  const results = await Promise.all(["a", "b", "c", "d"].map((key) => producer.send({ key })));
  assert.deepEqual(results.map(({ outcome }) => outcome), ["accepted", "rejected", "accepted", "duplicate"]);
  assert.deepEqual(results.map(({ rejections }) => rejections.map(({ code }) => code)), [[], ["late"], ["frozen"], []]);
  assert.equal(results[0].records[0].rank, 1);
  assert.ok(results[2].event.id, "the event has no id with which it can be sent again");
});

test("the buffer is bounded in bytes", async () => {
  const { fetch } = server();
  const producer = new Producer("http://host", { fetch, maxBytes: 1_000 });
  const sent = [];
  while (producer.pendingBytes < 900) sent.push(producer.send({ key: "é".repeat(50) }));
  assert.throws(() => producer.send({ key: "é".repeat(50) }), BufferFullError, "a caller that ignores promises does not learn of the full buffer");
  await producer.flush();
  assert.equal((await producer.send({ key: "é".repeat(50) })).outcome, "accepted");
  assert.throws(() => producer.send({ key: "é".repeat(40_000) }), RangeError);
  assert.throws(() => producer.send({ key: "a", metadata: { amount: 1n } }), TypeError);
  assert.equal((await Promise.all(sent)).length, sent.length);
});
