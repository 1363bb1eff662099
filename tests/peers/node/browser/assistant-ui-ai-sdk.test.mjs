// assistant-ui with its AI SDK runtime: the same conversation as with the AI SDK's own backend, and what only a server
// with sessions can do.

import assert from "node:assert/strict";
import { test } from "node:test";
import { startControl } from "./control-ai-sdk.mjs";
import {
  browserTest,
  conversation,
  edit,
  long,
  offered,
  onlySession,
  open,
  say,
  sayAgain,
  shown,
  shows,
  start,
  startProvider,
  withBrowser,
} from "./harness.mjs";

withBrowser();

const PAGE = "assistant-ui-ai-sdk";

/** Everything that the user of a thread can do. Returns what the page showed after each step. */
async function converse(page) {
  const seen = [];
  const step = async (count, last) => {
    await shows(page, [...Array(count - 1).fill(/./), last]);
    seen.push((await shown(page)).map((text) => text.replace("travel/", "travel__")));
  };
  await say(page, "hello");
  await step(2, /You said: hello$/);
  await say(page, "[travel__weather Rome]");
  await step(4, /sunny in Rome The results are sunny in Rome\. .*\.$/);
  // A tool that the page executes.
  await say(page, "[paint red]");
  await step(6, /The results are {"painted":"red"}\. .*\.$/);
  assert.equal(await page.evaluate(() => document.body.style.background), "red");
  await say(page, "[travel__book Oslo]");
  await step(8, /AllowDeny$/);
  await page.getByRole("button", { name: "Allow" }).click();
  await step(8, /The results are booked a trip to Oslo\. .*\.$/);
  await say(page, "thanks");
  await step(10, /You said: thanks$/);
  await sayAgain(page, 4);
  await step(10, /This is answer 2\.$/);
  await edit(page, 2, "another colour");
  await step(6, /You said: another colour$/);
  await sayAgain(page, 1);
  await step(4, /The results are sunny in Rome\. .* This is answer 2\.$/);
  await edit(page, 0, "good morning");
  await step(2, /You said: good morning$/);
  await say(page, "bye");
  await step(4, /You said: bye$/);
  return seen;
}

test("a conversation is the same as with the AI SDK's own backend, and one session", browserTest, async (t) => {
  const place = await start(t, PAGE);
  const seen = await converse(await open(place, { api: `${place.server.url}/ai-sdk/travel` }));

  const provider = await startProvider(place.inOrder);
  const control = await startControl(place.inOrder, provider);
  assert.deepEqual(seen, await converse(await open(place, { api: control })));

  const [ours, theirs] = [await place.provider.log(), await provider.log()];
  assert.deepEqual(ours.map(conversation), theirs.map(conversation));
  assert.deepEqual(ours.map(offered), theirs.map(offered));

  const id = await onlySession(place.server);
  const texts = (await place.server.messages(id)).map(({ role, content }) => `${role}: ${content.at(-1).text}`);
  assert.deepEqual(texts, seen.at(-1));
});

test("a denied call is not made, and one that the user ignores is cancelled", browserTest, async (t) => {
  const place = await start(t, PAGE);
  const page = await open(place, { api: `${place.server.url}/ai-sdk/travel` });
  await say(page, "[travel__book Oslo]");
  await shows(page, [/./, /AllowDeny$/]);
  await page.getByRole("button", { name: "Deny" }).click();
  await shows(page, [/./, /The results are .*\.$/]);
  await say(page, "[travel__book Rome]");
  await shows(page, [/./, /./, /./, /AllowDeny$/]);
  await say(page, "never mind");
  await shows(page, [/./, /./, /./, /cancelled/, "user: never mind", /You said: never mind$/]);
  const log = await place.provider.log();
  const results = conversation(log.at(-1)).filter((line) => line.startsWith("travel__book ->"));
  assert.equal(results.length, 2, "each call has one result");
  assert.ok(!JSON.stringify(log).includes("booked"), "nothing was booked");
  await onlySession(place.server);
});

test("a page that is reloaded in the middle of a reply shows all of it", browserTest, async (t) => {
  const place = await start(t, PAGE, { rate: 150 });
  const { server } = place;
  const page = await open(
    place,
    { api: `${server.url}/ai-sdk/demo`, server: server.url, chat: "c" },
    { forgives: /404/ },
  );
  await long(page);
  await page.reload();
  await server.idle("c");
  const [, reply] = await server.messages("c");
  await shows(page, ["user: long 300", `assistant: ${reply.content.at(-1).text.replace(/\s+/g, " ").trim()}`]);
  await say(page, "weather");
  await server.idle("c");
  await shows(page, [/./, /./, "user: weather", /get_weather/]);
});

test("assistant-ui's own way to resume finds the reply", browserTest, async (t) => {
  const place = await start(t, PAGE, { rate: 150 });
  const page = await open(place, { api: `${place.server.url}/ai-sdk/demo`, resumable: "yes" });
  await long(page);
  await page.reload();
  const id = await onlySession(place.server);
  await place.server.idle(id);
  const [, reply] = await place.server.messages(id);
  await shows(page, [`assistant: ${reply.content.at(-1).text.replace(/\s+/g, " ").trim()}`]);
});

test("a lost connection loses nothing: the reply goes on, and is there after a reload", browserTest, async (t) => {
  const place = await start(t, PAGE, { rate: 150 });
  const { server, cutting } = place;
  const query = { api: `${cutting.url}/ai-sdk/demo`, server: cutting.url, chat: "c" };
  const page = await open(place, query, { forgives: /404|network error|ERR_/ });
  await long(page);
  cutting.cut();
  await page.reload();
  await server.idle("c");
  const [, reply] = await server.messages("c");
  await shows(page, ["user: long 300", `assistant: ${reply.content.at(-1).text.replace(/\s+/g, " ").trim()}`]);
});
