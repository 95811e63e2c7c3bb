// Checks OpenAPI and AsyncAPI documents, whose paths are the arguments, with three tools: the parser of AsyncAPI,
// Spectral and Redocly. Prints their findings for each document, as JSON. One process checks all documents, because
// loading the tools takes most of the time.
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";
import { createConfig, lint } from "@redocly/openapi-core";
import spectralCore from "@stoplight/spectral-core";
import spectralRulesets from "@stoplight/spectral-rulesets";

const HINT = 2;  // findings of this severity, or of a larger number, are neither errors nor warnings

// All recommended rules, except those that are "off" here.
const RULES = {
  openapi: {
    spectral: {
      extends: spectralRulesets.oas,
      rules: { "operation-success-response": "off" },  // an operation that becomes a WebSocket succeeds with 101
    },
    redocly: { "operation-2xx-response": "off" },
  },
  asyncapi: {
    spectral: {
      extends: spectralRulesets.asyncapi,
      rules: {
        "asyncapi-servers": "off",  // the server does not know its public address
        "asyncapi-info-contact-properties": "off",  // whoever runs the server is the contact
        "asyncapi-latest-version": "off",
      },
    },
    redocly: { "security-defined": "off" },  // watching needs no API key
  },
};

const found = {};
for (const path of process.argv.slice(2)) {
  const text = readFileSync(path, "utf8");
  const { spectral: ruleset, redocly: rules } = RULES["asyncapi" in JSON.parse(text) ? "asyncapi" : "openapi"];
  const findings = found[path] = [];
  if (ruleset === RULES.asyncapi.spectral) {
    const { document, diagnostics } = await new Parser().parse(text);
    if (!document) findings.push("parser: there is no document");
    for (const { severity, code, path: place, message } of diagnostics) {
      if (severity < HINT) findings.push(`parser: ${code} at ${place.join(".")}: ${message}`);
    }
  }
  const spectral = new spectralCore.Spectral();
  spectral.setRuleset(ruleset);
  for (const { code, path: place, message } of await spectral.run(JSON.parse(text))) {
    findings.push(`spectral: ${code} at ${place.join(".")}: ${message}`);
  }
  const config = await createConfig({ extends: ["recommended-strict"], rules });
  for (const { ruleId, location, message } of await lint({ ref: path, config })) {
    findings.push(`redocly: ${ruleId} at ${location.map(({ pointer }) => pointer).join(" ")}: ${message}`);
  }
}
process.stdout.write(JSON.stringify(found));
