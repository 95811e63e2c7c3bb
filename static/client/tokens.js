// @ts-check
/** Viewer tokens, for boards that not everybody may read. */

/**
 * @typedef {import("./transports.js").Environment} Environment
 * @typedef {import("./transports.js").Link} Link
 */
const RENEWAL = 30_000; // a token is replaced this many milliseconds before its end, or after half of the time that it has left, if that is later

/**
 * Ask for a token, open a connection with it, and call `renew` before it ends.
 *
 * @param {() => string | Promise<string>} ask
 * @param {() => void} renew
 * @param {Link} link
 * @param {Environment} environment
 * @param {(link: Link, environment: Environment) => () => void} open gets an environment that adds the token
 * @returns {() => void} closes the connection
 */
export function openWithToken(ask, renew, link, environment, open) {
  const { now, setTimeout, clearTimeout, fetch, WebSocket } = environment;
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
    const authorized = /** @type {typeof fetch} */ (url, init) =>
      fetch(url, { ...init, headers: { ...init?.headers, Authorization: `Bearer ${token}` } });
    const Socket = /** @type {any} */ (
      class {
        constructor(/** @type {string} */ url) {
          return new WebSocket(`${url}${url.includes("?") ? "&" : "?"}token=${encodeURIComponent(token)}`);
        }
      }
    );
    const close = open(ending, { ...environment, fetch: authorized, WebSocket: Socket });
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

/**
 * When a token ends, in milliseconds since 1970. NaN if the token does not say when it ends: then the server
 * will say what is wrong with the token.
 *
 * @param {string} token
 */
function endOf(token) {
  try {
    const claims = token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    return JSON.parse(atob(claims)).exp * 1000;
  } catch {
    return NaN;
  }
}
