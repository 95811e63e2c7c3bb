// @ts-check
/** The like buttons of a page: they send likes without leaving the page, and stay marked in this browser. */

const MOST_REMEMBERED = 200; // likes that are remembered for each board
const EXPLAINED = 8_000; // milliseconds for which the reason of a refusal is shown
const LONGEST = 15_000; // milliseconds until a like without an answer makes room for the next one
const MUST_WAIT = [429, 503]; // statuses with which the server, or a proxy, asks to send a like again later
const UNNAMED_WAIT = 3; // seconds, if the answer names none
const LIKES_SPREAD = 3; // seconds over which the likes of many phones that were refused together are spread
let sending = Promise.resolve(); // likes are sent one at a time, because the answer to the first one sets the cookie

/** @typedef {{[member: string]: [number, string]}} Likes when each member was liked, and in which period */

/**
 * The like buttons of one board.
 *
 * @param {HTMLFormElement} form
 * @param {() => number} now the time by the clock of the server, which also decides when voting begins
 */
function startForm(form, now) {
  const { board, remembers, since, like = "", liked = "", refused = "{}", mark: unmarked = "", marked = "" } = form.dataset;
  const store = `likes:${board}`;
  const section = form.closest("section");
  const body = section?.querySelector("thead .like")?.closest("table")?.tBodies[0];
  const reasons = /** @type {Object<string, string>} */ (JSON.parse(refused));
  const period = () => section?.querySelector("[data-unit]")?.textContent ?? "";
  const read = () => {
    const oldest = Math.max(Number(since ?? 0), Number(remembers) ? now() - Number(remembers) * 1000 : 0);
    const valid = Object.entries(load(store)).filter(([, [at, during]]) => at > oldest && during === period());
    return Object.fromEntries(valid.sort(([, one], [, other]) => one[0] - other[0]).slice(-MOST_REMEMBERED));
  };
  const named = (/** @type {string} */ words, /** @type {HTMLButtonElement} */ button) =>
    words.replace("{name}", () => (button.closest("tr") ?? section)?.querySelector("bdi")?.textContent ?? button.value);

  /** @param {HTMLButtonElement} button */
  const mark = (button) => {
    button.textContent = marked;
    button.ariaLabel = named(liked, button);
    button.ariaDisabled = "true";
  };

  /** @param {HTMLTableRowElement} row */
  const add = (row) => {
    const button = document.createElement("button");
    button.setAttribute("form", form.id);
    button.name = "key";
    button.value = row.dataset.key ?? "";
    button.textContent = unmarked;
    const cell = row.insertCell();
    cell.className = "like";
    cell.append(button);
    button.ariaLabel = named(like, button);
  };

  const show = () => {
    const likes = read();
    for (const button of form.elements)
      if (button instanceof HTMLButtonElement && Object.hasOwn(likes, button.value) && !button.ariaDisabled) mark(button);
  };

  const complete = () => {
    const rows = [...(body?.rows ?? [])].filter((row) => !row.querySelector("button"));
    rows.forEach(add);
    if (rows.length) show();
  };

  /**
   * Say how long a like must wait, and count down. A screen reader hears it once.
   *
   * @param {HTMLButtonElement} button
   * @param {Response} answer
   * @param {boolean} isFirst
   */
  const wait = async (button, answer, isFirst) => {
    const after = (Number(answer.headers.get("retry-after")) || UNNAMED_WAIT) + Math.floor(Math.random() * LIKES_SPREAD);
    const words = answer.status === 429 ? reasons.rate_exceeded : reasons.later;
    for (let left = after; left > 0; left--) {
      const text = words.replace("{n}", `${left}`);
      if (isFirst) announce(text);
      isFirst = false;
      explain(shown(button), text);
      await new Promise((resume) => setTimeout(resume, 1000));
    }
  };

  /** @param {HTMLButtonElement} button */
  const shown = (button) => {
    const same = [...form.elements].filter((other) => other instanceof HTMLButtonElement && other.value === button.value);
    const found = [button, ...same].find((other) => other.isConnected && !other.closest("[hidden]"));
    return /** @type {HTMLButtonElement} */ (found ?? button);
  };

  /**
   * @param {HTMLButtonElement} pressed
   * @param {boolean} [isFirst] whether this like was not sent before
   */
  const send = async (pressed, isFirst = true) => {
    const button = shown(pressed); // the contestant may have moved to another row meanwhile
    if (button.ariaDisabled) return;
    const answer = await fetch(form.action, {
      method: "POST",
      headers: { Accept: "application/json" },
      body: new URLSearchParams({ key: button.value }),
      signal: AbortSignal.timeout(LONGEST),
    }).catch(() => undefined);
    if (answer && MUST_WAIT.includes(answer.status)) {
      await wait(button, answer, isFirst);
      return send(button, false);
    }
    const said = await answer?.json().catch(() => ({}));
    const why = answer?.ok ? !said.counted && reasons.already : reasons[answer ? said.code : "no_answer"] || reasons.other;
    if (answer?.ok) {
      mark(button);
      save(store, { ...read(), [button.value]: [Date.parse(answer.headers.get("date") ?? "") || now(), period()] });
      show(); // the contestant may have moved to another row meanwhile
      button.dispatchEvent(new Event("voted", { bubbles: true }));
    }
    announce(why ? named(why, button) : (button.ariaLabel ?? ""));
    explain(button, why ? named(why, button) : "");
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const button = event.submitter;
    if (button instanceof HTMLButtonElement) sending = sending.catch(() => {}).then(() => send(button));
  });
  if (body) new MutationObserver(complete).observe(body, { childList: true });
  show();
}

/**
 * @param {string} store
 * @returns {Likes}
 */
function load(store) {
  try {
    return JSON.parse(localStorage.getItem(store) ?? "{}");
  } catch {
    return {}; // the browser stores nothing, so the marks last only as long as the page
  }
}

/**
 * @param {string} store
 * @param {Likes} likes
 */
function save(store, likes) {
  try {
    localStorage.setItem(store, JSON.stringify(likes));
  } catch {
    // the browser stores nothing
  }
}

/** @param {string} text */
function announce(text) {
  const announcer = document.getElementById("announcer");
  if (announcer) announcer.textContent = text;
}

/**
 * Say beside a button why a like was refused, in place of what was said before.
 *
 * @param {HTMLButtonElement} button
 * @param {string} why empty for no reason
 */
function explain(button, why) {
  for (const note of document.querySelectorAll(".why")) note.remove();
  if (!why) return;
  const note = document.createElement("span");
  note.className = "why";
  note.textContent = why;
  button.after(note);
  setTimeout(() => note.remove(), EXPLAINED);
}

/** @param {() => number} now the time by the clock of the server */
export function startLikes(now) {
  for (const form of document.forms) if (form.dataset.board) startForm(form, now);
}
