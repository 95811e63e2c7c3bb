/** The transports for networks without WebSockets: an event stream, and a request each second until the server refuses. */
/** @import { Address, End, Environment, Link, Query, Watched } from "./transports.js" */

/**
 * @typedef {(address: Address, link: Link, environment: Environment, watched: Watched & {query: Query},
 *            signal: AbortSignal) => Promise<End>} Fallback
 */

/** @typedef {End & {code?: string, detail?: string}} Refusal */

const POLL_PAUSE = 1000; // the least time between the beginnings of two requests, in milliseconds

/** @type {Fallback} */
export async function sse(address, link, { fetch }, { query, token }, signal) {
  const response = await fetch(address("/stream", query), { headers: authorization(token), cache: "no-store", signal });
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
}

/** @type {Fallback} */
export async function poll(address, link, { fetch, now, setTimeout }, { limit, interval = 0, member, around, token }, signal) {
  let tag = "";
  for (;;) {
    const started = now();
    const headers = { ...authorization(token), ...(tag && { "If-None-Match": tag }) };
    const response = await fetch(address("", { limit }), { headers, cache: "no-store", signal });
    if (response.status !== 304) {
      if (!response.ok) return refusal(response);
      const page = await response.json();
      tag = response.headers.get("ETag") ?? "";
      link.received({ ...page, type: "page" });
      link.received({ type: "viewers", count: page.viewer_count });
      if (member !== undefined) {
        const record = await fetch(address(`/records/${encodeURIComponent(member)}`, { around }), { headers: authorization(token), signal });
        const found = record.ok ? await record.json() : { ...page, key: member, score: null, rank: null, gap: null, records: [] };
        if (record.ok || record.status === 404) link.received({ ...found, type: "around" });
      }
    } else link.received();
    const pause = Math.max(POLL_PAUSE, interval) - (now() - started);
    if (pause > 0) await new Promise((resolve) => setTimeout(() => resolve(0), pause));
    if (signal.aborted) return {};
  }
}

const authorization = (/** @type {string | undefined} */ token) => (token ? { Authorization: `Bearer ${token}` } : undefined);

/** Why the server refuses pages of this origin, if it does. @param {Address} address @param {typeof fetch} fetch @returns {Promise<Refusal | undefined>} */
export async function reasonOf(address, fetch) {
  const abort = new AbortController();
  const response = await fetch(address("/stream", { limit: 1 }), { signal: abort.signal });
  const reason = response.ok ? undefined : await refusal(response);
  abort.abort();
  return reason;
}

/** Only a problem document comes from the server itself, not from a proxy. @param {Response} response @returns {Promise<Refusal>} */
async function refusal(response) {
  const own = response.headers.get("Content-Type")?.startsWith("application/problem+json");
  const retryAfter = Number(response.headers.get("Retry-After")) || undefined;
  if (!own) return { reason: `HTTP ${response.status}`, retryAfter };
  const { title: reason, code, detail } = await response.json();
  if (code === "origin_forbidden") console.warn(detail);
  return { final: response.status < 429, reason, code, detail, retryAfter };
}
