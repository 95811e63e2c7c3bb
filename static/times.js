// @ts-check
/** Speaks the language of the page, and tells its times in the viewer's zone. */
import { setLanguage } from "./client/language.js";

export async function speakAsPage() {
  const { lang } = document.documentElement;
  if (lang !== "en") setLanguage(lang, (await import(`./client/words/${lang}.js`)).default);
  const format = new Intl.DateTimeFormat(lang, { dateStyle: "long", timeStyle: "short" });
  for (const time of /** @type {NodeListOf<HTMLTimeElement>} */ (document.querySelectorAll("time[datetime]"))) {
    time.title = time.textContent;
    time.textContent = format.format(new Date(time.dateTime));
  }
  const printed = document.querySelector("#printed time");
  if (printed) addEventListener("beforeprint", () => (printed.textContent = format.format(Date.now())));
}
