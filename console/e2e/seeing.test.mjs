// Seeing what happened: the trace, playing, comparing, sharing, and all sessions at a glance.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { accessible, browserTest, open, picture, serve, until, withBrowser } from "./harness.mjs";

withBrowser();

const main = (page) => page.getByRole("main");
const trace = (page) => page.getByRole("treegrid", { name: "Trace" });
const step = (page, name) =>
  trace(page)
    .getByRole("row")
    .filter({ has: page.getByText(name, { exact: true }) });

async function team(t, options) {
  const server = await serve(t, options);
  await server.create("s");
  await server.say("s", "team");
  await server.idle("s");
  return server;
}

test("the trace is a tree on one axis, and leads to events and messages and back", browserTest, async (t) => {
  const server = await team(t, { rate: 400 });
  const page = await open(t, server, { hash: "#/s?pane=trace" });
  await step(page, "researcher").waitFor();
  const levels = await trace(page)
    .getByRole("row")
    .evaluateAll((rows) => rows.map((row) => [row.dataset.doing, Number(row.getAttribute("aria-level"))]));
  const at = levels.findIndex(([doing]) => doing === "agent");
  assert.equal(levels[0][0], "reply");
  assert.ok(levels[at][1] > levels[at - 1][1], "the sub-agent is below its call");
  assert.deepEqual(levels[at + 1], ["model", levels[at][1] + 1]);
  // All on the axis of their reply: what is below does not stick out of it.
  await accessible(page);
  await step(page, "ask_researcher").click();
  const details = page.getByRole("region", { name: "Selected step" });
  await details.getByText("done").waitFor();
  await until(
    () =>
      page.evaluate(
        () => document.activeElement?.dataset.call !== undefined || document.querySelector("[data-marked]"),
      ),
    "its card is not shown",
  );
  await details.getByRole("button", { name: "Show its events" }).click();
  const events = page.getByRole("treegrid", { name: "Events" });
  await events.locator('[data-step="true"]').first().waitFor();
  // Events of a sub-agent are labelled.
  await events.locator('[data-agent="true"] .of-agent', { hasText: "researcher" }).first().waitFor();
  await accessible(page);
  // The other way round.
  const card = main(page).getByRole("group", { name: "Tool ask_researcher" });
  await card.getByRole("button", { name: "Show ask_researcher in the trace" }).click();
  await until(
    async () => (await trace(page).locator('[aria-selected="true"]').innerText()).includes("ask_researcher"),
    "its row is not selected",
  );
  await picture(page, "trace");
});

test("a model call says when its first token came", browserTest, async (t) => {
  const server = await serve(t, { rate: 100 });
  await server.create("s");
  await server.say("s", "hello");
  await server.idle("s");
  const page = await open(t, server, { hash: "#/s?pane=trace" });
  await trace(page).locator('[data-doing="model"]').first().click();
  const details = page.getByRole("region", { name: "Selected step" });
  await details.getByText("first token after").waitFor();
  await details.getByText("Tokens", { exact: true }).waitFor();
});

test("a session plays, and ends in the present", browserTest, async (t) => {
  const server = await serve(t, { rate: 30 });
  await server.create("s");
  await server.say("s", "weather");
  await server.idle("s");
  const page = await open(t, server, { hash: "#/s?pane=timeline" });
  await page.getByText(/^\d+ events$/).waitFor();
  await page.getByRole("combobox", { name: "Speed" }).selectOption("Real time");
  await page.getByRole("button", { name: "Play the session" }).click();
  await main(page).getByText("You are viewing the past").waitFor();
  const places = new Set();
  await until(async () => {
    const past = main(page).getByText("You are viewing the past");
    if (!(await past.count())) return true;
    places.add(await past.innerText({ timeout: 500 }).catch(() => ""));
    return false;
  }, "it does not end");
  assert.ok(places.size > 2, "it does not move");
});

test("arrow keys move through the trace, which keeps the focus", browserTest, async (t) => {
  const server = await team(t);
  const page = await open(t, server, { hash: "#/s?pane=trace" });
  await trace(page).getByRole("row").nth(3).waitFor();
  await trace(page).focus();
  const chosen = trace(page).locator('[aria-selected="true"]');
  for (const row of ["2", "3"]) {
    await page.keyboard.press("ArrowDown");
    await until(async () => (await chosen.getAttribute("aria-rowindex")) === row, `row ${row} is not selected`);
  }
  assert.ok(await trace(page).evaluate((it) => it === document.activeElement));
});

