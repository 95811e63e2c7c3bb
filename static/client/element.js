/** `<live-board>`: the table of a board, live. Without script, its content is shown. */
import { LiveTable } from "./table.js";
//#region foreign: left out of the server's pages, whose tables the server has written
import { foreignTable, speak } from "./foreign.js";
//#endregion

/** @type {typeof HTMLElement} a server that renders pages has no `HTMLElement` */
const Base = globalThis.HTMLElement ?? Object;

export class LiveBoardElement extends Base {
  /** @type {LiveTable | null} */
  live = null;

  /** The watch, while the element is in a document. */
  get board() {
    return this.live?.board ?? null;
  }

  /** Take over the table that the server has written into this element. @param {import("./table.js").Options} [options] */
  open(options) {
    const section = /** @type {HTMLElement} */ (this.closest("[data-board]"));
    return (this.live = new LiveTable(section, location.origin + section.dataset.root, options));
  }

  //#region foreign
  static observedAttributes = ["src", "limit", "member", "lang"];
  /** @type {import("./live-board.js").Wish["token"]} */
  #token;
  #asked = 0;
  #ended = new AbortController();

  connectedCallback() {
    this.#ask();
  }

  disconnectedCallback() {
    this.#asked++;
    this.#end();
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
    const asked = ++this.#asked;
    queueMicrotask(async () => {
      if (asked !== this.#asked) return;
      await speak(this.lang || this.ownerDocument.documentElement.lang || "en");
      if (asked === this.#asked) this.#watch();
    });
  }

  /** End the watch, and what listens on the page for its table. */
  #end() {
    this.#ended.abort();
    this.live?.board.stop();
    this.live = null;
  }

  #watch() {
    this.#end();
    this.#ended = new AbortController();
    const [, server, id] = /^(.*)\/boards\/([^/?#]+)/.exec(new URL(this.getAttribute("src") ?? "", document.baseURI).href) ?? [];
    if (!id) return;
    const [limit, member] = [Number(this.getAttribute("limit")) || 10, this.getAttribute("member") ?? undefined];
    this.live = foreignTable(this, server, decodeURIComponent(id), { limit, member, token: this.#token, signal: this.#ended.signal });
    const { board } = this.live;
    board.on("state", (detail) => this.dispatchEvent(new CustomEvent("live-board-state", { detail })));
    board.on("change", (detail) => detail.epoch !== null && this.dispatchEvent(new CustomEvent("live-board-change", { detail })));
    this.live.start();
  }
  //#endregion
}

if (globalThis.customElements && !customElements.get("live-board")) customElements.define("live-board", LiveBoardElement);
