/** Makes the table of a board on a page of another site, in a shadow tree: no name or style gets in or out. */
import { Announcer } from "./announcer.js";
import { made } from "./dom.js";
import { Items } from "./items.js";
import { Risers } from "./motion.js";
import { LiveTable } from "./table.js";
import { setLanguage, translate } from "./words.js";

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
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
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
.risen > * { background: color-mix(in srgb, var(--lb-accent, var(--_accent)) 18%, var(--lb-paper, var(--_paper))); }
.me > * { background: var(--lb-me, var(--_me)); }
.stale td { color: var(--lb-quiet, var(--_quiet)); }
@media (forced-colors: active) { .me > * { outline: 2px solid Highlight; outline-offset: -2px; } .bar { display: none; } }
`.replace(/([\d.]+)rem/g, (_, size) => `${size * 16}px`);
/** @type {CSSStyleSheet | undefined} all elements share it; it works under every Content-Security-Policy of a page */
let sheet;

/** Use the language of a page. @param {string} wanted */
export async function speak(wanted) {
  const tag = LANGUAGES.find((one) => one.split("-")[0] === wanted.split("-")[0]) ?? "en";
  const { words } = await import(`./words/${tag}.js`);
  setLanguage(tag, words);
}

/**
 * Begin an empty table, which replaces the content of the element as soon as there are records.
 * @param {HTMLElement} host the element
 * @param {string} server @param {string} board
 * @param {Pick<import("./live-board.js").Wish, "limit" | "member" | "token" | "signal">} wish
 */
export function foreignTable(host, server, board, wish) {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  if (!sheet) (sheet = new CSSStyleSheet()).replaceSync(STYLE);
  root.adoptedStyleSheets = [sheet];
  const headings = made("tr");
  const body = /** @type {HTMLTableSectionElement} */ (made("tbody", { id: "records", part: "body" }));
  const table = made("table", { part: "table", "data-bars": "" }, made("thead", { part: "head" }, headings), body);
  const news = made("p", { class: "unseen", role: "status" });
  const section = made(
    "div",
    { class: "live", hidden: "", "data-board": board },
    made("p", { id: "connection", class: "status", part: "status", "data-state": "still" }),
    news,
    made("div", { class: "frame", part: "frame" }, table),
  );
  const content = made("slot");
  root.replaceChildren(content, section);
  const live = new LiveTable(section, server, wish);
  const items = new Items(server, () => body.rows);
  new Risers(live.table, () => "");
  live.announce = new Announcer(news).announce;
  live.onDraw = () => items.show();
  const write = (/** @type {string[]} */ fields) => {
    live.table.setFields(fields);
    table.classList.toggle("packed", fields.length > 0);
    const heading = (/** @type {"rank" | "name" | "score"} */ name) => translate(`${name}_heading`);
    const values = fields.length ? fields : [heading("score")];
    headings.replaceChildren(
      ...[heading("rank"), heading("name"), ...values].map((text, i) => made("th", { class: ["rank", "name"][i] ?? "score", scope: "col" }, text)),
    );
  };
  write([]);
  live.prepare = ({ facts, records }) => {
    const fields = Object.keys(records[0]?.fields ?? {});
    if (fields.length && !live.table.fields.length) write(fields);
    noteFacts(section, facts);
    content.hidden = true;
    section.hidden = false;
  };
  return live;
}

/** Say what the server writes into its own pages. @param {HTMLElement} section @param {import("./state.js").Facts} [facts] */
function noteFacts({ dataset }, facts = {}) {
  const isNamed = facts.unit?.toLowerCase() === translate("score_heading").toLowerCase();
  const known = {
    opens: facts.opens && Date.parse(facts.opens),
    closes: facts.closes && Date.parse(facts.closes),
    finalAt: facts.final_at && Date.parse(facts.final_at),
    contest: facts.closes && "",
    format: facts.format && JSON.stringify({ ...facts, unit: isNamed ? undefined : facts.unit }),
  };
  for (const [name, value] of Object.entries(known)) {
    if (value === undefined) delete dataset[name];
    else dataset[name] = String(value);
  }
}
