/** Sets the scale of an overlay and the size of the rows on a wall. Reports the height of a frame to the page around it. */
const root = document.documentElement;
const MANY = 7; // rows of a result; below the steps, more of them stand in two columns
const PAGE = 10; // rows that a wall shows of a board at a time, if it shows one page after another
const LEAST = 667; // the least width of a row with short numbers, in hundredths of its greatest height
const AROUND = 420; // the part of a row without its numbers, in the same unit
const DIGIT = 32; // the width of a digit of a score, in the same unit

root.style.fontSize = root.dataset.surface === "wall" ? "" : `${Number(root.dataset.scale ?? 1) * 100}%`;
if (parent !== window) {
  const sendHeight = () => parent.postMessage({ type: "live-board:height", height: Math.ceil(document.body.offsetHeight) }, "*");
  new ResizeObserver(sendHeight).observe(document.body);
}
if (root.dataset.surface === "wall") for (const section of document.querySelectorAll("section[data-board]")) fill(/** @type {HTMLElement} */ (section));

/** Rows share the height. Their texts follow it, unless the numbers need more room. @param {HTMLElement} section */
function fill(section) {
  const area = /** @type {HTMLElement} */ (section.querySelector(".cols > div")); // of the rows
  const frame = /** @type {HTMLElement} */ (section.querySelector(".frame"));
  const table = /** @type {HTMLTableElement} */ (frame.firstElementChild);
  const fit = () => {
    const rows = [...table.querySelectorAll("tr[data-member]")].filter((row) => !row.closest("[hidden]"));
    rows.forEach((row, index) => row.classList.toggle("over", index >= Number(section.dataset.limit)));
    rows.length = Math.min(rows.length, Number(section.dataset.limit));
    section.toggleAttribute("data-empty", !rows.length);
    section.toggleAttribute("data-many", rows.length > MANY);
    section.toggleAttribute("data-about", table.querySelector(".about") !== null);
    const shown = Math.min(rows.length || 1, root.dataset.rotate ? PAGE : Infinity);
    const head = table.classList.contains("packed") ? (table.tHead?.offsetHeight ?? 0) : 0;
    const height = Math.floor((area.getBoundingClientRect().height - head) / shown);
    const widths = rows.map((row) => [...row.querySelectorAll("td.score")].reduce((sum, cell) => sum + (cell.textContent ?? "").length + 1, -1));
    const unit = Math.min(height / 100, area.clientWidth / Math.max(LEAST, AROUND + DIGIT * Math.max(0, ...widths)));
    section.style.setProperty("--row", `${height}px`);
    section.style.setProperty("--shown", String(shown));
    section.style.setProperty("--head", `${head}px`);
    section.style.setProperty("--h", `${unit}px`);
  };
  new ResizeObserver(fit).observe(area);
  new MutationObserver(fit).observe(table, { childList: true, characterData: true, subtree: true, attributeFilter: ["hidden"] });
}
