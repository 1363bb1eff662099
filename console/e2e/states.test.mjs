// axe-core finds nothing in any state, in light and in dark.

import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, browserTest, open, serve, TIMEOUT, withBrowser } from "./harness.mjs";
import { prepare, STATES } from "./states.mjs";

withBrowser();

test("no state of the console keeps anybody out, in light and in dark", {
  ...browserTest,
  timeout: TIMEOUT * 10,
}, async (t) => {
  const server = await serve(t, { rate: 200 });
  await prepare(server);
  assert.ok(STATES.length >= 20);
  for (const { name, hash, ready, act } of STATES) {
    await t.test(name, async (t) => {
      const page = await open(t, server, { hash, forgives: /status of 404/ });
      await ready(page).waitFor();
      await act?.(page);
      await accessible(page);
      await page.emulateMedia({ colorScheme: "dark" });
      await accessible(page);
    });
  }
});
