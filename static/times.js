// @ts-check
/** Shows times in the viewer's zone. */
export function showLocalTimes() {
  const format = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "long", timeStyle: "short" });
  for (const time of /** @type {NodeListOf<HTMLTimeElement>} */ (document.querySelectorAll("time[datetime]"))) {
    time.title = time.textContent;
    time.textContent = format.format(new Date(time.dateTime));
  }
  const printed = document.querySelector("#printed time");
  if (printed) addEventListener("beforeprint", () => (printed.textContent = format.format(Date.now())));
}
