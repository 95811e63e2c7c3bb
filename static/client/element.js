// @ts-check
/** `<live-board src="https://host/boards/posts">`: a live table of a board. Without script, its content is shown. */
import { Items } from "./items.js";
import { LiveBoard } from "./live-board.js";
import { TableView } from "./view.js";
import { gapWords, plain, setLanguage, stateWords, translate } from "./words.js";

const LANGUAGES = ["en", "zh-Hans"];
/** @type {Record<string, [string, string]>} the colors of the light and of the dark scheme */
const PALETTE = {
  ink: ["#16181d", "#eef0f4"],
  paper: ["#fff", "#14171d"],
  quiet: ["#565d6b", "#9fa8b8"],
  line: ["#e3e4de", "#272c36"],
  me: ["#fff3cc", "#2e2711"],
  bar: ["#b4bff5", "#414f94"],
  accent: ["#2f4bd8", "#a6b6ff"],
  good: ["#11693a", "#70d79a"],
};
/** @param {(light: string, dark: string) => string} pick */
const colors = (pick) => Object.entries(PALETTE).map(([name, both]) => `--_${name}: ${pick(...both)};`).join(" ");
const [LIGHT, DARK] = [colors((light) => light), colors((_, dark) => dark)];
// Browsers without `light-dark()`, such as Chromium before 123, follow the system instead of the page. No style of the
// page reaches what is in `.live`: it inherits nothing, and its sizes are not those of the page's root.
const STYLE = `
:host { display: block; }
:host([hidden]), .live[hidden], slot[hidden] { display: none; }
.live { all: initial; ${LIGHT} display: block; container-type: inline-size; color-scheme: light dark; font: 1rem/1.35 system-ui, sans-serif; color: var(--lb-ink, var(--_ink)); }
@media (prefers-color-scheme: dark) { :host(:not([theme])) .live { ${DARK} } }
:host([theme="dark"]) .live { ${DARK} color-scheme: dark; }
:host([theme="light"]) .live { color-scheme: light; }
@supports (color: light-dark(#000, #fff)) { :host .live.live { ${colors((...both) => `light-dark(${both.join(", ")})`)} } }
*, ::before, ::after { box-sizing: border-box; }
.status { display: flex; gap: .5rem; align-items: center; width: fit-content; margin: 0 0 .5rem; padding: .2rem .75rem; border-radius: var(--lb-radius, .75rem); background: var(--lb-paper, var(--_paper)); color: var(--lb-quiet, var(--_quiet)); font-size: .875rem; font-weight: 600; }
.status::before { content: ""; flex: none; width: .6rem; height: .6rem; border: 2px solid; border-radius: 50%; }
.status[data-state="live"] { color: var(--_good); }
.status[data-state="live"]::before { background: currentColor; }
.frame { overflow: auto hidden; border: 1px solid var(--lb-line, var(--_line)); border-radius: var(--lb-radius, .75rem); }
table { width: 100%; border-spacing: 0; background: var(--lb-paper, var(--_paper)); }
tr { position: relative; }
th, td { position: relative; height: var(--lb-row, 3.5rem); padding: 0 1rem 0 0; overflow: hidden; border-top: 1px solid var(--lb-line, var(--_line)); background: var(--lb-paper, var(--_paper)); font-weight: 400; line-height: 1.2; text-align: start; white-space: nowrap; }
thead :is(th, td) { height: 2rem; border: 0; color: var(--lb-quiet, var(--_quiet)); font-size: .75rem; }
.rank { padding-inline-start: 1rem; }
tbody .rank { font-size: 1.25rem; font-weight: 600; }
.score { text-align: end; }
tbody .score { font-size: 1.25rem; font-weight: 600; }
.score[data-gap]::after { content: attr(data-gap); display: block; color: var(--lb-quiet, var(--_quiet)); font-size: .75rem; font-weight: 400; line-height: 1.3; }
.lead .score::after { color: var(--_good); }
.packed tbody .score { font-size: 1rem; }
.packed thead .score::first-letter { text-transform: uppercase; }
.name, tbody th { width: 100%; min-width: 4rem; max-width: 0; }
tbody th > bdi { display: block; overflow: hidden; font-weight: 600; text-overflow: ellipsis; }
.picture { position: absolute; top: calc(50% - 1.25rem); width: 2.5rem; height: 2.5rem; border-radius: .5rem; background: var(--lb-line, var(--_line)); color: var(--lb-quiet, var(--_quiet)); font-weight: 600; line-height: 2.5rem; text-align: center; object-fit: cover; }
.picture ~ :is(bdi, .about, .bar) { margin-inline-start: 3.25rem; }
.picture ~ .bar { width: calc(100% - 3.25rem); }
.bar { display: block; width: 100%; height: 4px; margin-top: 5px; fill: var(--lb-bar, var(--_bar)); }
.bar rect { height: 100%; rx: 2px; }
.lead .bar { fill: var(--lb-accent, var(--_accent)); }
.about { display: block; overflow: hidden; color: var(--lb-quiet, var(--_quiet)); font-size: .75rem; line-height: 1.3; text-overflow: ellipsis; }
@container (max-width: 40rem) {
  th, td { padding-inline-end: .5rem; }
  .rank { padding-inline-start: .75rem; }
  th:last-child, td:last-child { padding-inline-end: .75rem; }
  tbody :is(.rank, .score) { font-size: 1rem; }
  .picture { top: calc(50% - 1.125rem); width: 2.25rem; height: 2.25rem; line-height: 2.25rem; }
  .picture ~ :is(bdi, .about, .bar) { margin-inline-start: 2.75rem; }
  .picture ~ .bar { width: calc(100% - 2.75rem); }
  tbody th > bdi { display: -webkit-box; font-size: .875rem; overflow-wrap: anywhere; white-space: normal; -webkit-box-orient: vertical; -webkit-line-clamp: 2; }
  .packed .picture { display: none; }
  .packed .picture ~ :is(bdi, .about, .bar) { margin-inline-start: 0; }
  tbody th:has(.about) > bdi { display: block; white-space: nowrap; }
}
.rank, .score { font-variant-numeric: tabular-nums; }
.me > * { background: var(--lb-me, var(--_me)); }
.stale td { color: var(--lb-quiet, var(--_quiet)); }
@media (forced-colors: active) { .me > * { outline: 2px solid Highlight; outline-offset: -2px; } .bar { display: none; } }
`.replace(/([\d.]+)rem/g, (_, size) => `${size * 16}px`);
/** @type {typeof HTMLElement} a server that renders pages has no `HTMLElement` */
const Base = globalThis.HTMLElement ?? Object;
const TINT = "color-mix(in srgb, var(--lb-accent, var(--_accent)) 18%, var(--lb-paper, var(--_paper)))";
const TINTED = 2_500; // milliseconds for which rows that rose are tinted; rows that rise meanwhile are not tinted
const MOST_TINTED = 3;
const LONGEST_TIMER = 86_400_000; // milliseconds that a timer waits at most
const AGAIN = 5_000; // milliseconds until a script that failed to load is requested again
/** @type {CSSStyleSheet | undefined} all elements share it; it works under every Content-Security-Policy of a page */
let sheet;

