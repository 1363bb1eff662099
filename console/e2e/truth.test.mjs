// What the console says is so: costs, totals, times, the past, and what happened to a message.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { accessible, browserTest, open, program, serve, until, withBrowser } from "./harness.mjs";

withBrowser();

const main = (page) => page.getByRole("main");
const composer = (page) => page.getByRole("textbox", { name: /^Message / });
const list = (page) => page.getByRole("navigation", { name: "All conversations" });
const facts = (page) => main(page).getByRole("group", { name: "About this conversation" });

/** Publishes events as an agent elsewhere does. */
async function publish(server, id, events) {
  await server.ask("POST", "/v1/sessions", { id, agent: "external", title: id });
  await server.ask(
    "POST",
    `/v1/sessions/${id}/events`,
    events.map((event, at) => ({ id: `${id}-${at}`, ...event })),
    { "turnwire-producer": "tests.1" },
  );
}

test("costs are those of the log, in the currency of the settings, and everywhere the same", browserTest, async (t) => {
  const prices = (input) =>
    `currency = "EUR"\n[agents.demo]\nmodel = "demo"\nprice_per_million = { input = ${input}, output = 20000 }\n`;
  const server = await serve(t, { store: "sqlite:turnwire.db", settings: prices(10000) });
  await server.create("costly");
  await server.say("costly", "team");
  const { cost, usage } = await server.idle("costly");
  assert.ok(cost > 0);
  // Other prices from now on change nothing.
  writeFileSync(join(server.folder, "turnwire.toml"), prices(99999));
  await server.restart();
  const shown = new Intl.NumberFormat("en", { style: "currency", currency: "EUR", maximumFractionDigits: 5 }).format(
    cost,
  );
  const tokens = `${(usage.input_tokens + usage.output_tokens).toLocaleString("en")} tokens`;
  const page = await open(t, server, { hash: "#/costly?pane=usage" });
  await facts(page).getByText(shown).waitFor();
  await facts(page).getByText(tokens).waitFor();
  await list(page).getByText(shown).waitFor();
  // Sub-agents are included, as in the session.
  const reply = page.locator('article[data-role="assistant"][data-nested="false"] > header');
  await reply.getByText(shown).waitFor();
  await reply.getByText(tokens).waitFor();
  await page.getByRole("tabpanel").locator("dl").getByText(shown).waitFor();
  await page.getByRole("tab", { name: "Trace" }).click();
  const trace = page.getByRole("treegrid", { name: "Trace" });
  await page.getByRole("button", { name: "Wide" }).click();
  await trace.getByRole("row").first().getByText(shown).waitFor();
  await trace
    .getByRole("row")
    .filter({ has: page.getByText("researcher", { exact: true }) })
    .getByText(/^€/)
    .waitFor();
});

test("a fork says where it comes from, and does not count the time until it was made", browserTest, async (t) => {
  const server = await serve(t, { rate: 100 });
  const long = new Date(Date.now() - 86_400_000).toISOString();
  await publish(server, "origin", [
    {
      type: "MESSAGE",
      created_at: long,
      message: {
        id: "m",
        role: "user",
        name: "user",
        content: [{ type: "text", id: "t", text: "hello" }],
        created_at: long,
      },
    },
    { type: "REPLY_START", reply_id: "r", created_at: long, name: "friday" },
    { type: "TEXT_BLOCK_START", reply_id: "r", block_id: "b", created_at: long },
    { type: "TEXT_BLOCK_DELTA", reply_id: "r", block_id: "b", created_at: long, delta: "half a" },
  ]);
  const fork = await server.ask("POST", "/v1/sessions/origin/fork?at=4", { id: "copy", title: "copy" });
  const page = await open(t, server, { hash: `#/${fork.id}?pane=timeline` });
  const from = facts(page).getByRole("link", { name: "origin at event 4" });
  await from.waitFor();
  await main(page).getByText("cut off by the fork").waitFor();
  assert.equal(
    await main(page)
      .getByText(/24 h|1 d/)
      .count(),
    0,
    "the day before the fork counts",
  );
  const end = page.getByRole("treegrid", { name: "Events" }).getByRole("row").filter({ hasText: "REPLY_END" });
  assert.match(await end.innerText(), /\+\d{1,3} ms/);
  await accessible(page);
  await from.click();
  await page.waitForURL((url) => url.hash.startsWith("#/origin@4"));
});

test("what is typed while a message is sent stays, and a failed message can be sent again", browserTest, async (t) => {
  const server = await serve(t);
  await server.create("s");
  const page = await open(t, server, { hash: "#/s", forgives: /ERR_FAILED|status of 507/ });
  await composer(page).waitFor();
  let isHeld = true;
  let release;
  const held = new Promise((resolve) => (release = resolve));
  await page.route(/\/messages\?queue=true$/, async (route) => {
    if (!isHeld) return route.continue();
    await held;
    await route.fulfill({ status: 507, json: { error: { type: "full", message: "the disk is full" } } });
  });
  await composer(page).fill("first message");
  await composer(page).press("Enter");
  // At once, and as being sent.
  await main(page).getByText("Sending", { exact: true }).waitFor();
  await main(page).getByText("first message").waitFor();
  await composer(page).pressSequentially("and the next");
  release();
  await main(page).getByText("not sent").waitFor();
  await main(page).getByText("the disk is full").waitFor();
  assert.equal(await composer(page).inputValue(), "and the next");
  await accessible(page);
  // It survives a reload.
  await page.reload();
  await main(page).getByText("not sent").waitFor();
  assert.equal(await composer(page).inputValue(), "and the next");
  isHeld = false;
  await main(page).getByRole("button", { name: "Send again" }).click();
  await main(page).getByText("not sent").waitFor({ state: "detached" });
  await server.idle("s");
  await until(async () => (await server.messages("s")).length === 2, "it is not sent");
  await until(
    async () => (await page.locator('article[data-role="user"]').count()) === 1,
    "it is not there exactly once",
  );
});

