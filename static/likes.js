// @ts-check
/**
 * The like buttons of a page: they send likes without leaving the page, and stay marked in this browser. On a board with
 * votes, they also take votes back and change them, and the server tells which votes are the visitor's.
 */

const MOST_REMEMBERED = 200; // likes that are remembered for each board
const EXPLAINED = 8_000; // milliseconds for which the reason of a refusal is shown
const DOUBLE_CLICK = 700; // milliseconds after a vote in which a second click does nothing
const LONGEST = 15_000; // milliseconds until a like without an answer makes room for the next one
const MUST_WAIT = [429, 503]; // statuses with which the server, or a proxy, asks to send a like again later
const UNNAMED_WAIT = 3; // seconds, if the answer names none
const LIKES_SPREAD = 3; // seconds over which the likes of many phones that were refused together are spread
const MOST_IN_QUESTION = 100; // members in one question about the votes of the visitor
const LONGEST_QUESTION = 4_000; // characters of such a question
let sending = Promise.resolve(); // likes are sent one at a time, because the answer to the first one sets the cookie

/** @returns {AbortSignal} that ends a request after the longest time; `AbortSignal.timeout` is not in Chromium before 103 */
function expiring() {
  const control = new AbortController();
  setTimeout(() => control.abort(), LONGEST);
  return control.signal;
}

/** @typedef {{[member: string]: [number, string]}} Likes when each member was liked, and in which period */

/**
 * The like buttons of one board.
 *
 * @param {HTMLFormElement} form
 * @param {() => number} now the time by the clock of the server, which also decides when voting begins
 */
function startForm(form, now) {
  const { board, remembers, like = "", liked = "", refused = "{}", mark: unmarked = "", marked = "" } = form.dataset;
  const store = `likes:${board}`;
  const section = form.closest("section");
  const body = section?.querySelector("thead .like")?.closest("table")?.tBodies[0];
  const reasons = /** @type {Object<string, string>} */ (JSON.parse(refused));
  const period = () => section?.querySelector("[data-unit]")?.textContent ?? "";
  const read = () => {
    const oldest = Number(remembers) ? now() - Number(remembers) * 1000 : 0;
    const valid = Object.entries(load(store)).filter(([, [at, during]]) => at > oldest && during === period());
    return Object.fromEntries(valid.sort(([, one], [, other]) => one[0] - other[0]).slice(-MOST_REMEMBERED));
  };
  const votes = form.dataset.words ? new Votes(form, period) : null;
  const named = (/** @type {string} */ words, /** @type {HTMLButtonElement} */ button) =>
    words.replace("{name}", () => (button.closest("tr") ?? section)?.querySelector("bdi")?.textContent ?? button.value);

  /** @param {HTMLButtonElement} button */
  const mark = (button) => {
    if (button.ariaDisabled) return;
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
    const likes = votes ? {} : read();
    for (const button of form.elements) {
      if (!(button instanceof HTMLButtonElement)) continue;
      if (votes) votes.draw(button, (words) => named(words, button));
      else if (Object.keys(likes).includes(button.value)) mark(button);
    }
  };

  const complete = () => {
    const rows = [...(body?.rows ?? [])].filter((row) => !row.querySelector("button"));
    rows.forEach(add);
    if (rows.length || votes) show();
  };

  /** Ask the server for the votes of the visitor, who may have voted in another tab. */
  const ask = async () => {
    if (await votes?.ask()) show();
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
   * @param {Object<string, string>} fields what the button said when it was pressed
   * @param {boolean} [isFirst] whether this like was not sent before
   */
  const send = async (pressed, fields, isFirst = true) => {
    const button = shown(pressed); // the contestant may have moved to another row meanwhile
    if (button.ariaDisabled || votes?.isDone(fields)) return;
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
    const repeated = votes ? "" : reasons.already;
    const why = answer?.ok ? !said.counted && repeated : reasons[answer ? said.code : "no_answer"] || reasons.other;
    if (answer?.ok) {
      if (votes) votes.change(fields);
      else mark(button);
      const at = Date.parse(answer.headers.get("date") ?? "") || now();
      save(store, { ...read(), [button.value]: [at, period()] }); // other tabs notice that this changes
      show(); // the contestant may have moved to another row meanwhile
      button.dispatchEvent(new Event("voted", { bubbles: true }));
    } else if (answer) {
      await ask();
    }
    const done = votes && "undo" in fields ? votes.undone : "";
    announce(named(why || done, button) || (button.ariaLabel ?? ""));
    explain(button, why ? named(why, button) : "");
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const button = event.submitter;
    if (!(button instanceof HTMLButtonElement) || votes?.isFresh(button)) return;
    const fields = votes?.fields(button) ?? { key: button.value };
    sending = sending.catch(() => {}).then(() => {
      const current = votes?.fields(button) ?? fields; // an earlier vote may have counted meanwhile
      return send(button, "undo" in fields || "undo" in current ? fields : current);
    });
  });
  for (const part of body?.closest("table")?.tBodies ?? [])
    if (part === body || votes) new MutationObserver(complete).observe(part, { childList: true });
  if (votes) addEventListener("storage", ({ key }) => key === store && void ask());
  show();
  if (votes && !votes.isKnown && Object.keys(read()).length) void ask(); // the browser has not sent its cookie
}

