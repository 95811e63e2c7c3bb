// @ts-check
/** What a board needs inside of another page or a video: its scale, and the report of its height. */
const root = document.documentElement;

root.style.fontSize = `${Number(root.dataset.scale ?? 1) * 100}%`;
if (parent !== window) {
  const sendHeight = () => parent.postMessage({ type: "live-board:height", height: Math.ceil(document.body.offsetHeight) }, "*");
  new ResizeObserver(sendHeight).observe(document.body);
}
