// @ts-check
/**
 * The three transports. Each one opens immediately, reports to its link, and returns a function that closes it.
 *
 * @typedef {import("./state.js").Message} Message
 * @typedef {{final?: boolean, reason?: string, retryAfter?: number}} End `final`: the server does not want us back
 * @typedef {{opened: () => void, received: (message?: Message) => void, closed: (end: End) => void}} Link
 * @typedef {{WebSocket: typeof WebSocket, fetch: typeof fetch, now: () => number,
 *            setTimeout: (work: () => void, pause: number) => any, clearTimeout: (timer: any) => void}} Environment
 * @typedef {(path: string, query?: Object<string, string | number | undefined>) => string} Address of a route of the board
 * @typedef {(address: Address, link: Link, environment: Environment, watched: Watched) => () => void} Transport
 * @typedef {{limit?: number, interval?: number, key?: string, around?: number,
 *            position?: {epoch: string, offset: number}}} Watched
 * @typedef {"websocket" | "sse" | "poll"} TransportName
 */

const POLL_WAIT = 10; // seconds for which one request waits; shorter than the silence after which a page counts as stale
const POLL_PAUSE = 1000; // minimum milliseconds between two answers

/** @param {Watched} watched */
const queryOf = ({ limit, interval, key, around, position }) => ({
  limit,
  interval: interval && `${interval}ms`,
  key,
  around: key === undefined ? undefined : around,
  ...position,
});

/** @type {Transport} */
function websocket(address, link, { WebSocket }, watched) {
  const socket = new WebSocket(address("/live", queryOf(watched)).replace(/^http/, "ws"));
  socket.onopen = link.opened;
  socket.onmessage = ({ data }) => link.received(JSON.parse(data));
  socket.onclose = ({ code, reason }) => link.closed({ final: code >= 3500 && code < 4000, reason });
  return () => {
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close(1000);
  };
}

/** @type {Transport} */
function sse(address, link, { fetch }, watched) {
  return reading(link, async (signal) => {
    const response = await fetch(address("/stream", queryOf(watched)), { cache: "no-store", signal });
    if (!response.ok || !response.body) return refusal(response);
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return {};
      link.opened();
      const events = (text + decoder.decode(value, { stream: true })).split("\n\n");
      text = events.pop() ?? "";
      for (const event of events) {
        const data = /^data: ?(.*)$/m.exec(event);
        if (data) link.received(JSON.parse(data[1]));
      }
    }
  });
}

/** @type {Transport} */
function poll(address, link, { fetch, now, setTimeout }, { limit, interval = 0, key, around }) {
  return reading(link, async (signal) => {
    let tag = "";
    for (;;) {
      const started = now();
      const headers = tag ? { "If-None-Match": tag } : undefined;
      const url = address("", { wait: `${POLL_WAIT}s`, limit });
      const response = await fetch(url, { headers, cache: "no-store", signal });
      if (response.status !== 304) {
        if (!response.ok) return refusal(response);
        const page = await response.json();
        tag = `"${page.epoch}:${page.offset}"`;
        link.received({ ...page, type: "page" });
        link.received({ type: "viewers", count: page.viewer_count });
        if (key !== undefined) {
          const record = await fetch(address(`/records/${encodeURIComponent(key)}`, { around }), { signal });
          const found = record.ok ? await record.json() : { ...page, key, score: null, rank: null, gap: null, records: [] };
          if (record.ok || record.status === 404) link.received({ ...found, type: "around" });
        }
      } else link.received();
      const pause = Math.max(POLL_PAUSE, interval) - (now() - started);
      if (pause > 0) await new Promise((resolve) => setTimeout(() => resolve(0), pause));
      if (signal.aborted) return {};
    }
  });
}

/**
 * Read until the end, or until the link is closed.
 *
 * @param {Link} link
 * @param {(signal: AbortSignal) => Promise<End>} read
 */
function reading(link, read) {
  const abort = new AbortController();
  read(abort.signal).then(link.closed, () => link.closed({}));
  return () => abort.abort();
}

/**
 * What a refusal means. Only a problem document comes from the server itself, and not from a proxy.
 *
 * @param {Response} response
 * @returns {Promise<End>}
 */
async function refusal(response) {
  const own = response.headers.get("Content-Type")?.startsWith("application/problem+json");
  const retryAfter = Number(response.headers.get("Retry-After")) || undefined;
  if (!own) return { reason: `HTTP ${response.status}`, retryAfter };
  const { title: reason, code, detail } = await response.json();
  if (code === "origin_forbidden") console.warn(detail);
  return { final: response.status < 429, reason, retryAfter };
}

/**
 * A link that asks for the reason when an attempt ends. If a server refuses a page of another origin, browsers hide the
 * reason, except for server-sent events.
 *
 * @param {Link} link
 * @param {Address} address
 * @param {Environment} environment
 * @returns {Link}
 */
export function asking(link, address, { fetch }) {
  const closed = async (/** @type {End} */ end) => {
    const abort = new AbortController();
    try {
      const response = await fetch(address("/stream", { limit: 1 }), { signal: abort.signal });
      if (!response.ok) end = await refusal(response);
    } catch {
      // no server answers
    }
    abort.abort();
    link.closed(end);
  };
  return { ...link, closed };
}

/** @type {Record<TransportName, Transport>} */
export const TRANSPORTS = { websocket, sse, poll };
