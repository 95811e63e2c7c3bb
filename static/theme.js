// @ts-check
/** The theme: light, dark, or that of the system. The address determines it, or else the last choice. */
const KEY = "live-board theme";

/** @param {HTMLSelectElement} select */
export function startTheme(select) {
  select.value = document.documentElement.dataset.theme ?? "auto";
  select.addEventListener("change", () => setTheme(select.value));
}

/** @param {string} theme */
function setTheme(theme) {
  show(theme);
  const url = new URL(location.href);
  if (theme === "auto") url.searchParams.delete("theme");
  else url.searchParams.set("theme", theme);
  history.replaceState(history.state, "", url);
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // the browser stores nothing: the address keeps the choice
  }
}

/** @param {string} theme */
function show(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

show(new URLSearchParams(location.search).get("theme") ?? remembered() ?? "auto");
