/** The parts that only contests have: the contestants without votes, and the result when voting ends. */

import { isolated, made, write } from "./client/parts.js";
import { grouped, shareWords, translate } from "./client/words.js";
import { drawnPage } from "./drawn.js";
import { nameIn } from "./story.js";

const ROWS_SPREAD = 3_000; // milliseconds over which the requests of pages are spread
const A_SECOND = 1_000;
const A_MINUTE = 60 * A_SECOND; // the countdown stands out in the last minute
const A_DAY = 86_400 * A_SECOND; // from this time on, the page shows when voting opens or closes instead of a countdown
const PODIUM_PLACES = 3; // of the result

/** Show what only contests have. Returns what draws the contestants without votes. @param {import("./story.js").Shown} shown @param {import("./client/parts.js").StatusView} status */
export function startContest({ section, table, board, announce }, status) {
  const { tail = "", opens: opensAt, closes: closesAt, finalAt: finalTime = closesAt } = section.dataset;
  const [opens, closes, finalAt] = [Number(opensAt ?? -Infinity), Number(closesAt ?? Infinity), Number(finalTime ?? Infinity)];
  const ballot = /** @type {HTMLTableSectionElement | null} */ (document.getElementById(`ballot${tail}`));
  const podium = document.getElementById(`podium${tail}`);
  const times = /** @type {HTMLElement | null} */ (section.querySelector(".voting")); // when voting opens and closes
  const countdown = made("b", { class: "clock", "data-now": "" }); // beside the state
  let isAsking = false;
  let wasBefore = false; // whether voting had not opened at the last tick
  /** @type {Set<string>} the members that had votes when the table was last drawn */
  let before = new Set();
  let told = ""; // the result that is shown

  /** Hide the contestants that have a record now, and all of them while there are more records than rows. */
  const show = () => {
    const { records, rankCount, epoch } = board.snapshot;
    if (!ballot || epoch === null || table.isHeld) return;
    const ranked = new Set(records.map(({ key }) => key));
    const isWhole = (rankCount ?? 0) <= records.length;
    const lost = isWhole ? [...before].filter((member) => !ranked.has(member) && !rowOf(member)) : [];
    before = ranked;
    if (lost.length) complete();
    const rows = /** @type {HTMLElement[]} */ ([...ballot.querySelectorAll("[data-member]")]);
    for (const row of rows) {
      if (row.hidden === ranked.has(row.dataset.member ?? "")) continue;
      const hadFocus = row.contains(document.activeElement);
      row.hidden = !row.hidden;
      if (!hadFocus || !row.hidden) continue;
      const isSame = (/** @type {HTMLElement} */ one) => one.dataset.member === row.dataset.member; // the new row takes the focus
      requestAnimationFrame(() => [...table.body.rows].find(isSame)?.querySelector("button")?.focus());
    }
    ballot.hidden = !isWhole || rows.every((row) => row.hidden);
  };

  /** @param {string} member a contestant without votes */
  const rowOf = (member) => [...(ballot?.rows ?? [])].find((one) => one.dataset.member === member);

  /** Ask for the rows of contestants that have lost their last vote. */
  const complete = () => {
    if (isAsking) return;
    isAsking = true;
    setTimeout(async () => {
      isAsking = false;
      const made = (await drawnPage())?.getElementById(ballot?.id ?? "");
      // Rows stay for contestants that have votes now, so that the next change of a vote needs no request.
      if (!ballot?.rows.length) ballot?.replaceChildren(...(made?.childNodes ?? []));
      for (const row of /** @type {NodeListOf<HTMLElement>} */ (made?.querySelectorAll("[data-member]") ?? []))
        if (!rowOf(row.dataset.member ?? "")) ballot?.append(row);
      show();
    }, Math.random() * ROWS_SPREAD);
  };

  /** Count the seconds by the clock of the server. When the result is final, show it with the state in one step. */
  const tick = () => {
    const now = board.now();
    const isBefore = now < opens;
    // When voting opens, the page gets its buttons.
    if (wasBefore && !isBefore && section.dataset.records)
      setTimeout(() => location.reload(), Math.random() * ROWS_SPREAD);
    wasBefore = isBefore;
    const left = (isBefore ? opens : closes) - now;
    const counts = left > 0 && left < A_DAY;
    if (counts) write(countdown, translate(isBefore ? "opens_in" : "closes_in", { time: clockSpan(left) }));
    countdown.hidden = !counts;
    showOnWall(left, isBefore);
    countdown.toggleAttribute("data-last", !isBefore && left <= A_MINUTE);
    if (times) times.hidden = counts || left <= 0;
    if (left <= 0) status.show();
    if (now >= finalAt && board.snapshot.state.name === "live") showResult(board.snapshot.records);
    const next = (left > 0 ? left : finalAt - now) % A_SECOND;
    setTimeout(() => tick(), next > 0 ? next : A_SECOND);
  };

  /** When voting ends, the result takes the wall once it is final. @param {number} left @param {boolean} isBefore */
  const showOnWall = (left, isBefore) => {
    const part = /** @type {HTMLElement | null} */ (section.querySelector(".ask > .left"));
    if (!part) return;
    const clock = /** @type {HTMLElement} */ (part.firstElementChild);
    section.toggleAttribute("data-asks", left > 0);
    section.classList.toggle("final", left <= 0 && podium?.firstElementChild !== null);
    part.hidden = !(left > 0 && left < A_DAY);
    part.toggleAttribute("data-last", !isBefore && left <= A_MINUTE);
    const text = clockSpan(Math.max(0, left));
    clock.style.setProperty("--chars", String(text.length));
    write(clock, text);
    write(part.lastElementChild, (isBefore ? part.dataset.untilOpen : part.dataset.left) ?? "");
  };

  /** @param {readonly import("./client/stories.js").Place[]} records */
  const showResult = (records) => {
    const { totalScore } = board.snapshot;
    const result = JSON.stringify([totalScore, records.slice(0, PODIUM_PLACES)]);
    if (!podium || !records.length || records[0].rank !== 1 || result === told) return;
    told = result;
    const body = table.body;
    const winners = records.filter(({ rank }) => rank === 1);
    const [{ key: winner, score }, second] = records;
    const nameOf = (/** @type {string} */ member) => nameIn(body, member);
    const names = winners.slice(0, PODIUM_PLACES).map((one) => nameOf(one.key)).join(translate("list"));
    const share = (/** @type {number} */ votes) => shareWords(votes, totalScore);
    const isAlone = winners.length === 1;
    const places = records.slice(0, PODIUM_PLACES).map((record, index) => {
      const row = body.querySelector(`tr[data-member="${CSS.escape(record.key)}"]`);
      const copies = [".picture", ".about"].map((part) => row?.querySelector(part)?.cloneNode(true) ?? "");
      const place = record.rank > 1 ? translate("rank", { n: record.rank }) : translate(isAlone ? "winner" : "tied_winner");
      const who = made("p", { class: "who" }, made("small", {}, place), " ", isolated(nameOf(record.key)), copies[1]);
      const lead = index === 0 && isAlone && second ? translate("ahead", { n: score - second.score }) : "";
      const sum = made("p", { class: "sum" }, `${grouped(record.score)} `, made("small", {}, share(record.score) + lead));
      return made("li", {}, copies[0], who, sum);
    });
    podium.replaceChildren(made("ol", { class: "podium", "aria-label": translate("podium") }, ...places));
    showOnWall(0, false);
    announce(isAlone ? translate("wins", { name: nameOf(winner), n: score, share: share(score) }) : translate("tie", { names, n: score }));
  };

  status.status.after(countdown);
  show();
  if (opensAt || closesAt) tick();
  return show;
}

/** A time as on a clock: `0:05`, `12:34` or `1:02:03`. @param {number} span in milliseconds */
export function clockSpan(span) {
  const seconds = Math.ceil(span / A_SECOND);
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const [first, ...rest] = parts[0] ? parts : parts.slice(1);
  return [first, ...rest.map((part) => String(part).padStart(2, "0"))].join(":");
}
