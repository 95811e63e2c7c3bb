/** Sends events in batches so that each counts once, and sends likes with a viewer token. For Node.js and browsers. */
import { Backoff } from "./backoff.js";

/**
 * @typedef {{key: string, amount?: number, type?: string, board?: string, time?: string, id?: string, source?: string,
 *            category?: string, actor?: string, fields?: Record<string, number>, metadata?: object,
 *            replaces?: string}} Event
 *   `key`: the member. An event that you give an `id` counts once for each `source`. `replaces`: the member whose vote of
 *   the actor is taken back in the same step
 * @typedef {{index: number, code: string, detail: string, retryable: boolean, board?: string, counted?: true}} Rejection
 * @typedef {{index: number, board: string, key: string, score: number | null, rank: number | null, best: boolean | null,
 *            period: string | null, rank_count: number, epoch: string, offset: number,
 *            fields?: Record<string, number>}} EventRecord
 * @typedef {{outcome: "accepted" | "duplicate" | "rejected", rejections: readonly Rejection[],
 *            records: readonly EventRecord[], event: Event}} Result
 *   `rejections`: why boards refused the event; another board may have counted it. `records`: only with `rank`.
 *   `event`: as it was sent, with its id. If a rejection is `retryable`, you can send this event again later
 * @typedef {{accepted: number, duplicate: number, rejected: Rejection[], duplicates?: number[],
 *            records?: EventRecord[]}} Answer
 * @typedef {{apiKey?: string, rank?: boolean, linger?: number, maxBytes?: number, patience?: number, timeout?: number,
 *            fetch?: typeof fetch, random?: () => number, now?: () => number,
 *            setTimeout?: (work: () => void, pause: number) => unknown}} Options
 *   `linger`: milliseconds that an event waits for other events of its batch. `maxBytes`: the most bytes of events
 *   without a response. `patience`: milliseconds for which the server may be unavailable; by default 60,000, or 5,000 if
 *   no server has ever answered. `timeout`: milliseconds until the response to one request. `fetch`, `random`, `now` and `setTimeout` are for tests
 * @typedef {{event: Event, line: string, size: number, resolve: (result: Result) => void, reject: (error: Error) => void}} Waiting
 */

const MOST_EVENTS = 1000; // events in a body; the default limit of the server
const MOST_RANKED = 100; // events in a request with `rank`: the server returns at most 1,000 records, one for each board of an event
const MOST_BODY = 128 * 1024; // bytes; a batch that has so many takes no more events. One more event fits the server's limit
const MOST_EVENT = 64 * 1024; // far more than a valid event has
const LONGEST_PAUSE = 86_400; // seconds: a day
const PATIENCE = 60_000; // milliseconds
const FIRST_PATIENCE = 5_000; // milliseconds until a server has answered, because the address may be wrong
const TOO_MANY = 429;
const NOT_TAKEN = [408, TOO_MANY, 503]; // the server has counted nothing, except perhaps with the code `outcome_unknown`
const LOST = [500, 502, 504]; // a failed server or a proxy sends these; events with ids can be sent again

/** The server refuses a whole request, and would refuse it again. `code` is that of the problem, or empty. */
export class RefusedError extends Error {
  /** @param {number} status @param {string} code @param {string} detail */
  constructor(status, code, detail) {
    super(`the server refused the request with ${status}${code && ` ${code}`}: ${detail}`);
    this.name = "RefusedError";
    this.status = status;
    this.code = code;
    this.detail = detail;
  }
}

/** The server was unavailable for longer than `patience`. */
export class UnavailableError extends Error {
  name = "UnavailableError";
}

/** Events without a response fill the buffer. Wait for a response before you send more. */
export class BufferFullError extends Error {
  name = "BufferFullError";
}

export class Producer {
  /** Bytes of the events that have no response yet. */
  pendingBytes = 0;
  /** @type {Event[]} the events without a response, with their ids, after the producer has failed. Another producer can send them. */
  unsent = [];
  /** @type {Waiting[]} */
  #waiting = [];
  /** @type {Set<Promise<Result>>} */
  #unsettled = new Set();
  #size = 0; // bytes of the events that wait for a batch
  #number = 0;
  #run = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  /** @type {Promise<void> | null} resolves when no event waits any more */
  #sending = null;
  /** @type {(() => void) | null} ends the wait of a batch for more events */
  #hurry = null;
  /** @type {Error | null} */
  #failure = null;
  #hasAnswer = false; // whether a server has ever answered
  #flushing = 0; // calls of `flush` that have not returned; until then, no batch waits for more events
  #most; // events in a request
  #url;
  #setting;

