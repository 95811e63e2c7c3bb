// @ts-check
/** Draws the column beside a board, once there is something to tell: what happened, and which members rise fastest. */
import { say, storyWords, withStory } from "./client/stories.js";
import { momentWords } from "./client/words.js";
import { MINUTE } from "./poll.js";

const RISING = 3;

/** @typedef {import("./client/stories.js").Story} Story */

export class Rail {
  /** @type {Story[]} */
  #stories = [];
  #rising = "";

  /**
   * @param {import("./client/live-board.js").LiveBoard} board
   * @param {import("./client/view.js").TableView} table
   * @param {(key: string) => string} nameOf
   */
  constructor(board, table, nameOf) {
    this.board = board;
    this.table = table;
    this.nameOf = nameOf;
  }

  /**
   * Begin the list with what has happened since the baseline.
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
    show(
      "happened",
      this.#stories.map((story) => {
        const isEarlier = story.at === story.since;
        const time = document.createElement("time");
        const clock = momentWords(story.at - (story.at % MINUTE), this.board.now());
        time.textContent = isEarlier ? say("since_time", { time: clock }) : clock;
        const name = document.createElement("b");
        name.append(isolated(this.nameOf(story.key)));
        const line = document.createElement("li");
        line.append(time, " ", name, ` ${storyWords(story, this.nameOf, this.table.writing)}`);
        if (story.times && story.times > 1) line.append(` ×${story.times}`);
        return line;
      }),
    );
  }

  /** @param {{record: import("./client/stories.js").Place, pace: number | undefined}[]} paces */
  showRising(paces) {
    const known = paces.flatMap(({ record, pace = 0 }) => (pace > 0 ? [{ key: record.key, pace }] : []));
    const rising = known.sort((one, other) => other.pace - one.pace).slice(0, RISING);
    const text = rising.map(({ key, pace }) => `${key} ${pace}`).join("\n");
    if (!rising.length || text === this.#rising) return;
    this.#rising = text;
    show(
      "rising",
      rising.map(({ key, pace }) => {
        const line = document.createElement("li");
        const amount = document.createElement("b");
        amount.textContent = say("pace", { pace: `+${this.table.writing.grouped(pace)}` });
        line.append(isolated(this.nameOf(key)), " ", amount);
        return line;
      }),
    );
  }
}

/**
 * Fill a list, and show it with its heading.
 *
 * @param {string} id
 * @param {HTMLElement[]} lines
 */
function show(id, lines) {
  const list = document.getElementById(id);
  list?.replaceChildren(...lines);
  list?.parentElement?.removeAttribute("hidden");
}

/** @param {string} text */
function isolated(text) {
  const made = document.createElement("bdi");
  made.textContent = text;
  return made;
}
