// axe-core finds nothing in any state, in light and in dark.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { accessible, browserTest, open, program, serve, TIMEOUT, withBrowser } from "./harness.mjs";
import { prepare, STATES } from "./states.mjs";

withBrowser();

/** In light and in dark. */
async function accessibleInBoth(page) {
  await accessible(page);
  await page.emulateMedia({ colorScheme: "dark" });
  await accessible(page);
}

test("signing in keeps nobody out", browserTest, async (t) => {
  const settings = execFileSync(program, ["token", "new"], { encoding: "utf8" }).replace(/# tw_\S+/, "");
  const server = await serve(t, { settings });
  const page = await open(t, server, { forgives: /status of 401|WebSocket/ });
  await page.getByLabel("Token", { exact: true }).waitFor();
  await accessibleInBoth(page);
  await page.getByLabel("Token", { exact: true }).fill("tw_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("does not accept this token").waitFor();
  await accessibleInBoth(page);
});

test("a server that is away keeps nobody out", browserTest, async (t) => {
  const server = await serve(t);
  await server.create("s");
  const forgives = /ERR_|WebSocket|status of 502/;
  const list = await open(t, server, { forgives });
  await list.getByRole("navigation", { name: "All conversations" }).getByRole("listitem").waitFor();
  const conversation = await open(t, server, { hash: "#/s", forgives });
  await conversation.getByRole("status", { name: "Connection" }).getByText("Connected").waitFor();
  await server.end();
  for (const page of [list, conversation]) {
    await page.getByRole("button", { name: "Retry now" }).waitFor();
    await accessibleInBoth(page);
  }
});

test("with more contrast, and with the colours of the system, a call is decided", browserTest, async (t) => {
  const server = await serve(t);
  for (const [media, visible] of [
    [
      { contrast: "more" },
      (button) => getComputedStyle(button).borderTopColor === getComputedStyle(document.body).color,
    ],
    [{ forcedColors: "active" }, (button) => Number.parseFloat(getComputedStyle(button).borderTopWidth) >= 1],
  ]) {
    const id = Object.keys(media)[0];
    await server.create(id);
    await server.say(id, "approve");
    await server.when(id, "waiting");
    const page = await open(t, server, { hash: `#/${id}?pane=trace` });
    await page.emulateMedia(media);
    const card = page.getByRole("main").getByRole("group", { name: "Tool execute_trade" });
    const edit = card.getByRole("button", { name: "Edit" });
    await edit.waitFor();
    assert.ok(await edit.evaluate(visible), `the border of a button is not seen: ${id}`);
    await page.getByRole("treegrid", { name: "Trace" }).getByRole("row").first().waitFor();
    await accessible(page);
    await card.getByRole("button", { name: "Allow once" }).click();
    await card.locator("header").getByText("Done", { exact: true }).waitFor();
  }
});

test("no state of the console keeps anybody out, in light and in dark", {
  ...browserTest,
  timeout: TIMEOUT * 10,
}, async (t) => {
  const server = await serve(t, { rate: 200 });
  await prepare(server);
  assert.ok(STATES.length >= 20);
  for (const { name, hash, ready, act, shown } of STATES) {
    await t.test(name, async (t) => {
      const page = await open(t, server, { hash, forgives: /status of 404/ });
      await ready(page).waitFor();
      assert.equal(act === undefined, shown === undefined, "what is done has a result to wait for");
      await act?.(page);
      await shown?.(page).first().waitFor();
      await accessible(page);
      await page.emulateMedia({ colorScheme: "dark" });
      await accessible(page);
    });
  }
});
