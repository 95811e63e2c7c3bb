/**
 * The transports: each opens, reports to its link, and returns a function that closes it. Most pages need only this one.
 * @typedef {{final?: boolean, broken?: boolean, reason?: string, retryAfter?: number}} End `final`: clients must not connect
 *   again; `broken`: the connection ended in the middle, without a word from the server
 * @typedef {{opened: () => void, received: (message?: Message) => void, closed: (end: End) => void}} Link
 * @typedef {{WebSocket: typeof WebSocket, fetch: typeof fetch, now: () => number,
 *            setTimeout: (work: () => void, pause: number) => any, clearTimeout: (timer: any) => void}} Environment
 * @typedef {(path: string, query?: Query) => string} Address of a route of the board
 * @typedef {Object<string, string | number | undefined>} Query
 * @typedef {(address: Address, link: Link, environment: Environment, watched: Watched) => () => void} Transport
 * @typedef {{limit?: number, interval?: number, member?: string, around?: number,
 *            position?: {epoch: string, offset: number}, token?: string}} Watched
 * @typedef {"websocket" | "sse" | "poll"} TransportName
 */
/** @import { Message } from "./state.js" */

/** @param {Watched} watched @returns {Query} */
const queryOf = ({ limit, interval, member, around, position }) => ({
  limit,
  interval: interval && `${interval}ms`,
  key: member,
  around: member === undefined ? undefined : around,
  ...position,
});

const BROKEN = [1002, 1006, 1007]; // close codes of browsers that can't read what came, or of lost connections
const MOST_STREAMS = 2; // event streams of a page; browsers open six connections to a server, for all tabs and requests
let streams = 0; // open event streams of this page

/** @type {Transport} */
function websocket(address, link, { WebSocket }, watched) {
  const socket = new WebSocket(address("/live", { ...queryOf(watched), token: watched.token }).replace(/^http/, "ws"));
  socket.onopen = link.opened;
  socket.onmessage = ({ data }) => link.received(JSON.parse(data));
  socket.onclose = ({ code, reason }) => link.closed({ final: code >= 3500 && code < 4000, broken: BROKEN.includes(code), reason });
  return () => {
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close(1000);
  };
}

/** If the page has enough event streams, its other boards poll. @param {"sse" | "poll"} name @returns {Transport} */
function fallback(name) {
  return (address, link, environment, watched) => {
    const abort = new AbortController();
    let isStream = name === "sse" && streams < MOST_STREAMS;
    const kind = isStream ? "sse" : "poll";
    if (isStream) streams++;
    const end = () => {
      if (isStream) streams--;
      isStream = false;
    };
    // A page that was open during an upgrade of the server loads the new `fallbacks.js`, so new versions must accept
    // these parameters.
    /** @type {Promise<End>} */
    const ended = import("./fallbacks.js").then(
      (all) => all[kind](address, link, environment, { ...watched, query: queryOf(watched) }, abort.signal).catch(() => ({ broken: true })),
      (error) => ({ reason: String(error) }),
    );
    void ended.then((closed) => {
      end();
      link.closed(closed);
    });
    return () => {
      end();
      abort.abort();
    };
  };
}

//#region tokens: left out of the server's pages, which have the same origin
/**
 * A link that asks for the reason when an attempt ends. If a server refuses a page of another origin, browsers hide the
 * reason, except for server-sent events.
 * @param {Link} link @param {Address} address @param {Environment} environment @returns {Link}
 */
export function asking(link, address, { fetch }) {
  const closed = (/** @type {End} */ end) =>
    void import("./fallbacks.js")
      .then(({ reasonOf }) => reasonOf(address, fetch))
      .then((reason) => link.closed(reason ?? end), () => link.closed(end));
  return { ...link, closed };
}

const RENEWAL = 30_000; // a token is replaced this many milliseconds before its end, or after half of the time that it has left, if that is later

/**
 * Ask for a token, open a connection with it, call `renew` before it ends, and return what closes the connection.
 * @param {() => string | Promise<string>} ask @param {() => void} renew @param {Link} link @param {Environment} environment
 * @param {(link: Link, token: string) => () => void} open
 */
export function openWithToken(ask, renew, link, environment, open) {
  const { now, setTimeout, clearTimeout } = environment;
  const abort = new AbortController();
  let hasReceived = false;
  /** @type {Link} */
  const ending = {
    ...link,
    received: (message) => {
      hasReceived = true;
      link.received(message);
    },
    // The connection may have ended because its token ended. Another token may open the board again: no end is final.
    closed: (end) => link.closed(hasReceived ? { ...end, final: false } : end),
  };
  const begin = (/** @type {string} */ token) => {
    if (abort.signal.aborted) return;
    const left = endOf(token) - now();
    const timer = left > 0 && setTimeout(renew, left - Math.min(RENEWAL, left / 2));
    const close = open(ending, token);
    abort.signal.addEventListener("abort", () => {
      clearTimeout(timer);
      close();
    });
  };
  Promise.resolve()
    .then(ask)
    .then(begin)
    .catch((error) => link.closed({ reason: String(error) }));
  return () => abort.abort();
}

/** When a token ends. NaN if it does not say: then the server says what is wrong with it. @param {string} token */
function endOf(token) {
  try {
    const claims = token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    return JSON.parse(atob(claims)).exp * 1000;
  } catch {
    return NaN;
  }
}
//#endregion

/** @type {Record<TransportName, Transport>} */
export const TRANSPORTS = { websocket, sse: fallback("sse"), poll: fallback("poll") };
