// The examples of `docs/clients.md` for pages work, and each makes one session.

import assert from "node:assert/strict";
import { test } from "node:test";
import { browserTest, start, withBrowser } from "./harness.mjs";
import { checkExample, examples } from "./snippets.mjs";

withBrowser();

test("the page has examples", () => assert.ok(examples.size >= 4));

for (const [name, example] of examples) {
  // Its packages are in `../copilotkit`.
  if (name === "CopilotKit") continue;
  test(name, browserTest, async (t) => {
    const code = (url) => example.jsx.replace("http://127.0.0.1:4747", url);
    await checkExample(await start(t, `snippet-${name.replaceAll(/\W+/g, "-")}`, { code }));
  });
}
