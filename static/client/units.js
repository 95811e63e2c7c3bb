/** Scores with a unit, with decimals, or as durations. The server's `ScoreFormat` writes them in the same way. No DOM. */
/** @typedef {import("./words.js").Writing} Writing */

/** @typedef {{unit?: string, scale?: number, format?: "number" | "duration"}} Format */

/** How to write the scores of a board. @param {Format} format @param {Writing} plain for whole numbers @returns {Writing} */
export function writingOf({ unit, scale = 0, format }, { grouped }) {
  const clock = (/** @type {number} */ whole) => {
    const minutes = Math.floor(whole / 60);
    const [minute, second] = [minutes % 60, whole % 60].map((part) => String(part).padStart(2, "0"));
    return minutes < 60 ? `${minutes}:${second}` : `${grouped(Math.floor(minutes / 60))}:${minute}:${second}`;
  };
  const write = (/** @type {number} */ value) => {
    const digits = BigInt(Math.abs(value)).toString().padStart(scale + 1, "0");
    const whole = Number(digits.slice(0, digits.length - scale));
    const text = format === "duration" ? clock(whole) : grouped(whole);
    return `${value < 0 ? "−" : ""}${text}${scale ? `.${digits.slice(-scale)}` : ""}${unit ? `\u00a0${unit}` : ""}`;
  };
  return { grouped: (value) => (value === null ? grouped(null) : write(value)) };
}
