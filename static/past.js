/** The time slider of a board's page: shows the board at a time of the past. */
import { write } from "./client/parts.js";
import { momentWords } from "./client/words.js";
/** @import { LiveTable, Moment } from "./client/table.js" */

const SLIDER_REST = 150; // milliseconds after the last move of the slider until the page requests the board
const SLIDER_STEPS = 360; // steps of the slider

/** @type {Moment} */
const NOTHING = { records: [], rankCount: null, totalScore: null };

/** @param {string} name @returns {any} */
const control = (name) => document.getElementById(name);

/** If the address ends with `#past=` and a time, show it. @param {LiveTable & import("./story.js").Shown} shown @param {(text: string) => void} announce */
export function startPast(shown, announce) {
  const { board, table, section } = shown;
  const [button, panel, slider, range] = ["past", "past-panel", "past-time", "past-range"].map(control);
  const [connection, note] = [control("connection"), control("past-note")];
  const line = /** @type {HTMLElement | null} */ (section.querySelector(".sub"));
  const rise = table.onRise;
  let timer = 0;
  let requests = 0; // how many requests were made; only the answer to the last request is shown
  /** @type {number | null} the time that is shown, in milliseconds since 1970; null while the page is live */
  let shownAt = null;
  /** @type {number | null} the first time that the journal has; null while it is unknown */
  let since = null;
  /** @type {number | null} the time that was shown when the slider was touched */
  let before = null;

  /** The answer to a request, or null, and its status. @param {string} path below the address of the board @returns {Promise<[any, number | undefined]>} */
  const ask = async (path) => {
    const answer = await fetch(`${section.dataset.root}v1/boards/${section.dataset.board}${path}`).catch(() => null);
    return [answer?.ok ? await answer.json().catch(() => null) : null, answer?.status];
  };

  /** Let the slider reach from the start of the range, but not from before the journal, to the present. */
  const stretch = () => {
    const now = board.now();
    const reach = Math.min(Number(range.value), (now - (since ?? 0)) / 1000);
    const step = Math.max(1, Math.floor(reach / SLIDER_STEPS));
    slider.step = "any"; // the old step would round the value
    slider.min = String(-step * Math.max(1, Math.ceil(reach / step)));
    slider.step = String(step);
    write(control("past-from"), momentWords(Math.max(now + Number(slider.min) * 1000, since ?? 0), now));
    if (shownAt !== null) mark(shownAt);
  };

  /** @param {number | null} at */
  const mark = (at) => {
    slider.value = at === null ? "0" : String(Math.min(-Number(slider.step), (at - board.now()) / 1000));
    panel.style.setProperty("--at", String(1 - Number(slider.value) / Number(slider.min)));
  };

  /** Move the slider to a time, and say which one. Null stands for the present. @param {number | null} at */
  const aim = (at) => {
    const words = at === null ? panel.dataset.live : momentWords(at, board.now());
    write(control("past-at"), at === null ? "" : words);
    slider.setAttribute("aria-valuetext", words);
    mark(at);
  };

  const open = async () => {
    if (!panel.hidden) return;
    panel.hidden = false;
    button.setAttribute("aria-expanded", "true");
    stretch();
    if (since !== null) return;
    const [journal] = await ask("/history"); // the slider begins where the journal begins
    if (journal?.since) since = Date.parse(journal.since);
    stretch();
  };

  /** Show the board live again. @param {boolean} [closes] also close the panel */
  const leave = (closes = true) => {
    clearTimeout(timer);
    requests += 1;
    if (closes) {
      const menu = /** @type {HTMLElement | null} */ (document.querySelector(".menu > summary"));
      if (panel.contains(document.activeElement)) menu?.focus();
      panel.hidden = true;
      button.setAttribute("aria-expanded", "false");
    }
    aim(null);
    if (shownAt === null) return;
    shownAt = null;
    put(null);
    line?.style.removeProperty("height");
    board.start();
  };

  /** The page stays live until the first moment of the past has arrived. @param {number} at @param {Moment} moment */
  const show = (at, moment) => {
    put(moment, at);
    if (shownAt === null) {
      for (const { classList, cells } of table.body.rows) {
        classList.remove("risen");
        delete cells[1].dataset.told;
      }
      board.stop();
      section.classList.remove("stale");
      if (line) line.style.height = `${line.getBoundingClientRect().height}px`; // this keeps the slider under the pointer
      connection.dataset.state = "past";
      control("retry").hidden = true;
    }
    shownAt = at;
    write(connection, panel.dataset.asOf.replace("{time}", momentWords(at, board.now())));
    aim(at);
    announce(`${connection.textContent} ${note.textContent}`);
  };

  /** Null shows the present. Parts that belong only to it are hidden meanwhile. @param {Moment | null} moment @param {number} [at] */
  const put = (moment, at) => {
    shown.past = moment;
    section.toggleAttribute("data-past", moment !== null);
    section.toggleAttribute("data-blank", moment?.records.length === 0);
    for (const name of ["pause", "speed"]) control(name).disabled = moment !== null; // they are of no use to records of the past
    write(note, moment?.rankCount === null ? panel.dataset.missing : "");
    note.hidden = !note.textContent;
    table.onRise = moment ? undefined : rise; // while somebody moves the slider, no row is marked as rising
    shown.trends?.compare();
    table.show(shown.page.records);
    const named = (/** @type {string} */ address) => {
      const url = new URL(address);
      url.hash = "";
      url.searchParams.delete("as_of");
      if (at !== undefined) url.searchParams.set("as_of", new Date(at).toISOString());
      return url.href;
    };
    history.replaceState(null, "", named(location.href));
    const link = control("link"); // the address that *Share* gives
    if (link) link.value = named(link.value);
  };

  /** @param {number} at */
  const request = async (at) => {
    const number = (requests += 1);
    const query = new URLSearchParams({ as_of: new Date(at).toISOString(), limit: section.dataset.limit ?? "" });
    const [top, status] = await ask(`?${query}`);
    if (number !== requests) return;
    if (top) show(at, { records: top.records, rankCount: top.rank_count, totalScore: top.total_score, period: top.period });
    else if (status === 404) show(at, NOTHING);
    else {
      write(control("past-at"), panel.dataset.failed);
      announce(panel.dataset.failed);
    }
  };

  slider.addEventListener("input", () => {
    clearTimeout(timer);
    requests += 1;
    if (Number(slider.value) === 0) return leave(false);
    const at = Math.max(board.now() + Number(slider.value) * 1000, since ?? 0);
    void open();
    aim(at);
    timer = setTimeout(() => void request(at), SLIDER_REST);
  });
  slider.addEventListener("pointerdown", () => (before = shownAt));
  slider.addEventListener("pointercancel", () => {
    clearTimeout(timer); // the finger scrolls the page
    if (before === null) return leave(false);
    aim(before);
    void request(before);
  });
  range.addEventListener("change", stretch);
  control("past-live").addEventListener("click", () => leave());
  button.addEventListener("click", () => {
    if (!panel.hidden) return leave();
    void open();
    slider.focus();
  });
  const wanted = Number(/^#past=(\d{1,15})$/.exec(location.hash)?.[1]);
  if (!wanted) return;
  const option = [...range.options].find(({ value }) => Number(value) * 1000 >= board.now() - wanted);
  range.value = (option ?? range.options[2]).value;
  void open();
  aim(wanted);
  void request(wanted);
}
