// @ts-check
/** Functions that the scripts of several pages share. */

/**
 * The address of the page of a record; null for members that a browser would treat as a part of the path.
 *
 * @param {string} records the address of the pages of all records
 * @param {string} key
 */
export function recordAddress(records, key) {
  const [path, query] = records.split("?");
  return key === "." || key === ".." ? null : path + encodeURIComponent(key) + (query ? `?${query}` : "");
}

/**
 * @param {Element | null} element
 * @param {string} text
 */
export function write(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}
