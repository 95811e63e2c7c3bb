// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { flightTime } from "../../static/client/motion.js";

test("a row that moves farther flies for longer, within bounds", () => {
  assert.deepEqual([0, 1, 4, 9, 25, 57, 1000].map((rows) => Math.round(flightTime(rows))), [320, 320, 400, 490, 670, 899, 900]);
});
