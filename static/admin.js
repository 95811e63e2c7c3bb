// Keeps the live parts of a page for administrators up to date: it loads the page again and replaces them. While
// somebody fills in a form that has a preview, it updates the preview. The keys j and k move between rows, and h and u
// press the buttons of a row.

const EVERY = 5000; // milliseconds between two updates of the live parts
const REST = 400; // milliseconds from the last input in a form to the update of its preview

/** @param {string} parts @param {RequestInit} how */
async function update(parts, how) {
  const answer = await fetch(location.pathname + location.search, { cache: "no-store", ...how }).catch(() => null);
  if (!answer?.headers.get("content-type")?.startsWith("text/html")) return; // the server may be away for a moment
  const fresh = new DOMParser().parseFromString(await answer.text().catch(() => ""), "text/html");
  for (const part of document.querySelectorAll(parts)) {
    const found = fresh.getElementById(part.id);
    if (found === null || part.contains(document.activeElement) || part.innerHTML === found.innerHTML) continue;
    part.replaceChildren(...found.childNodes);
  }
}

if (document.querySelector("[data-live]") !== null) {
  setInterval(() => {
    if (!document.hidden) void update("[data-live]", { headers: { "X-Refresh": "1" } });
  }, EVERY);
}

for (const form of /** @type {NodeListOf<HTMLFormElement>} */ (document.querySelectorAll("form[data-preview]"))) {
  let timer = 0;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const answers = new URLSearchParams();
      for (const [name, value] of new FormData(form)) answers.append(name, String(value));
      answers.set("act", "preview");
      void update(String(form.dataset.preview), { method: "POST", body: answers });
    }, REST);
  });
}

document.addEventListener("keydown", (event) => {
  const at = document.activeElement;
  if (event.ctrlKey || event.metaKey || event.altKey || at === null || at.matches("input, select, textarea")) return;
  const rows = [...document.querySelectorAll("[data-row]")];
  const here = rows.findIndex((row) => row.contains(at));
  /** @type {Element | null | undefined} */
  let found;
  if (event.key === "j") found = rows[here + 1]?.querySelector("a, button");
  else if (event.key === "k") found = rows[here === -1 ? rows.length - 1 : here - 1]?.querySelector("a, button");
  else if (event.key === "h" || event.key === "u") {
    found = (rows[here] ?? (event.key === "u" ? document : null))?.querySelector(`[data-key=${event.key}]`);
  }
  if (!(found instanceof HTMLElement)) return;
  if (event.key === "j" || event.key === "k") found.focus();
  else found.click();
});