test("a step that is selected in one session is not selected in another", browserTest, async (t) => {
  const server = await team(t);
  await server.create("other");
  await server.say("other", "team");
  await server.idle("other");
  const page = await open(t, server, { hash: "#/s?pane=trace" });
  await step(page, "ask_researcher").click();
  await page.getByRole("region", { name: "Selected step" }).waitFor();
  await page.evaluate(() => void (location.hash = "#/other?pane=timeline"));
  const events = page.getByRole("treegrid", { name: "Events" });
  await events.getByRole("row").first().waitFor();
  assert.equal(await events.locator('[data-step="true"]').count(), 0);
  await page.getByRole("tab", { name: "Trace" }).click();
  await step(page, "ask_researcher").waitFor();
  assert.equal(await trace(page).locator('[aria-selected="true"]').count(), 0);
});

test("Escape, the slider and Back to live stop the player", browserTest, async (t) => {
  const server = await serve(t, { rate: 10 });
  await server.create("s");
  await server.say("s", "weather");
  await server.idle("s");
  const page = await open(t, server, { hash: "#/s?pane=timeline" });
  await page.getByText(/^\d+ events$/).waitFor();
  const past = main(page).getByText("You are viewing the past");
  const stops = {
    Escape: () => page.keyboard.press("Escape"),
    "Back to live": () => page.getByRole("button", { name: "Back to live" }).first().click(),
    slider: () => page.getByRole("slider", { name: "Show the conversation at an event" }).fill("2"),
  };
  for (const [name, stop] of Object.entries(stops)) {
    await page.getByRole("button", { name: "Play the session" }).click();
    await past.waitFor();
    await stop();
    await page.getByRole("button", { name: "Play the session" }).waitFor();
    const place = new URL(page.url()).hash;
    await page.waitForTimeout(700);
    if (name === "slider") await main(page).getByText("conversation at event 2").waitFor();
    else assert.equal(await past.count(), 0, `${name} does not stop it`);
    assert.ok(place.startsWith("#/s"));
  }
});

test("long conversations are compared from where they part, and any two can be", browserTest, async (t) => {
  const server = await serve(t);
  const publish = (id, from, to, producer) =>
    server.ask(
      "POST",
      `/v1/sessions/${id}/events`,
      Array.from({ length: to - from }, (_, n) => ({
        type: "MESSAGE",
        id: `${id}-${from + n}`,
        message: {
          id: `${id}-${from + n}`,
          name: "user",
          role: "user",
          content: [{ type: "text", id: "t", text: `${id} ${from + n}` }],
        },
      })),
      { "turnwire-producer": `${producer}.1` },
    );
  await server.ask("POST", "/v1/sessions", { id: "origin", agent: "external", title: "origin" });
  await publish("origin", 0, 300, "tests");
  for (const id of ["left", "right"]) await server.ask("POST", "/v1/sessions/origin/fork", { id, title: id });
  await publish("left", 0, 250, "tests");
  await publish("right", 0, 3, "tests");
  const page = await open(t, server);
  await page.getByRole("button", { name: "Select" }).click();
  const compare = page.getByRole("button", { name: "Compare" });
  await page.getByRole("checkbox", { name: "Select left" }).check();
  assert.ok(await compare.isDisabled());
  await page.getByRole("checkbox", { name: "Select right" }).check();
  await compare.click();
  await page.getByText(/same in both/).waitFor();
  const cells = page.getByRole("table", { name: "Two conversations" }).getByRole("cell");
  assert.deepEqual(await cells.first().innerText(), "user\n\nleft 0");
  assert.deepEqual(await cells.nth(1).innerText(), "user\n\nright 0");
  await accessible(page);
});

test("the past says why it cannot be shown", browserTest, async (t) => {
  const server = await team(t);
  const page = await open(t, server, { forgives: /status of 403|status of 410/ });
  await page.route(/\/events\?after=/, (route) =>
    route.fulfill({ status: 403, json: { error: { type: "forbidden", message: "the log is not for you" } } }),
  );
  await page.goto(`${page.url().split("#")[0]}#/s@3`);
  await main(page).getByText("the log is not for you").waitFor();
  await page.unroute(/\/events\?after=/);
  await main(page).getByRole("button", { name: "Try again" }).click();
  await main(page).getByRole("article").first().waitFor();
});

