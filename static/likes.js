/** The like buttons of a page, which stay marked in this browser. On a board with votes, they also take votes back. */
import { made } from "./client/parts.js";
import { drawnPage } from "./drawn.js";
import { keep, kept } from "./page.js";

const MOST_REMEMBERED = 200; // likes that are remembered for each board
const EXPLAINED = 8_000; // milliseconds for which the reason of a refusal is shown
const DOUBLE_CLICK = 700; // milliseconds after a vote in which a second click does nothing
const LONGEST = 15_000; // milliseconds until a like without an answer makes room for the next one
const MUST_WAIT = [429, 503]; // statuses with which the server, or a proxy, asks to send a like again later
const UNNAMED_WAIT = 3; // seconds, if the answer names none
const LIKES_SPREAD = 3; // seconds over which the likes of many phones that were refused together are spread
let sending = Promise.resolve(); // likes are sent one at a time, because the answer to the first one sets the cookie

/** @returns {AbortSignal} that ends a request after the longest time; `AbortSignal.timeout` is not in Chromium before 103 */
function expiring() {
  const control = new AbortController();
  setTimeout(() => control.abort(), LONGEST);
  return control.signal;
}

/** @typedef {{[member: string]: [number, string]}} Likes when each member was liked, and in which period */

/** @param {HTMLFormElement} form @param {() => number} now by the clock of the server */
function startForm(form, now) {
  const { board, remembers, refused = "{}", given: voted, undone = "" } = form.dataset;
  const hasVotes = voted !== undefined; // without them, a like is counted once for each visitor, and this browser remembers it
  const store = `likes:${board}`;
  const section = form.closest("section");
  const body = section?.querySelector("thead .like")?.closest("table")?.tBodies[0];
  const reasons = /** @type {Object<string, string>} */ (JSON.parse(refused));
  const period = () => section?.querySelector("[data-unit]")?.textContent ?? "";
  const read = () => {
    const oldest = Number(remembers) ? now() - Number(remembers) * 1000 : 0;
    const valid = Object.entries(/** @type {Likes} */ (JSON.parse(kept(store) ?? "{}"))).filter(([, [at, during]]) => at > oldest && during === period());
    return Object.fromEntries(valid.sort(([, one], [, other]) => one[0] - other[0]).slice(-MOST_REMEMBERED));
  };
  const votes = votesOf(form, period);
  const named = (/** @type {string} */ words, /** @type {HTMLButtonElement} */ button) =>
    words.replace("{name}", () => (button.closest("tr") ?? section)?.querySelector("bdi")?.textContent ?? button.value);

  const show = () => {
    votes.renew();
    if (!hasVotes) for (const member of Object.keys(read())) votes.given.add(member);
    for (const button of form.elements) if (button instanceof HTMLButtonElement) votes.draw(button, (words) => named(words, button));
  };

  const complete = () => {
    const rows = [...(body?.rows ?? [])].filter((row) => !row.querySelector("button"));
    for (const row of rows) {
      const cell = row.insertCell();
      cell.className = "like";
      cell.append(made("button", { form: form.id, name: "key", value: row.dataset.member ?? "" }));
    }
    if (rows.length || hasVotes) show();
  };

  /** Ask the server for the votes of the visitor, who may have voted in another tab. */
  const ask = async () => {
    if (hasVotes && (await votes.ask())) show();
  };

  /** A screen reader hears it once. @param {HTMLButtonElement} button @param {Response} answer @param {boolean} isFirst */
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

  /** @param {HTMLButtonElement} pressed @param {Object<string, string>} fields what it said then @param {boolean} [isFirst] */
  const send = async (pressed, fields, isFirst = true) => {
    const button = shown(pressed); // the contestant may have moved to another row meanwhile
    if (votes.isDone(fields)) return;
    const answer = await fetch(form.action, {
      method: "POST",
      headers: { Accept: "application/json" },
      body: new URLSearchParams(fields),
      signal: expiring(),
    }).catch(() => undefined);
    if (answer && MUST_WAIT.includes(answer.status)) {
      await wait(button, answer, isFirst);
      return send(button, fields, false);
    }
    const said = await answer?.json().catch(() => ({}));
    const repeated = hasVotes ? "" : reasons.already;
    const why = answer?.ok ? !said.counted && repeated : reasons[answer ? said.code : "no_answer"] || reasons.other;
    if (answer?.ok) {
      votes.change(fields);
      const at = Date.parse(answer.headers.get("date") ?? "") || now();
      keep(store, JSON.stringify({ ...read(), [button.value]: [at, period()] })); // other tabs notice that this changes
      show(); // the contestant may have moved to another row meanwhile
      button.dispatchEvent(new Event("voted", { bubbles: true }));
    } else if (answer) {
      await ask();
    }
    announce(named(why || ("undo" in fields ? undone : ""), button) || (button.ariaLabel ?? ""));
    explain(button, why ? named(why, button) : "");
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const button = event.submitter;
    if (!(button instanceof HTMLButtonElement) || votes.isFresh(button)) return;
    const fields = votes.fields(button);
    sending = sending.catch(() => {}).then(() => {
      const current = votes.fields(button); // an earlier vote may have counted meanwhile
      return send(button, "undo" in fields || "undo" in current ? fields : current);
    });
  });
  for (const part of body?.closest("table")?.tBodies ?? [])
    if (part === body || hasVotes) new MutationObserver(complete).observe(part, { childList: true });
  if (hasVotes) addEventListener("storage", ({ key }) => key === store && void ask());
  show();
  if (hasVotes && form.dataset.own === undefined && Object.keys(read()).length) void ask(); // the browser has not sent its cookie
}

