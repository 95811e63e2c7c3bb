// Keeps the live parts of a page for administrators up to date: it loads the page again and replaces them. Beside a form
// with a preview, it shows what the answers mean while they are entered.

const EVERY = 5000; // ms
const REST = 400; // ms after the last change of an answer

/** @param {string} parts @param {RequestInit} how */
async function replace(parts, how) {
  const answer = await fetch(location.pathname + location.search, { cache: "no-store", ...how });
  if (!answer.headers.get("content-type")?.startsWith("text/html")) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll(parts)) {
    const found = fresh.getElementById(part.id);
    if (found === null || part.contains(document.activeElement) || part.innerHTML === found.innerHTML) continue;
    part.replaceChildren(...found.childNodes);
  }
}

/** @param {string} parts @param {RequestInit} [how] */
function update(parts, how = {}) {
  replace(parts, how).catch(() => {}); // the server may be away for a moment
}

if (document.querySelector("[data-live]") !== null) {
  setInterval(() => {
    if (!document.hidden) update("[data-live]", { headers: { "X-Refresh": "1" } });
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
      update("[data-made]", { method: "POST", body: answers });
    }, REST);
  });
}
