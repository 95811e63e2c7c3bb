/** The metadata of members, in words and in their rows. */
import { isolated, made } from "./dom.js";

const MOST_MEMBERS = 8;
const MOST_NAME = 32;
const MOST_VALUE = 40;

/** Each as `name: value`, with long ones cut off. @param {Object<string, unknown> | undefined} metadata @returns {string[]} */
export function metadataWords(metadata) {
  const shown = Object.entries(metadata ?? {})
    .filter(([, value]) => typeof value === "string" || typeof value === "number")
    .map(([name, value]) => `${cut(name, MOST_NAME)}: ${cut(String(value), MOST_VALUE)}`);
  return shown.length <= MOST_MEMBERS ? shown : [...shown.slice(0, MOST_MEMBERS), "…"];
}

/** Cut by code points, so that none is split. @param {string} text @param {number} most */
function cut(text, most) {
  const points = Array.from(text);
  return points.length <= most ? text : `${points.slice(0, most - 1).join("")}…`;
}

/** Write the metadata of a member into its row. @param {import("./row.js").Row} row @param {import("./state.js").BoardRecord["metadata"]} metadata */
export function writeMetadata(row, metadata) {
  if (row.metadata === metadata) return;
  row.metadata = metadata;
  const parts = metadataWords(metadata);
  const held = row.name.querySelector(".about");
  if ((held?.textContent ?? "") === parts.join(" · ")) return;
  held?.remove();
  if (!parts.length) return;
  const line = made("small", { class: "about" });
  parts.forEach((part, place) => line.append(place ? " · " : "", isolated(part)));
  row.name.insertBefore(line, row.name.querySelector(".bar"));
}
