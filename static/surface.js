// @ts-check
/** What a board needs inside of something else: its scale over a video, and its height for the page around it. */
const root = document.documentElement;

root.style.fontSize = `${Number(root.dataset.scale ?? 1) * 100}%`;
if (parent !== window) {
  const tell = () => parent.postMessage({ type: "live-board:height", height: Math.ceil(document.body.offsetHeight) }, "*");
  new ResizeObserver(tell).observe(document.body);
}