test("a fork is compared with its origin", browserTest, async (t) => {
  const server = await serve(t);
  await server.create("origin");
  await server.say("origin", "hello");
  await server.idle("origin");
  await server.ask("POST", "/v1/sessions/origin/fork", { id: "copy", title: "copy" });
  await server.say("origin", "red apples");
  await server.say("copy", "green apples");
  for (const id of ["origin", "copy"]) await server.idle(id);
  const page = await open(t, server, { hash: "#/copy" });
  await main(page).getByText("green apples").first().waitFor();
  await page.getByRole("button", { name: "Conversation menu" }).click();
  await page.getByRole("menuitem", { name: "Compare with its origin" }).click();
  const table = page.getByRole("table", { name: "Two conversations" });
  await page.getByText("2 messages are the same in both.").waitFor();
  await table.locator("del", { hasText: "red" }).first().waitFor();
  await table.locator("ins", { hasText: "green" }).first().waitFor();
  await accessible(page);
});

test("a conversation is exported in three forms, and its log comes back as a conversation", browserTest, async (t) => {
  const server = await serve(t);
  await server.ask("POST", "/v1/sessions", { id: "s", title: "Trip to <b>Rome</b>" });
  await server.say("s", "weather <script>alert(1)</script>");
  await server.idle("s");
  const page = await open(t, server, { hash: "#/s" });
  await main(page).getByText("sunny").first().waitFor();
  const exported = async (name) => {
    await page.getByRole("button", { name: "Conversation menu" }).click();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("menuitem", { name: `Export as ${name}` }).click(),
    ]);
    return { name: download.suggestedFilename(), text: readFileSync(await download.path(), "utf8") };
  };
  const markdown = await exported("Markdown");
  assert.match(markdown.name, /^Trip-to-b-Rome-b\.md$/);
  assert.match(markdown.text, /## You, .*\n\nweather <script>/);
  const html = await exported("HTML");
  assert.ok(!html.text.includes("<script>") && html.text.includes("&lt;script&gt;"));
  assert.match(html.text, /default-src 'none'/);
  const events = await exported("events (NDJSON)");
  assert.equal(events.text.trim().split("\n").length, (await server.log("s")).length);

  const file = join(server.folder, "trip.ndjson");
  writeFileSync(file, events.text);
  await page.locator('input[type="file"][accept*="ndjson"]').setInputFiles(file);
  await page.getByRole("heading", { name: "trip" }).waitFor();
  await main(page).getByText("sunny").first().waitFor();
  writeFileSync(file, "no event\n");
  await page.locator('input[type="file"][accept*="ndjson"]').setInputFiles(file);
  await page.getByRole("dialog").getByText("Line 1 is not valid JSON.").waitFor();
  await accessible(page);
});

test("a link leads to a message, and an event", browserTest, async (t) => {
  const server = await team(t);
  const page = await open(t, server, { hash: "#/s" });
  const user = page.locator('article[data-role="user"]');
  await user.getByRole("button", { name: "Copy link to this message" }).click();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  const id = await user.getAttribute("data-message");
  assert.ok(link.endsWith(`#/s?message=${id}`), link);
  await page.goto("about:blank");
  await page.goto(link);
  await page.locator(`article[data-message="${id}"][data-marked]`).waitFor();
  await page.goto(`${link.split("#")[0]}#/s@7?pane=timeline`);
  await main(page).getByText("conversation at event 7").waitFor();
  await page.getByRole("button", { name: "Conversation menu" }).click();
  await page.getByRole("menuitem", { name: "Copy link to event 7" }).click();
  assert.ok((await page.evaluate(() => navigator.clipboard.readText())).endsWith("#/s@7?pane=timeline"));
});

test("the overview says what runs, waits and failed, and what was spent by whom", browserTest, async (t) => {
  const server = await serve(t, { rate: 40 });
  for (const [id, text] of [
    ["runs", "long 100000"],
    ["asks", "approve"],
    ["broke", "fail"],
  ]) {
    await server.ask("POST", "/v1/sessions", { id, title: `it ${id}` });
    await server.say(id, text);
  }
  await server.when("asks", "waiting");
  await server.idle("broke");
  const page = await open(t, server, { hash: "#/?page=overview" });
  const section = (name) => main(page).getByRole("region", { name });
  await section(/^Running/)
    .getByRole("link", { name: "it runs" })
    .waitFor();
  await section(/^Waiting/)
    .getByText("execute_trade waits for a person")
    .waitFor();
  await section(/^Failed/)
    .getByRole("link", { name: "it broke" })
    .waitFor();
  await main(page)
    .getByRole("img", { name: /^demo: .* tokens/ })
    .waitFor();
  await accessible(page);
  await picture(page, "overview");
  await section(/^Failed/)
    .getByRole("link", { name: "it broke" })
    .click();
  await page.waitForURL((url) => url.hash === "#/broke");
});
