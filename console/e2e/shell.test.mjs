// The page before the app: what stands in index.html is what the app draws in its place.

import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, browserTest, open, picture, serve, until, withBrowser } from "./harness.mjs";
import { publishMessages } from "./publish-messages.mjs";

withBrowser();

/** What is on both, and where. */
const PARTS = [
  ".sessions",
  ".sessions .head",
  ".sessions .name",
  ".sessions .head .icon-button",
  ".search",
  ".search input",
  ".search kbd",
  ".sessions-list",
  ".foot",
  ".foot-state",
  ".conversation",
  ".conversation .head",
];
const NEW = [
  ".conversation h1",
  ".welcome h2",
  ".composer",
  ".composer-row",
  ".composer textarea",
  ".composer .button.main",
];

const places = (page, parts) =>
  page.evaluate(
    (parts) =>
      parts.map((part) => {
        const element = document.querySelector(part);
        // What is hidden takes its room all the same; what stands in a line ends where its words do.
        const { left, top, height, right } = element?.getBoundingClientRect() ?? {};
        return [part, left, top, height, /h2|foot-state|\.head \./.test(part) ? null : right];
      }),
    parts,
  );

/** Loads the page again, and the app never comes. */
async function withoutApp(page) {
  await page.route(/\/assets\/index-[^/]*\.js$/, (route) => route.abort());
  await page.reload();
  await page.locator(".app[inert]").waitFor();
}

const forgives = /ERR_FAILED|preloaded using link preload/;
const sizes = [{ width: 1400 }, { width: 1000 }, { width: 390, height: 800, mobile: true }];

for (const size of sizes) {
  test(`the page before the app is the app's, ${size.width} pixels wide`, browserTest, async (t) => {
    const server = await serve(t);
    await server.create("s");
    for (const [hash, parts] of [
      ["", [...PARTS, ...NEW]],
      ["#/s", PARTS],
      ["#/s?pane=timeline", [...PARTS, ".beside"]],
    ]) {
      const page = await open(t, server, { hash, forgives, ...size });
      await page.locator(".foot-state").getByText("local, no auth").waitFor({ state: "attached" });
      if (hash.includes("pane")) await page.getByRole("tab", { name: "Timeline" }).waitFor();
      const app = await places(page, parts);
      await withoutApp(page);
      assert.deepEqual(await places(page, parts), app, hash || "a new conversation");
      await picture(page, `shell-${size.width}${hash.replaceAll(/\W+/g, "-")}`);
    }
  });
}

test("nothing moves when the app comes, and a theme that was chosen is there before it", browserTest, async (t) => {
  const server = await serve(t);
  await server.create("s");
  const page = await open(t, server, { forgives });
  await page.getByRole("listitem").first().waitFor();
  const moved = await page.evaluate(
    () =>
      new Promise((resolve) => {
        let sum = 0;
        new PerformanceObserver((list) => list.getEntries().forEach(({ value }) => (sum += value))).observe({
          type: "layout-shift",
          buffered: true,
        });
        setTimeout(() => resolve(sum), 100);
      }),
  );
  assert.ok(moved < 0.01, `it shifts by ${moved}`);
  const brightness = () =>
    page.evaluate(() =>
      getComputedStyle(document.body)
        .backgroundColor.match(/\d+/g)
        .slice(0, 3)
        .reduce((sum, part) => sum + Number(part), 0),
    );
  await page.getByRole("button", { name: "Theme: system" }).click();
  await page.getByRole("button", { name: "Theme: light" }).click();
  await until(async () => (await brightness()) < 150, "it does not become dark");
  await withoutApp(page);
  assert.ok((await brightness()) < 150, "it is light until the app comes");
});

test("a part of the page that cannot be loaded says so", browserTest, async (t) => {
  const server = await serve(t);
  await server.create("s");
  const page = await open(t, server, { forgives });
  await page.getByRole("listitem").first().waitFor();
  await page.route(/\/assets\/open-[^/]*\.js$/, (route) => route.abort());
  await page.goto(`${new URL(page.url()).origin}/#/s`);
  await page.reload();
  await page.getByRole("alert").getByText("could not be loaded").waitFor();
  await page.unrouteAll();
  await page.getByRole("button", { name: "Reload the page" }).click();
  await page.getByText("No messages yet.").waitFor();
});

test(
  "what cannot be drawn says so in words, with its text, and the technical details folded away",
  browserTest,
  async (t) => {
    const server = await serve(t);
    // Deeper than a parser has a stack for.
    const text = ">".repeat(20_000);
    await publishMessages(server, "deep", [
      { role: "assistant", text },
      { role: "assistant", text: "the next message" },
    ]);
    const page = await open(t, server, { hash: "#/deep", forgives: /Maximum call stack/ });
    const problem = page.getByRole("alert").filter({ hasText: "This part of the message could not be shown." });
    await problem.getByText("Reload the page. If it happens again, report it").waitFor();
    assert.doesNotMatch(await problem.innerText(), /Error|stack/);
    await page.getByText("the next message").waitFor();
    assert.equal(await page.locator('article[data-message="m0"] .raw').innerText(), text);
    await problem.getByText("Technical details", { exact: true }).click();
    await problem.getByLabel("Technical details", { exact: true }).getByText("Maximum call stack").waitFor();
    await accessible(page);
    await problem.getByRole("button", { name: "Copy technical details" }).click();
    await problem.getByText("Copied").waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(copied, /RangeError: Maximum call stack[\s\S]*Mozilla/);
    assert.equal(await problem.getByRole("button", { name: "Reload the page" }).count(), 1);
  },
);

test("where the worker of the sockets does not come, the page has its own", browserTest, async (t) => {
  const server = await serve(t, { rate: 100 });
  await server.create("s");
  const page = await open(t, server, { forgives });
  let attempts = 0;
  await page.context().route(/\/assets\/worker-[^/]*\.js$/, (route) => {
    attempts += 1;
    return route.abort();
  });
  await page.goto(`${new URL(page.url()).origin}/#/s`);
  await page.getByRole("status", { name: "Connection" }).getByText("Connected").waitFor();
  assert.ok(attempts > 0, "there was no worker to do without");
  await server.say("s", "long 50");
  await server.idle("s");
  await page.locator("article").getByText("0000050").waitFor();
});