test("what is typed while a conversation is created is its draft", browserTest, async (t) => {
  const server = await serve(t);
  const page = await open(t, server);
  let release;
  const held = new Promise((resolve) => (release = resolve));
  await page.route(/\/v1\/sessions$/, async (route) => {
    if (route.request().method() === "POST") await held;
    await route.continue();
  });
  await composer(page).fill("hello");
  await composer(page).press("Enter");
  await composer(page).pressSequentially("more to say");
  release();
  await main(page).getByText("hello", { exact: true }).first().waitFor();
  await until(async () => (await composer(page).inputValue()) === "more to say", "it is lost");
});

test("the past says so everywhere, and an event that is not there is an error", browserTest, async (t) => {
  const server = await serve(t);
  await server.create("s");
  await server.say("s", "weather");
  await server.idle("s");
  const { last_seq: last } = await server.session("s");
  const page = await open(t, server, { hash: "#/s@5" });
  await main(page).getByText("You are viewing the past").waitFor();
  await main(page).getByText("past, event 5").waitFor();
  await until(async () => (await page.title()).includes("(event 5)"), "the title does not say so");
  assert.equal(await composer(page).count(), 0);
  await accessible(page);
  await page.goto(`${page.url().split("#")[0]}#/s@99999`);
  await main(page)
    .getByRole("alert")
    .getByText(`This conversation has ${last} events. There is no event 99999.`)
    .waitFor();
  await accessible(page);
  await main(page).getByRole("button", { name: "Show the latest" }).click();
  await composer(page).waitFor();
});

test("failed and stopped conversations are marked in the list", browserTest, async (t) => {
  const server = await serve(t, { rate: 40 });
  for (const [id, text] of [
    ["bad", "fail"],
    ["halted", "long 100000"],
    ["fine", "hello"],
  ]) {
    await server.ask("POST", "/v1/sessions", { id, title: id });
    await server.say(id, text);
  }
  await server.ask("POST", "/v1/sessions/halted/events", { type: "USER_INTERRUPT", id: "stop", reply_id: "" });
  for (const id of ["bad", "halted", "fine"]) await server.idle(id);
  const page = await open(t, server);
  const row = (name) => list(page).getByRole("listitem").filter({ hasText: name });
  await row("bad").getByText("failed").waitFor();
  await row("halted").getByText("stopped").waitFor();
  await row("fine").getByText("idle").waitFor();
  await page.getByRole("combobox", { name: "Status" }).selectOption("failed");
  await until(async () => (await list(page).getByRole("listitem").count()) === 1, "it is not filtered");
});

test("the welcome prompts do what they say", browserTest, async (t) => {
  const server = await serve(t);
  const page = await open(t, server);
  const tool = (name) => main(page).getByRole("group", { name: `Tool ${name}` });
  const asks = () => tool("execute_trade").getByRole("button", { name: "Allow once" }).waitFor();
  const runs = () => tool("get_weather").getByText("Done", { exact: true }).waitFor();
  const prompts = [
    ["A tool that streams its result", runs],
    ["A tool call that needs your approval", asks],
    ["Two tools at once; one needs your approval", () => Promise.all([runs(), asks()])],
    [
      "Text and an image",
      async () => {
        const image = main(page).locator('article[data-role="assistant"]').getByRole("img").first();
        await until(() => image.evaluate((it) => it.complete && it.naturalWidth > 0), "the image is not shown");
        await main(page).locator('article[data-role="assistant"] .md').first().waitFor();
      },
    ],
    [
      "A sub-agent",
      async () => {
        const agents = tool("ask_researcher").getByRole("group", { name: "Sub-agents" });
        await agents.getByRole("article", { name: /^researcher/ }).waitFor();
        await tool("ask_researcher").getByText("Done", { exact: true }).waitFor();
      },
    ],
  ];
  await main(page).locator(".prompts button").first().waitFor();
  assert.equal(await main(page).locator(".prompts button").count(), prompts.length);
  for (const [shows, isThere] of prompts) {
    await main(page).locator(".prompts button").filter({ hasText: shows }).click();
    await isThere();
    await page.getByRole("link", { name: "Turnwire", exact: true }).click();
    await main(page).locator(".prompts button").first().waitFor();
  }
});

test("the snippet for a real model is complete, and goes away once there is one", browserTest, async (t) => {
  const server = await serve(t);
  const page = await open(t, server);
  const snippet = await main(page).getByLabel("Settings", { exact: true }).innerText();
  const folder = mkdtempSync(join(tmpdir(), "turnwire-snippet-"));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, "turnwire.toml"), snippet);
  const env = { ...process.env, ANTHROPIC_API_KEY: "x" };
  execFileSync(program, ["config", "check", join(folder, "turnwire.toml")], { env, cwd: folder });
  const real = await serve(t, { settings: snippet.replace("ANTHROPIC_API_KEY", "PATH") });
  const other = await open(t, real);
  await other.getByRole("combobox", { name: "Agent" }).waitFor();
  assert.equal(await other.getByText("Connect a real model").count(), 0);
});
