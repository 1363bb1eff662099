// Using it: the first visit, talking, approving, stopping, leaving and coming back.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { accessible, browserTest, open, picture, program, serve, until, withBrowser } from "./harness.mjs";

withBrowser();

const composer = (page) => page.getByRole("textbox", { name: /^Message / });
const main = (page) => page.getByRole("main");
const replies = (page) => page.locator('article[data-role="assistant"]');
const session = (page) => decodeURIComponent(new URL(page.url()).hash.match(/^#\/([^@?]+)/)?.[1] ?? "");
const list = (page) => page.getByRole("navigation", { name: "All conversations" });

/** Says something, as a person does. */
async function say(page, text) {
  await composer(page).fill(text);
  await composer(page).press("Enter");
}

/** Waits until a reply stands on the page that is longer than another text; what does not end has a beginning to meet. */
async function grows(page, than = "") {
  let text;
  await until(async () => {
    const found = replies(page).first();
    text = (await found.count()) ? await found.innerText() : "";
    return text.length > than.length + 20;
  }, "it does not grow");
  return text;
}

/** Stops what runs; what stands on the page is then all that is in the log. */
async function endsWhole(page, server) {
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await replies(page).first().getByText("stopped").waitFor();
  await server.idle(session(page));
  const log = await server.log(session(page));
  const whole = log
    .filter(({ type }) => type === "TEXT_BLOCK_DELTA")
    .map(({ delta }) => delta)
    .join("")
    .replaceAll(/\s+/g, "");
  await until(
    async () => (await replies(page).first().innerText()).replaceAll(/\s+/g, "").includes(whole),
    "something is missing",
  );
  assert.equal(await replies(page).count(), 1);
  return log;
}

test("the first visit offers what the demo can do, and a prompt is answered", browserTest, async (t) => {
  const server = await serve(t);
  const page = await open(t, server);
  await page.getByRole("heading", { name: "New conversation" }).waitFor();
  const prompts = main(page).locator(".prompts button");
  await prompts.nth(4).waitFor();
  assert.equal(await prompts.count(), 5);
  await page.getByText("Connect a real model").waitFor();
  await page.getByText("No conversations yet.").waitFor();
  await accessible(page);
  await picture(page, "first-visit");
  await prompts.first().click();
  await page.getByRole("group", { name: "Tool get_weather" }).getByText("done").waitFor();
  await main(page).getByText("sunny.").last().waitFor();
  await list(page).getByRole("listitem").filter({ hasText: "weather" }).waitFor();
});

test("what is sent is answered as it streams", browserTest, async (t) => {
  const server = await serve(t, { rate: 100 });
  const page = await open(t, server);
  await say(page, "long 100000");
  await grows(page, await grows(page));
  await picture(page, "streaming");
  await accessible(page);
  await endsWhole(page, server);
});

test("what waits for a person is approved with an edit", browserTest, async (t) => {
  const server = await serve(t);
  const page = await open(t, server);
  await say(page, "approve");
  const card = main(page).getByRole("group", { name: "Tool execute_trade" });
  await card.getByText("waiting for you").waitFor();
  await accessible(page);
  await picture(page, "approval");
  await card.getByRole("button", { name: "Edit" }).click();
  const input = card.getByRole("textbox");
  await input.fill("{ not json");
  assert.ok(await card.getByRole("button", { name: "Allow with changes" }).isDisabled());
  await input.fill('{"symbol":"ACME","quantity":7}');
  await card.getByRole("button", { name: "Allow with changes" }).click();
  await card.getByText("done").waitFor();
  const id = session(page);
  await server.idle(id);
  const log = await server.log(id);
  const { confirm_results: results } = log.find(({ type }) => type === "USER_CONFIRM_RESULT");
  assert.deepEqual(
    results.map(({ confirmed, tool_call: { input } }) => [confirmed, JSON.parse(input)]),
    [[true, { symbol: "ACME", quantity: 7 }]],
  );
  const call = (await server.messages(id)).at(-1).content.find(({ type }) => type === "tool_call");
  assert.deepEqual(JSON.parse(call.input), { symbol: "ACME", quantity: 7 });
  await card.getByText("7").first().waitFor();
});

test("a reload in the middle of a reply goes on where it is", browserTest, async (t) => {
  const server = await serve(t, { rate: 100 });
  const page = await open(t, server);
  await say(page, "long 100000");
  const before = await grows(page);
  await page.reload();
  await grows(page, await grows(page, before));
  await endsWhole(page, server);
});

test("a reload in the middle of an approval still asks, and the answer counts", browserTest, async (t) => {
  const server = await serve(t, { store: "sqlite:turnwire.db" });
  const page = await open(t, server);
  await say(page, "approve");
  const card = main(page).getByRole("group", { name: "Tool execute_trade" });
  await card.getByText("waiting for you").waitFor();
  await page.reload();
  await card.getByText("waiting for you").waitFor();
  await card.getByRole("button", { name: "Allow once" }).click();
  await card.getByText("done").waitFor();
  await server.idle(session(page));
});

test("stop ends the reply, and says so", browserTest, async (t) => {
  const server = await serve(t, { rate: 40 });
  const page = await open(t, server);
  await say(page, "long 100000");
  await grows(page);
  await composer(page).blur();
  await page.keyboard.press("Escape");
  await replies(page).first().getByText("stopped").waitFor();
  await server.idle(session(page));
  assert.equal((await server.messages(session(page))).at(-1).finished_reason, "interrupted");
  await page.getByRole("button", { name: "Send" }).waitFor();
});

test("what is sent while a reply runs waits for its turn", browserTest, async (t) => {
  const server = await serve(t, { rate: 100 });
  const page = await open(t, server);
  await say(page, "long 100000");
  await grows(page);
  await composer(page).fill("hello after that");
  await page.getByRole("button", { name: "Queue" }).click();
  await main(page).getByText("hello after that").first().waitFor();
  assert.equal(await replies(page).count(), 1);
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await replies(page).nth(1).waitFor();
  await server.idle(session(page));
  const messages = await server.messages(session(page));
  assert.deepEqual(
    messages.map(({ role }) => role),
    ["user", "assistant", "user", "assistant"],
  );
});

test("a queued message that was removed does not come back", browserTest, async (t) => {
  const server = await serve(t, { rate: 100 });
  const page = await open(t, server);
  await say(page, "long 100000");
  await grows(page);
  await say(page, "not this one");
  const queue = page.getByRole("list", { name: "Queued messages" });
  await queue.getByText("not this one").waitFor();
  await queue.getByRole("button", { name: "Remove" }).click();
  await queue.waitFor({ state: "detached" });
  assert.equal(await main(page).getByText("not this one").count(), 0, "it is shown as sent");
  // A message that was sent and replaced is gone, too.
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await server.idle(session(page));
  await page.getByRole("button", { name: "Edit", exact: true }).first().click();
  await page.getByRole("form", { name: /^Edit/ }).getByRole("textbox").fill("hello");
  await page.getByRole("form", { name: /^Edit/ }).getByRole("button", { name: "Send again" }).click();
  await server.idle(session(page));
  await until(async () => (await page.locator("article[data-outgoing]").count()) === 0, "it is shown as sent");
});

test("a search finds what was said, and says where nothing is", browserTest, async (t) => {
  const server = await serve(t);
  for (const [id, text] of [
    ["one", "the colour of elephants"],
    ["two", "the speed of swallows"],
  ]) {
    await server.create(id);
    await server.say(id, text);
    await server.idle(id);
  }
  const page = await open(t, server);
  await list(page).getByRole("listitem").nth(1).waitFor();
  await composer(page).blur();
  await page.keyboard.press("/");
  await page.keyboard.type("swallows");
  await until(async () => (await list(page).getByRole("listitem").count()) === 1, "not one is found");
  await list(page).getByRole("link").click();
  await main(page).getByText("the speed of swallows").first().waitFor();
  assert.equal(session(page), "two");
  await page.getByRole("searchbox").fill("unicorns");
  await page.getByText("No conversation contains “unicorns”.").waitFor();
});

test("on a phone it is one pane at a time, and nothing sticks out", browserTest, async (t) => {
  const server = await serve(t);
  const page = await open(t, server, { width: 390, height: 800, mobile: true });
  const fits = async () => {
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 390, `it is ${width} wide`);
  };
  await main(page).locator(".prompts button").first().waitFor();
  await fits();
  await accessible(page);
  await say(page, "weather");
  await page.getByRole("group", { name: "Tool get_weather" }).getByText("done").waitFor();
  await fits();
  await accessible(page);
  await picture(page, "phone-conversation");
  await page.getByRole("button", { name: "timeline" }).click();
  await page.getByRole("treegrid", { name: "Events" }).getByRole("row").first().waitFor();
  assert.ok(await composer(page).isHidden(), "only one pane is shown");
  await fits();
  await accessible(page);
  await picture(page, "phone-timeline");
  await page.getByRole("button", { name: "Conversation", exact: true }).click();
  await page.getByRole("button", { name: "All conversations" }).click();
  await list(page).getByRole("listitem").first().waitFor();
  await fits();
  await accessible(page);
  await picture(page, "phone-list");
});

test("it is dark where the system is, and where somebody says so", browserTest, async (t) => {
  const server = await serve(t);
  await server.create("s");
  for (const text of ["weather", "team", "image", "fail"]) {
    await server.say("s", text);
    await server.idle("s");
  }
  const brightness = (page) =>
    page.evaluate(() =>
      getComputedStyle(document.body)
        .backgroundColor.match(/\d+/g)
        .slice(0, 3)
        .reduce((sum, part) => sum + Number(part), 0),
    );
  const page = await open(t, server, { hash: "#/s?pane=timeline", dark: true });
  await main(page).getByText("upstream").waitFor();
  assert.ok((await brightness(page)) < 150, "it is light");
  await accessible(page);
  await picture(page, "dark");
  await page.getByRole("button", { name: "Theme: system" }).click();
  await until(async () => (await brightness(page)) > 600, "it stays dark");
  await accessible(page);
  await page.reload();
  await main(page).getByText("upstream").waitFor();
  assert.ok((await brightness(page)) > 600, "it is not remembered");
});

test("a server that restarts while somebody watches: it says so, comes back and goes on", browserTest, async (t) => {
  const server = await serve(t, { store: "sqlite:turnwire.db", rate: 100 });
  // What a browser says of connections to a server that is away is meant to be there.
  const page = await open(t, server, { forgives: /ERR_CONNECTION|ERR_EMPTY|ERR_INCOMPLETE|WebSocket|status of 502/ });
  await say(page, "long 100000");
  await grows(page);
  await page.getByRole("button", { name: "timeline" }).click();
  const connection = page.getByRole("status", { name: "Connection" });
  await connection.getByText("Connected").waitFor();
  await server.end();
  await connection.getByText(/connecting/).waitFor();
  const before = await replies(page).first().innerText();
  await picture(page, "server-away");
  await server.start(new URL(server.url).host);
  await connection.getByText("Connected").waitFor();
  await grows(page, before);
  const log = await endsWhole(page, server);
  await page.getByText(`${log.length} events`, { exact: true }).waitFor();
});

test("a server that wants a token is signed in to, and nothing shows the token", browserTest, async (t) => {
  const settings = execFileSync(program, ["token", "new"], { encoding: "utf8" });
  const token = settings.match(/# (tw_\S+)/)[1];
  const server = await serve(t, { settings: settings.replace(token, "") });
  server.headers = { authorization: `Bearer ${token}` };
  await server.create("s");
  await server.say("s", "weather");
  await server.idle("s");
  const page = await open(t, server, { hash: "#/s?pane=wire", forgives: /status of 401|WebSocket/ });
  const field = page.getByLabel("Token");
  await field.fill("tw_wrong");
  await field.press("Enter");
  await page.getByRole("alert").first().waitFor();
  await accessible(page);
  await picture(page, "sign-in");
  await field.fill(token);
  await field.press("Enter");
  await main(page).getByText("sunny.").last().waitFor();
  await page.getByText('curl -N -H "Authorization: Bearer $TURNWIRE_TOKEN"').waitFor();
  assert.ok(!(await page.content()).includes(token));
  assert.ok(!page.url().includes(token));
});