export class LiveBoardElement extends Base {
  static observedAttributes = ["src", "limit", "member", "lang"];
  /** @type {LiveBoard | null} the watch, while the element is in a document */
  board = null;
  /** @type {import("./live-board.js").Wish["token"]} */
  #token;
  #timer = 0;
  /** @type {import("./live-board.js").Snapshot["state"] | undefined} the state of the last event */
  #told;
  #opened = 0;
  #parts;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    if (!sheet) (sheet = new CSSStyleSheet()).replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    const status = made("p", { class: "status", part: "status", role: "status" });
    const head = made("thead", { part: "head" }, made("tr", {}));
    const table = /** @type {HTMLTableElement} */ (made("table", { part: "table" }, head));
    const live = made("div", { class: "live", hidden: "" }, status, made("div", { class: "frame", part: "frame" }, table));
    const fallback = made("slot", {});
    root.append(fallback, live);
    this.#parts = { fallback, live, status, table };
  }

  connectedCallback() {
    this.#ask();
  }

  disconnectedCallback() {
    this.#opened++;
    this.board?.stop();
    this.board = null;
  }

  attributeChangedCallback() {
    if (this.isConnected) this.#ask();
  }

  /** The function that returns a viewer token, for a private board. */
  get token() {
    return this.#token;
  }

  set token(token) {
    this.#token = token;
    if (this.isConnected) this.#ask();
  }

  /** Watch the board that the attributes name. Attributes that change at the same time cause one new watch. */
  #ask() {
    const opened = ++this.#opened;
    queueMicrotask(async () => {
      if (opened !== this.#opened) return;
      await this.#speak();
      if (opened === this.#opened) this.#open();
    });
  }

  async #speak() {
    const wanted = (this.lang || this.ownerDocument.documentElement.lang || "en").split("-")[0];
    const tag = LANGUAGES.find((one) => one.split("-")[0] === wanted) ?? "en";
    const { words } = await import(`./words/${tag}.js`);
    setLanguage(tag, words);
  }

  #open() {
    this.board?.stop();
    this.board = null;
    const [, server, id] = /^(.*)\/boards\/([^/?#]+)/.exec(new URL(this.getAttribute("src") ?? "", document.baseURI).href) ?? [];
    if (!id) return;
    const key = this.getAttribute("member") ?? undefined;
    const board = (this.board = new LiveBoard(server, decodeURIComponent(id), { limit: Number(this.getAttribute("limit")) || 10, key, token: this.#token }));
    /** @type {TableView | undefined} */
    let view;
    board.on("state", () => this.#showState(board));
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let again;
    const show = async (/** @type {import("./live-board.js").Snapshot} */ snapshot) => {
      if (snapshot.epoch === null) return;
      this.#showState(board);
      const { facts } = snapshot;
      const units = facts?.format && (await import("./units.js").catch(() => null));
      if (board !== this.board) return;
      clearTimeout(again);
      if (units === null) {
        again = setTimeout(() => show(board.snapshot), AGAIN); // without `units.js`, scores would be wrong
        return;
      }
      const fields = Object.keys(snapshot.records[0]?.fields ?? {});
      if (!view || (fields.length && !view.fields.length)) view = this.#table(server, fields, key);
      const isNamed = facts?.unit?.toLowerCase() === heading("score").toLowerCase();
      view.writing = units ? units.writingOf({ ...facts, unit: isNamed ? undefined : facts.unit }, plain) : plain;
      view.show(snapshot.records);
      this.#parts.fallback.hidden = true;
      this.#parts.live.hidden = false;
      this.dispatchEvent(new CustomEvent("live-board-change", { detail: snapshot }));
    };
    board.on("change", show);
    board.start();
  }

  /**
   * Begin an empty table.
   *
   * @param {string} server
   * @param {string[]} fields the names of the fields that have a column instead of the score
   * @param {string} [own]
   */
  #table(server, fields, own) {
    const { table } = this.#parts;
    table.classList.toggle("packed", fields.length > 0);
    const headings = ["rank", "name", ...(fields.length ? fields : ["score"])].map((name, i) =>
      made("th", { class: i > 1 ? "score" : name, scope: "col" }, i > 1 && fields.length ? name : heading(name)),
    );
    table.tHead?.rows[0].replaceChildren(...headings);
    const body = /** @type {HTMLTableSectionElement} */ (made("tbody", { part: "body" }));
    table.tBodies[0]?.remove();
    table.append(body);
    const items = new Items(server, () => body.rows);
    const view = new TableView(body, { fields, bars: !fields.length, below: fields.length ? undefined : gapWords, own, parts: true, onDraw: () => items.show() });
    view.onRise = tinter();
    return view;
  }

  /** @param {LiveBoard} board */
  #showState(board) {
    if (board !== this.board) return;
    const { snapshot } = board;
    const { facts, state } = snapshot;
    const [closes, finalAt] = [facts?.closes, facts?.final_at].map((end) => (end === undefined ? Infinity : Date.parse(end)));
    const now = board.now();
    const [kind, text] = stateWords(snapshot, { frozen: false, closes, finalAt }, now);
    const { status, live } = this.#parts;
    if (status.textContent !== text) status.textContent = text;
    status.dataset.state = kind;
    live.classList.toggle("stale", !["live", "paused", "connecting", "counting", "closed"].includes(kind));
    clearTimeout(this.#timer);
    const end = closes > now ? closes : finalAt;
    const pause = state.retryAt !== undefined ? 1000 : end > now ? Math.min(end - now, LONGEST_TIMER) : Infinity;
    if (Number.isFinite(pause)) this.#timer = setTimeout(() => this.#showState(board), pause);
    if (state === this.#told) return;
    this.#told = state;
    this.dispatchEvent(new CustomEvent("live-board-state", { detail: state }));
  }
}

/** Tints rows that rise. Only a few rows are tinted at a time, so that each is noticed. */
function tinter() {
  let free = 0; // the time when the present tints end
  return (/** @type {import("./view.js").Riser[]} */ risers) => {
    const now = performance.now();
    if (now < free || !risers.length) return 0;
    free = now + TINTED;
    const cells = risers.slice(0, MOST_TINTED).flatMap(({ row }) => [...row.element.cells]);
    for (const cell of cells) cell.animate([{ backgroundColor: TINT, offset: 0 }], { duration: TINTED, easing: "ease-out" });
    return 0;
  };
}

/** @param {string} column */
function heading(column) {
  return translate(/** @type {any} */ (`${column}_heading`));
}

/**
 * @param {string} name
 * @param {Object<string, string>} attributes
 * @param {...(Node | string)} children
 */
function made(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  element.append(...children);
  return element;
}

if (globalThis.customElements && !customElements.get("live-board")) customElements.define("live-board", LiveBoardElement);