/** The votes of the visitor on one board. */
class Votes {
  /** @param {HTMLFormElement} form @param {() => string} period */
  constructor(form, period) {
    const { words = "{}", given = "[]", most, left, leftWords = "", undone = "", mine = "", own } = form.dataset;
    /** @type {Object<string, [string, string]>} the text and the label of each kind of button */
    this.words = JSON.parse(words);
    this.undone = undone;
    this.mine = mine;
    this.isKnown = own !== undefined;
    this.form = form;
    this.period = period;
    this.during = period();
    /** @type {Set<string>} the members that have a vote */
    this.given = new Set(JSON.parse(given));
    this.most = most === undefined ? null : Number(most);
    this.left = left === undefined ? null : Number(left);
    this.leftWords = leftWords;
    this.changes = form.dataset.changes !== undefined;
    /** @type {Map<string, number>} when the votes of members changed, so that a double click does not take a vote back */
    this.changed = new Map();
  }

  /** @param {HTMLButtonElement} button */
  isFresh({ value }) {
    return performance.now() - (this.changed.get(value) ?? -Infinity) < DOUBLE_CLICK;
  }

  /** @param {Object<string, string>} fields */
  isDone({ key, undo }) {
    return undo === undefined ? this.given.has(key) : !this.given.has(undo);
  }

  /** @param {string} key */
  #kind(key) {
    if (this.given.has(key)) return this.changes ? "undo" : "voted";
    return this.changes && this.most === 1 && this.given.size ? "change" : "vote";
  }

  /**
   * @param {HTMLButtonElement} button
   * @returns {Object<string, string>} what the button sends
   */
  fields({ value: key }) {
    const kind = this.#kind(key);
    if (kind === "undo") return { undo: key };
    return kind === "change" ? { key, replaces: [...this.given][0] } : { key };
  }

  /** @param {Object<string, string>} fields what the server has counted */
  change({ key, undo, replaces }) {
    const before = this.given.size;
    for (const member of [key, undo, replaces]) if (member !== undefined) this.changed.set(member, performance.now());
    this.given.delete(undo ?? replaces ?? "");
    if (key !== undefined) this.given.add(key);
    if (this.left !== null) this.left = Math.max(0, this.left + before - this.given.size);
    this.#tell();
  }

  /**
   * Draw a button if it has changed. In another period, nobody has voted yet.
   *
   * @param {HTMLButtonElement} button
   * @param {(words: string) => string} named
   */
  draw(button, named) {
    if (this.during !== this.period()) {
      this.during = this.period();
      this.given.clear();
      this.left = this.most;
      this.#tell();
    }
    this.#tint(button);
    const kind = this.#kind(button.value);
    const [text, label] = this.words[kind];
    if (button.textContent === text && button.ariaLabel === named(label)) return;
    button.textContent = text;
    button.ariaLabel = named(label);
    button.name = kind === "undo" ? "undo" : "key";
    button.ariaDisabled = kind === "voted" ? "true" : null;
    button.toggleAttribute("data-voted", this.given.has(button.value));
  }

  /** @param {HTMLButtonElement} button in whose row a vote of the visitor is marked */
  #tint({ value, parentElement }) {
    const row = parentElement?.closest("tr");
    if (!row || row.classList.contains("own")) return;
    const isMine = this.given.has(value);
    row.classList.toggle("me", isMine);
    if (isMine) row.cells[1].dataset.note = this.mine;
    else delete row.cells[1].dataset.note;
  }

  #tell() {
    const line = document.getElementById(`left-${this.form.id}`);
    const [before, after = ""] = this.leftWords.split("{left}");
    const number = document.createElement("b");
    number.textContent = `${this.left}`;
    line?.replaceChildren(before, number, after);
  }

  /** Ask the server. Returns whether it has answered. */
  async ask() {
    const buttons = [...this.form.elements].filter((button) => button instanceof HTMLButtonElement);
    const keys = [...new Set([...this.given, ...buttons.map(({ value }) => value)])];
    /** @type {string[][]} */
    const parts = [[]];
    let size = 0;
    for (const key of keys) {
      size += encodeURIComponent(key).length;
      if (size > LONGEST_QUESTION || parts[0].length === MOST_IN_QUESTION) parts.unshift([]);
      if (parts[0].length === 0) size = encodeURIComponent(key).length;
      parts[0].push(key);
    }
    const asked = parts.map((part) => {
      const query = new URLSearchParams(part.map((key) => ["key", key]));
      return fetch(`${this.form.action.replace(/likes([?]|$).*/, "votes")}?${query}`, { signal: expiring() })
        .then((answer) => (answer.ok ? answer.json() : null))
        .catch(() => null);
    });
    const answers = await Promise.all(asked);
    if (answers.includes(null)) return false;
    this.given = new Set(answers.flatMap(({ votes }) => votes));
    this.left = answers[0].left;
    this.isKnown = true;
    this.#tell();
    return true;
  }
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
