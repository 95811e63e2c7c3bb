// @ts-check
/** The row of the member that the reader follows, at the foot of the table while it is not among the others. */
import { newRow, Row } from "./client/view.js";
import { barWidth, grouped, translate } from "./client/words.js";

export class You {
  /** @type {Row | undefined} */
  #row;

  /**
   * @param {import("./client/live-board.js").LiveBoard} board
   * @param {import("./client/view.js").TableView} table
   */
  constructor(board, table) {
    this.board = board;
    this.table = table;
    this.whole = /** @type {HTMLTableElement} */ (table.body.closest("table"));
    const drawn = this.whole.tFoot?.rows[0];
    if (drawn) this.#row = new Row(drawn);
  }

  show() {
    const { around, records } = this.board.snapshot;
    const { table } = this;
    const key = table.shape.own ?? "";
    if (!around) return;
    if (records.some((record) => record.key === key)) {
      this.whole.tFoot?.remove();
      this.#row = undefined;
      return;
    }
    const row = (this.#row ??= this.#made(key));
    const at = around.records.findIndex((record) => record.key === key);
    const own = around.records[at];
    row.name.dataset.note = translate(own ? "you" : "you_not_ranked");
    if (!own) {
      row.texts.forEach((_, part) => row.write(part, ""));
      row.writeGap("");
      return row.writeBar(0);
    }
    row.writeRank(own.rank);
    row.writeMetadata(own.metadata);
    if (table.fields.length) table.fields.forEach((field, i) => row.write(i + 1, grouped(own.fields?.[field] ?? null)));
    else row.writeScore(own.score, table.writing);
    row.writeGap(table.below(own, around.records[at - 1], undefined, table.writing));
    row.writeBar(barWidth(own.score, records[0]?.score ?? 0));
    table.onWrite?.(row, own);
  }

  /** @param {string} key */
  #made(key) {
    const element = newRow(key, this.table.shape);
    if (this.whole.tHead?.querySelector(".like")) element.insertCell().className = "like";
    this.whole.createTFoot().append(element);
    return new Row(element);
  }
}
