// @ts-check
/** Draws the column beside a board: the member that you follow, what happened, and which members rise fastest. */
import { say, storyWords, withStory } from "./client/stories.js";
import { momentWords, moveWords, placeWords } from "./client/words.js";
import { pinOf, write } from "./page.js";
import { MINUTE } from "./poll.js";

const RISING = 3;

/**
 * @typedef {import("./client/stories.js").Story} Story
 * @typedef {import("./client/stories.js").Place} Place
 */

const part = (/** @type {string} */ name) => document.getElementById(name);

export class Rail {
  /** @type {Story[]} */
  #stories = [];
  #rising = "";

  /**
   * @param {import("./story.js").Shown} shown
   * @param {(key: string) => string} nameOf
   */
  constructor({ board, section, table, packed }, nameOf) {
    this.board = board;
    this.table = table;
    this.nameOf = nameOf;
    this.gaps = !packed;
    this.key = table.shape.own;
    this.times = new Intl.DateTimeFormat(document.documentElement.lang, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
    if (this.key === undefined) return;
    this.#startPin(`${section.dataset.board}`);
    if (part("place")) return; // the address names the member, and the page shows its place
    this.place = document.createElement("p");
    this.place.className = "place";
    part("you-pace")?.before(this.place);
  }

  /** @param {string} board */
  #startPin(board) {
    const button = part("pin");
    if (!button) return;
    const show = () => button.setAttribute("aria-pressed", String(pinOf(board) === this.key));
    button.hidden = false;
    button.addEventListener("click", () => {
      setPin(board, pinOf(board) === this.key ? undefined : this.key);
      show();
    });
    show();
  }

  /**
   * Begin the list with what has happened since the baseline, so that it is not empty.
   *
   * @param {Story[]} stories
   */
  begin(stories) {
    if (this.#stories.length || !stories.length) return;
    this.#stories = stories.map((story) => {
      const at = story.since - (story.since % MINUTE);
      return { ...story, at, since: at };
    });
    this.#list();
  }

  /** @param {Story} story */
  tell(story) {
    this.#stories = withStory(this.#stories, story);
    this.#list();
  }

  #list() {
    part("happened")?.replaceChildren(
      ...this.#stories.map((story) => {
        const isEarlier = story.at === story.since;
        const time = document.createElement("time");
        time.textContent = isEarlier ? say("since_time", { time: momentWords(story.at, this.board.now()) }) : this.times.format(story.at);
        const name = document.createElement("b");
        name.append(isolated(this.nameOf(story.key)));
        const line = document.createElement("li");
        line.append(time, " ", name, ` ${storyWords(story, this.nameOf, this.table.writing)}`);
        if (story.times && story.times > 1) line.append(` ×${story.times}`);
        return line;
      }),
    );
  }

  /** @param {{record: Place, pace: number}[]} paces */
  showRising(paces) {
    const rising = paces.filter(({ pace }) => pace > 0).sort((one, other) => other.pace - one.pace).slice(0, RISING);
    const text = rising.map(({ record, pace }) => `${record.key} ${pace}`).join("\n");
    if (!rising.length || text === this.#rising) return;
    this.#rising = text;
    part("rising")?.replaceChildren(
      ...rising.map(({ record, pace }) => {
        const line = document.createElement("li");
        const amount = document.createElement("b");
        amount.textContent = signed(pace, this.table.writing);
        line.append(isolated(this.nameOf(record.key)), " ", amount);
        return line;
      }),
    );
  }

  /**
   * Show how the followed member moves.
   *
   * @param {import("./poll.js").Ranks | undefined} ranks before
   * @param {number | null} since
   * @param {(place: Place) => number | undefined} paceOf
   */
  showYou(ranks, since, paceOf) {
    const { around } = this.board.snapshot;
    const card = part("you");
    if (this.key === undefined || !card || !around) return;
    if (!("known" in card.dataset)) {
      card.dataset.known = "";
      write(card.querySelector("h2 span"), ` · ${this.nameOf(this.key)}`);
    }
    if (this.place) write(this.place, say("place", { place: placeWords(around.rank, this.gaps ? around.gap : null, this.table.writing).join("") }));
    const words = [];
    if (around.rank !== null && ranks && since) {
      const [move] = moveWords(around.rank, ranks.before(this.key, around.rank));
      if (move) words.push(`${move} ${say("since_time", { time: momentWords(since - (since % MINUTE), this.board.now()) })}`);
    }
    const place = around.records.findIndex(({ key }) => key === this.key);
    const [own, above] = [around.records[place], around.records[place - 1]];
    const [pace, other] = [own, above].map((one) => one && paceOf(one));
    if (pace !== undefined) words.push(say("pace", { pace: signed(pace, this.table.writing) }));
    if (above && other !== undefined) words.push(say("gains", { rank: above.rank, pace: say("pace", { pace: signed(other, this.table.writing) }) }));
    write(part("you-pace"), words.join(" · ") || "\u00a0");
    card.classList.toggle("climbs", words[0]?.startsWith("▲"));
  }
}

/**
 * @param {number} pace
 * @param {import("./client/words.js").Writing} writing
 */
export function signed(pace, { grouped }) {
  return `${pace > 0 ? "+" : ""}${grouped(pace)}`;
}

/** @param {string} text */
function isolated(text) {
  const made = document.createElement("bdi");
  made.textContent = text;
  return made;
}

/**
 * @param {string} board
 * @param {string | undefined} key
 */
function setPin(board, key) {
  try {
    if (key === undefined) localStorage.removeItem(`live-pin ${board}`);
    else localStorage.setItem(`live-pin ${board}`, key);
  } catch {
    // the browser keeps nothing for this page
  }
}
