// Keeps the live parts of a page for administrators up to date: it loads the page again and replaces them.

const EVERY = 5000; // ms

async function refresh() {
  if (document.hidden) return;
  const answer = await fetch(location.href, { headers: { "X-Refresh": "1" }, cache: "no-store" });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const found = fresh.getElementById(part.id);
    if (found === null || part.contains(document.activeElement) || part.innerHTML === found.innerHTML) continue;
    part.replaceChildren(...found.childNodes);
    part.className = found.className;
  }
}

if (document.querySelector("[data-live]") !== null) {
  setInterval(() => {
    refresh().catch(() => {}); // the server may be away for a moment
  }, EVERY);
}