  /** @param {string} server its address, with the root path if there is one @param {Options} [options] */
  constructor(server, options = {}) {
    this.#url = `${server.replace(/\/$/, "")}/v1/events${options.rank ? "?rank=true" : ""}`;
    this.#most = options.rank ? MOST_RANKED : MOST_EVENTS;
    this.#setting = {
      linger: 10,
      maxBytes: 8 << 20,
      timeout: 20_000,
      fetch: (/** @type {Parameters<typeof fetch>} */ ...given) => fetch(...given),
      random: Math.random,
      now: () => performance.now(), // goes on evenly, whatever happens to the clock of the computer
      setTimeout: (/** @type {() => void} */ work, /** @type {number} */ pause) => setTimeout(work, pause),
      ...options,
    };
  }

  /**
   * Send an event in a batch with other events, and return its outcome. An event without an `id` gets one, so it counts
   * once, however often its batch has to be sent. You need not wait: `flush` waits for all events, and throws if the
   * producer has failed.
   * @param {Event} event @returns {Promise<Result>}
   * @throws {BufferFullError | RangeError | TypeError} at once: the buffer is full, or the event is too long or no JSON
   */
  send(event) {
    const sent = this.#failure ? Promise.reject(this.#failure) : this.#take(this.#identified(event));
    this.#unsettled.add(sent);
    const settled = () => void this.#unsettled.delete(sent);
    sent.then(settled, settled); // so a caller that does not wait has no unhandled rejection
    return sent;
  }

  /** Wait until each event that was sent has a response. */
  async flush() {
    this.#flushing++;
    this.#hurry?.();
    await Promise.allSettled(this.#unsettled);
    this.#flushing--;
    if (this.#failure) throw this.#failure;
  }

  /** @param {Event} event @returns {Promise<Result>} */
  #take(event) {
    const { maxBytes } = this.#setting;
    const line = JSON.stringify(event);
    const size = new TextEncoder().encode(line).length;
    if (size > MOST_EVENT) throw new RangeError(`the event has ${size} bytes of JSON; at most ${MOST_EVENT} are allowed`);
    if (this.pendingBytes + size > maxBytes) {
      const advice = "wait for `send` or `flush` before you send more";
      throw new BufferFullError(`events of ${this.pendingBytes} bytes have no response, and ${maxBytes} may: ${advice}`);
    }
    this.pendingBytes += size;
    this.#size += size;
    /** @type {Promise<Result>} */
    const result = new Promise((resolve, reject) => this.#waiting.push({ event, line, size, resolve, reject }));
    if (this.#isFull()) this.#hurry?.();
    this.#sending ??= this.#sendAll();
    return result;
  }

  /** @param {Event} event */
  #identified(event) {
    if (event.id !== undefined) return event;
    const number = this.#number++;
    // Other events of the source may have numbers as ids. So this id also has the random name of the producer.
    if (event.source !== undefined) return { ...event, id: `${this.#run}:${number}` };
    return { ...event, source: `client:${this.#run}`, id: String(number) };
  }

  #isFull() {
    return this.#waiting.length >= this.#most || this.#size >= MOST_BODY;
  }

  async #sendAll() {
    const { linger, setTimeout } = this.#setting;
    while (this.#waiting.length) {
      if (!this.#isFull() && !this.#flushing) await new Promise((end) => setTimeout((this.#hurry = () => end(null)), linger));
      this.#hurry = null;
      const batch = this.#batch();
      try {
        const answer = await this.#answer(batch.map(({ line }) => line));
        const rejections = byIndex(answer.rejected);
        const records = byIndex(answer.records ?? []);
        const duplicates = answer.duplicates && new Set(answer.duplicates);
        batch.forEach(({ event, size, resolve }, index) => {
          const refused = rejections.get(index) ?? [];
          const isDuplicate = duplicates ? duplicates.has(index) : !answer.accepted;
          const outcome = refused.length && !refused[0].counted ? "rejected" : isDuplicate ? "duplicate" : "accepted";
          this.pendingBytes -= size;
          resolve({ outcome, rejections: refused, records: records.get(index) ?? [], event });
        });
      } catch (error) {
        this.#failure = /** @type {Error} */ (error);
        const failed = [...batch, ...this.#waiting.splice(0)];
        this.unsent = failed.map(({ event }) => event);
        for (const { reject } of failed) reject(this.#failure);
      }
    }
    this.#sending = null;
  }

  #batch() {
    let count = 0;
    let size = 0;
    while (count < this.#waiting.length && count < this.#most && size < MOST_BODY) size += this.#waiting[count++].size;
    this.#size -= size;
    return this.#waiting.splice(0, count);
  }

  /** Send a body again until the server answers or `patience` has passed. @param {string[]} lines @returns {Promise<Answer>} */
  async #answer(lines) {
    const { apiKey, timeout, now, random, fetch, setTimeout } = this.#setting;
    const body = lines.join("\n");
    /** @type {Record<string, string>} */
    const headers = { "Content-Type": "application/x-ndjson", ...(apiKey && { Authorization: `Bearer ${apiKey}` }) };
    const backoff = new Backoff({ base: 100, cap: 2_000, random, now });
    for (let since = now(); ; ) {
      let pause = 0;
      let problem = "";
      try {
        const response = await fetch(this.#url, { method: "POST", headers, body, signal: AbortSignal.timeout(timeout) });
        this.#hasAnswer = true;
        const text = await response.text();
        if (response.ok && text.startsWith('{"accepted":')) return JSON.parse(text);
        const refused = refusal(response, text);
        if (![...NOT_TAKEN, ...LOST].includes(response.status)) throw refused;
        problem = refused.message;
        const seconds = Number(response.headers.get("Retry-After") ?? NaN);
        if (seconds >= 0) pause = backoff.after(Math.min(seconds, LONGEST_PAUSE));
        if (response.status === TOO_MANY) since = now() + pause; // the server works, so `patience` begins again
      } catch (error) {
        if (error instanceof RefusedError) throw error;
        problem = causeOf(/** @type {Error} */ (error)); // no answer, or only a part of an answer
      }
      pause ||= backoff.next();
      const patience = this.#setting.patience ?? (this.#hasAnswer ? PATIENCE : FIRST_PATIENCE);
      if (now() + pause > since + patience) {
        throw new UnavailableError(
          this.#hasAnswer
            ? `${this.#url} stays unavailable (${problem})`
            : `no Live Board server answers at ${this.#url} (${problem}): check the address and the port`,
        );
      }
      await new Promise((resolve) => setTimeout(() => resolve(undefined), pause));
    }
  }
}

/**
 * Like a member, from a page of an origin that the server allows, with a viewer token whose claim `likes` names the board.
 * If the origin is not allowed, it throws a `RefusedError` that names the setting.
 * @param {string} server its address, with the root path if there is one
 * @param {string} board its id
 * @param {string} member
 * @param {{token: string, fetch?: typeof fetch}} options
 * @returns {Promise<boolean>} false if the voter of the token has liked the member before
 */
export async function like(server, board, member, { token, fetch = globalThis.fetch }) {
  const root = server.replace(/\/$/, "");
  const path = `/boards/${encodeURIComponent(board)}`;
  const response = await fetch(`${root}${path}/likes`, {
    method: "POST",
    headers: { Accept: "application/json", Authorization: `Bearer ${token}` },
    body: new URLSearchParams({ key: member }),
    credentials: "omit",
  }).catch(async (error) => {
    // If the server refuses the origin of the page, the browser hides the refusal from scripts, except that of a stream.
    const asked = import("./fallbacks.js").then(({ reasonOf }) => reasonOf((part) => `${root}/v1${path}${part}?limit=1`, fetch));
    const why = await asked.catch(() => undefined);
    throw why?.code === "origin_forbidden" ? new RefusedError(403, why.code, why.detail ?? "") : error;
  });
  const text = await response.text();
  if (!response.ok) throw refusal(response, text);
  return JSON.parse(text).counted;
}

/** @param {Response} response @param {string} text its body */
function refusal({ status }, text) {
  try {
    const { code, detail } = JSON.parse(text);
    return new RefusedError(status, String(code ?? ""), String(detail ?? ""));
  } catch {
    return new RefusedError(status, "", text.slice(0, 300));
  }
}

/** Say why a request failed. Node.js gives the reason, such as ECONNREFUSED, as the cause. @param {Error} error */
function causeOf(error) {
  const cause = /** @type {{code?: string, message?: string} | undefined} */ (error.cause);
  const why = cause?.code ?? cause?.message;
  return why ? `${error}: ${why}` : String(error);
}

/** @template {{index: number}} T @param {readonly T[]} things @returns {Map<number, T[]>} */
function byIndex(things) {
  const found = new Map();
  for (const thing of things) found.set(thing.index, [...(found.get(thing.index) ?? []), thing]);
  return found;
}
