// @ts-check
import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { startProgramme } from "../../static/programme.js";

const MINUTE = 60_000;

test("a wall keeps the screen on, also after it was hidden, and its picture does not stand still", () => {
  let [locks, hidden] = [0, false];
  /** @type {(() => void)[]} */
  const listeners = [];
  const style = { transform: "" };
  const document = {
    documentElement: { dataset: { surface: "wall" } }, body: { style }, getElementById: () => null,
    addEventListener: (/** @type {string} */ _, /** @type {() => void} */ work) => listeners.push(work),
    get hidden() { return hidden; },
  }; // prettier-ignore
  const wakeLock = { request: () => ((locks += 1), Promise.reject(new Error("the battery is low"))) };
  Object.defineProperty(globalThis, "document", { value: document, configurable: true });
  Object.defineProperty(globalThis, "navigator", { value: { wakeLock }, configurable: true });
  mock.timers.enable({ apis: ["setInterval"] });
  startProgramme([]);
  assert.equal(locks, 1);
  for (hidden of [true, false]) for (const work of listeners) work();
  assert.equal(locks, 2);
  const places = Array.from({ length: 7 }, () => (mock.timers.tick(MINUTE), style.transform));
  assert.equal(new Set(places).size, 7);
  mock.timers.reset();
});