/** The votes of the visitor on one board, or the likes that this browser remembers. @param {HTMLFormElement} form @param {() => string} period */
function votesOf(form, period) {
  const { words = "{}", given: first = "[]", most, left: least, leftWords = "", usedWords = "", mine, changes } = form.dataset;
  /** @type {Object<string, [string, string]>} the text and the label of each kind of button */
  const kinds = JSON.parse(words);
  /** @type {Set<string>} the members that have a vote */
  const given = new Set(JSON.parse(first));
  /** @type {Map<string, number>} when the votes of members changed, so that a double click does not take a vote back */
  const changed = new Map();
  let left = least === undefined ? null : Number(least);
  let during = period();

  /** @param {string} member */
  const kindOf = (member) => {
    if (given.has(member)) return changes === undefined ? "voted" : "undo";
    return changes !== undefined && most === "1" && given.size ? "change" : "vote";
  };

  const tell = () => {
    const line = document.getElementById(`left-${form.id}`);
    const [before, after = ""] = leftWords.split("{left}");
    line?.replaceChildren(...(left ? [before, made("b", {}, `${left}`), after] : [usedWords]));
    if (line?.dataset.pips) line.dataset.pips = "●".repeat(left ?? 0).padEnd(Number(most), "○");
  };

  /** @param {HTMLButtonElement} button in whose row a vote of the visitor is marked */
  const tint = ({ value, parentElement }) => {
    const row = parentElement?.closest("tr");
    if (!row || mine === undefined || row.classList.contains("own")) return;
    row.classList.toggle("me", given.has(value));
    if (given.has(value)) row.cells[1].dataset.note = mine;
    else delete row.cells[1].dataset.note;
  };

  return {
    given,

    /** @param {HTMLButtonElement} button */
    isFresh: ({ value }) => performance.now() - (changed.get(value) ?? -Infinity) < DOUBLE_CLICK,

    /** @param {Object<string, string>} fields */
    isDone: ({ key: member, undo }) => (undo === undefined ? given.has(member) : !given.has(undo)),

    /** @param {HTMLButtonElement} button @returns {Object<string, string>} what the button sends */
    fields({ value: member }) {
      const kind = kindOf(member);
      if (kind === "undo") return { undo: member };
      return kind === "change" ? { key: member, replaces: [...given][0] } : { key: member };
    },

    /** @param {Object<string, string>} fields what the server has counted */
    change({ key, undo, replaces }) {
      const before = given.size;
      for (const member of [key, undo, replaces]) if (member !== undefined) changed.set(member, performance.now());
      given.delete(undo ?? replaces ?? "");
      if (key !== undefined) given.add(key);
      if (left !== null) left = Math.max(0, left + before - given.size);
      tell();
    },

    /** In another period, nobody has voted yet. While the page shows the past, its period is no other one. */
    renew() {
      if (during === period() || form.closest("[data-past]")) return;
      during = period();
      given.clear();
      left = most === undefined ? null : Number(most);
      tell();
    },

    /** @param {HTMLButtonElement} button @param {(words: string) => string} named */
    draw(button, named) {
      tint(button);
      const kind = kindOf(button.value);
      const [text, label] = kinds[kind];
      if (button.textContent === text && button.ariaLabel === named(label)) return;
      button.textContent = text;
      button.ariaLabel = named(label);
      button.name = kind === "undo" ? "undo" : "key";
      button.ariaDisabled = kind === "voted" ? "true" : null;
      button.toggleAttribute("data-voted", given.has(button.value));
    },

    /** Read the votes from the page as the server draws it now. Returns whether it has answered. */
    async ask() {
      const drawn = /** @type {HTMLFormElement | null | undefined} */ ((await drawnPage())?.forms.namedItem(form.id));
      if (!drawn) return false;
      given.clear();
      for (const member of JSON.parse(drawn.dataset.given ?? "[]")) given.add(member);
      left = drawn.dataset.left === undefined ? null : Number(drawn.dataset.left);
      tell();
      return true;
    },
  };
}

/** @param {string} text */
function announce(text) {
  document.getElementById("announcer")?.replaceChildren(text);
}

/** Say beside a button why a like was refused. @param {HTMLButtonElement} button @param {string} why empty for no reason */
function explain(button, why) {
  for (const note of document.querySelectorAll(".why")) note.remove();
  if (!why) return;
  const note = made("span", { class: "why" }, why);
  button.after(note);
  setTimeout(() => note.remove(), EXPLAINED);
}

/** @param {() => number} now the time by the clock of the server */
export function startLikes(now) {
  for (const form of document.forms) if (form.dataset.board) startForm(form, now);
}
