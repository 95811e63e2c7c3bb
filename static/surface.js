// @ts-check
/** Sets the scale of a board that is embedded in another page or in a video, and reports its height to that page. */
const root = document.documentElement;

root.style.fontSize = `${Number(root.dataset.scale ?? 1) * 100}%`;
if (parent !== window) {
  const sendHeight = () => parent.postMessage({ type: "live-board:height", height: Math.ceil(document.body.offsetHeight) }, "*");
  new ResizeObserver(sendHeight).observe(document.body);
}
