// @ts-check
/** A board's server, its network and its clock, for tests of the client: everything happens in virtual time. */
import "../../static/client/fallbacks.js"; // loads it now: virtual time would go on while the client loads it

/** Random numbers from 0 to 1 that a seed determines (mulberry32). */
export function seeded(/** @type {number} */ seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Timers that fire when the test says so. */
export class Clock {
  time = 1_000_000;
  #timers = /** @type {Map<number, {at: number, work: () => void}>} */ (new Map());
  #next = 1;

  now = () => this.time;
  setTimeout = (/** @type {() => void} */ work, pause = 0) => {
    this.#timers.set(this.#next, { at: this.time + Math.max(0, pause), work });
    return this.#next++;
  };
  clearTimeout = (/** @type {any} */ timer) => void this.#timers.delete(timer);

  /** Let time pass. Promises are settled after each timer. */
  async advance(/** @type {number} */ milliseconds) {
    const end = this.time + milliseconds;
    await settled();
    for (;;) {
      const [next] = [...this.#timers].sort(([a, x], [b, y]) => x.at - y.at || a - b);
      if (!next || next[1].at > end) break;
      this.#timers.delete(next[0]);
      this.time = Math.max(this.time, next[1].at);
      next[1].work();
      await settled();
    }
    this.time = end;
  }
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A board of the server. Every earlier top can be looked up by its position. */
export class Board {
  epoch = "e1";
  offset = 0;
  scores = /** @type {Map<string, number>} */ (new Map());
  tops = /** @type {Map<string, any[]>} */ (new Map());

  constructor(/** @type {number} */ limit, /** @type {"ordinal" | "dense" | "competition"} */ ranks) {
    this.limit = limit;
    this.ranks = ranks;
    this.note();
  }

  like(/** @type {string} */ key, /** @type {number} */ amount) {
    const score = (this.scores.get(key) ?? 0) + amount;
    if (score) this.scores.set(key, score);
    else this.scores.delete(key);
    this.offset += 1;
    this.note();
  }

  /** The store loses everything, and the board gets a new epoch. */
  lose() {
    this.epoch = `e${Number(this.epoch.slice(1)) + 1}`;
    this.offset = 0;
    this.scores.clear();
    this.note();
  }

  note() {
    this.tops.set(`${this.epoch}:${this.offset}`, this.top());
  }

  top() {
    const order = [...this.scores].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).slice(0, this.limit);
    let rank = 0;
    return order.map(([key, score], index) => {
      if (this.ranks === "ordinal" || !index || order[index - 1][1] !== score) {
        rank = this.ranks === "dense" ? rank + 1 : index + 1;
      }
      return rank === index + 1 ? { key, score, rank } : { key, score, rank, position: index + 1 };
    });
  }

  head() {
    return { epoch: this.epoch, offset: this.offset, rank_count: this.scores.size, total_score: null };
  }

  sync() {
    const ranks = this.ranks === "ordinal" ? {} : { ranks: this.ranks };
    return { type: "sync", board: "b", ...this.head(), recovered: false, ...ranks, records: this.top() };
  }

  /** The changes since an offset of this epoch. */
  update(/** @type {number} */ since) {
    const before = new Map(this.tops.get(`${this.epoch}:${since}`)?.map((record) => [record.key, JSON.stringify(record)]));
    const old = this.tops.get(`${this.epoch}:${since}`) ?? [];
    const top = this.top();
    const removed = old.filter((record) => !top.some(({ key }) => key === record.key)).map(({ key }) => key);
    const gone = new Set(removed);
    const stays = old.filter(({ key }) => !gone.has(key));
    const changed = top.filter((record) => before.get(record.key) !== JSON.stringify(record));
    return { type: "update", ...this.head(), since, changed, removed: stays.length === old.length ? [] : removed };
  }
}

const TICK = 100;
const SILENCE = 5_000;

/**
 * The server and the network before it. `blocked` says what happens to new connections of a transport, `stalled` holds
 * back everything, `lossy` is the chance that a message on a socket gets lost.
 */
export class World {
  blocked = /** @type {Record<string, "" | "refuse" | "hang">} */ ({ websocket: "", sse: "", poll: "" });
  broken = /** @type {string[]} */ ([]); // the transports that break at the second message of each connection
  stalled = false;
  deleted = false;
  lossy = 0;
  opened = /** @type {string[]} */ ([]); // the transport of each connection
  asked = /** @type {string[]} */ ([]); // the requested addresses
  viewers = /** @type {Set<any>} */ (new Set());

  constructor(/** @type {Board} */ board, /** @type {Clock} */ clock, /** @type {() => number} */ random) {
    this.board = board;
    this.clock = clock;
    this.random = random;
    const world = this;
    this.WebSocket = /** @type {any} */ (
      class {
        onopen = /** @type {any} */ (null);
        onmessage = /** @type {any} */ (null);
        onclose = /** @type {any} */ (null);
        constructor(/** @type {string} */ url) {
          world.opened.push("websocket");
          world.asked.push(url);
          world.meet("websocket", () => this.onclose?.({ code: 1006, reason: "" }), () => {
            if (!this.onclose) return;
            this.onopen?.();
            this.viewer = world.watch(url, (data) => this.onmessage?.({ data }), (code, reason) => this.onclose?.({ code, reason }));
          });
        }
        close() {
          world.viewers.delete(this.viewer);
        }
      }
    );
    this.beat();
  }

  /** A new connection: refused, left hanging, or accepted. */
  meet(/** @type {string} */ kind, /** @type {() => void} */ refuse, /** @type {() => void} */ accept) {
    const held = this.stalled || this.blocked[kind] === "hang";
    if (held) return;
    this.clock.setTimeout(this.blocked[kind] === "refuse" ? refuse : accept, 5 + this.random() * 40);
  }

  watch(/** @type {string} */ url, /** @type {(text: string) => void} */ deliver, /** @type {any} */ close) {
    const { searchParams: query, pathname } = new URL(url);
    const isBroken = this.broken.includes(pathname.endsWith("/stream") ? "sse" : "websocket");
    let sent = 0;
    const send = (/** @type {string} */ text) => {
      if (!isBroken || !sent++) return deliver(text);
      this.viewers.delete(viewer);
      close(1006, "");
    };
    const viewer = { epoch: query.get("epoch"), offset: Number(query.get("offset")), isNew: true, sentAt: 0, send, close };
    this.viewers.add(viewer);
    return viewer;
  }

  beat() {
    this.clock.setTimeout(() => this.beat(), TICK);
    for (const viewer of this.stalled ? [] : this.viewers) {
      const { board } = this;
      const known = viewer.epoch === board.epoch && board.tops.has(`${viewer.epoch}:${viewer.offset}`);
      let message;
      if (viewer.epoch !== board.epoch || viewer.offset !== board.offset || viewer.isNew) {
        message = known && this.random() < 0.8 ? board.update(viewer.offset) : board.sync();
      } else if (this.clock.time - viewer.sentAt >= SILENCE) message = { type: "alive" };
      if (!message) continue;
      viewer.isNew = false;
      [viewer.epoch, viewer.offset, viewer.sentAt] = [board.epoch, board.offset, this.clock.time];
      if (this.random() >= this.lossy) viewer.send(JSON.stringify(message));
    }
  }

  /** End all connections: they break, or with another `code` the server closes them. */
  cut(code = 1006, reason = "", retryAfter = 0) {
    for (const viewer of [...this.viewers]) {
      this.viewers.delete(viewer);
      if (retryAfter) viewer.send(JSON.stringify({ type: "status", stale: true, reason, retry_after: retryAfter }));
      viewer.close(code, reason);
    }
  }

  fetch = /** @type {any} */ (
    (/** @type {string} */ url, /** @type {any} */ { signal, headers }) => {
      let abort = () => {};
      const answered = new Promise((resolve, reject) => {
        abort = () => reject(new Error("aborted"));
        signal?.addEventListener("abort", abort);
        const kind = new URL(url).pathname.endsWith("/stream") ? "sse" : "poll";
        this.opened.push(kind);
        this.asked.push(url);
        this.meet(kind, () => reject(new TypeError("refused")), () => {
          if (this.deleted) resolve(Response.json({ title: "Board not found" }, { status: 404, headers: PROBLEM }));
          else if (kind === "sse") resolve(this.stream(url, signal));
          else this.answer(resolve, headers?.["If-None-Match"]);
        });
      });
      return answered.finally(() => signal?.removeEventListener("abort", abort));
    }
  );

  stream(/** @type {string} */ url, /** @type {AbortSignal} */ signal) {
    const encoder = new TextEncoder();
    const body = new ReadableStream({
      start: (controller) => {
        controller.enqueue(encoder.encode("retry: 1000\n\n"));
        const send = (/** @type {string} */ data) => {
          const text = `id: x\nevent: ${JSON.parse(data).type}\ndata: ${data}\n\n`;
          const middle = Math.floor(this.random() * text.length);
          controller.enqueue(encoder.encode(text.slice(0, middle)));
          controller.enqueue(encoder.encode(text.slice(middle)));
        };
        const viewer = this.watch(url, send, (/** @type {number} */ code) => (code === 1006 ? controller.error(new TypeError("broken")) : controller.close()));
        signal.addEventListener("abort", () => this.viewers.delete(viewer) && controller.close());
      },
    });
    return new Response(body);
  }

  /** The answer to a poll, with its tag. If the client has this tag, the answer is 304. */
  answer(/** @type {any} */ resolve, /** @type {string | undefined} */ tag) {
    const at = `W/"${this.board.epoch}:${this.board.offset}:7"`;
    if (this.stalled) this.clock.setTimeout(() => this.answer(resolve, tag), TICK);
    else if (tag === at) resolve(new Response(null, { status: 304 }));
    else resolve(Response.json({ ...this.board.head(), viewer_count: 1, records: this.board.top() }, { headers: { ETag: at } }));
  }
}

const PROBLEM = { "Content-Type": "application/problem+json" };
