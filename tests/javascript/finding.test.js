// @ts-check
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { beginsWord, formOf } from "../../static/find.js";

const [forms, cases] = JSON.parse(readFileSync(new URL("finding.json", import.meta.url), "utf8"));

test("the page and the server find the same names", () => {
  for (const [text, form] of forms) assert.equal(formOf(text), form, JSON.stringify(text));
  for (const [wanted, text, isFound] of cases) {
    assert.equal(beginsWord(formOf(wanted), formOf(text)), isFound, JSON.stringify([wanted, text]));
  }
  assert.ok(cases.some((/** @type {unknown[]} */ one) => one[2]));
});
