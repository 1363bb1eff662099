// Other front ends on the same server: what the chat of the package `ai` and the client of `@ag-ui/client` say
// appears here as it streams, what is said here reaches them, and all of them have the same conversation.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client as AgUi, same as sameInAgUi, warnings } from "../../tests/peers/node/ag-ui/harness.mjs";
import {
  open as openChat,
  quiet,
  reload as reloadChat,
  same as sameInChat,
  tools,
} from "../../tests/peers/node/ai-sdk/harness.mjs";
import { browserTest, open, serve, until, withBrowser } from "./harness.mjs";

withBrowser();

const main = (page) => page.getByRole("main");
const replies = (page) => page.locator('article[data-role="assistant"]');
const connection = (page) => page.getByRole("status", { name: "Connection" });
/** Letters and digits: what is left of a text when its marks are shown as what they mean. */
const bare = (text) => text.replaceAll(/[^\p{L}\p{N}]+/gu, "");

/** Says something here, as a person does. */
async function say(page, text) {
  const composer = page.getByRole("textbox", { name: /^Message / });
  await composer.fill(text);
  await composer.press("Enter");
}

/** A session that is open here, and nothing was said in yet. */
async function opened(t, options) {
  const server = await serve(t, options);
  await server.create("s");
  const page = await open(t, server, { hash: "#/s" });
  await connection(page).getByText("Connected").waitFor();
  return { server, page };
}

/** Everything that was said stands on the page, in order. */
async function shows(page, server) {
  const expected = (await server.messages("s")).map(({ content }) =>
    content.filter(({ type }) => type === "text").map(({ text }) => bare(text)),
  );
  let shown;
  await until(async () => {
    shown = (await page.locator("article").allInnerTexts()).map(bare);
    return (
      shown.length === expected.length &&
      expected.every((texts, nth) => texts.every((text) => shown[nth].includes(text)))
    );
  }, "it is not all there").catch((error) => assert.deepEqual(shown, expected, error));
}

test(
  "what the chat of the package ai says is seen here as it streams, and what is said here is seen there",
  browserTest,
  async (t) => {
    const { server, page } = await opened(t, { rate: 100 });
    const there = openChat(server, { id: "s" });
    const sending = there.chat.sendMessage({ text: "long 100000" });
    await main(page).getByText("long 100000").waitFor();
    // It grows here while it does there, and ends there when it is stopped here.
    await until(
      async () => (await replies(page).count()) === 1 && (await replies(page).first().innerText()).length > 60,
      "nothing comes",
    );
    assert.equal(there.chat.status, "streaming");
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await sending;
    await server.idle("s");
    await sameInChat(server, await reloadChat(server, "s"));
    await shows(page, server);

    // A reply that is asked for here is seen there while it runs, and goes on to its end.
    await say(page, "long 150");
    await server.when("s", "running");
    const back = await reloadChat(server, "s");
    await quiet(back.chat);
    await server.idle("s");
    assert.equal(back.chat.messages.length, 4);
    await sameInChat(server, back);
    await shows(page, server);
  },
);

test("what the chat of the package ai asks a person is answered here", browserTest, async (t) => {
  const { server, page } = await opened(t);
  const there = openChat(server, { id: "s" });
  await there.chat.sendMessage({ text: "please approve" });
  assert.deepEqual(
    tools(there.chat).map(({ state }) => state),
    ["approval-requested"],
  );
  const card = main(page).getByRole("group", { name: "Tool execute_trade" });
  await card.getByRole("button", { name: "Allow once" }).click();
  await card.getByText("done").waitFor();
  await server.idle("s");
  const back = await reloadChat(server, "s");
  assert.deepEqual(
    tools(back.chat).map(({ state }) => state),
    ["output-available"],
  );
  await sameInChat(server, back);
  await shows(page, server);
});

test(
  "what the client of @ag-ui/client says is seen here as it streams, and what is said here is seen there",
  browserTest,
  async (t) => {
    const { server, page } = await opened(t, { rate: 100 });
    const there = new AgUi(server, "s");
    const sending = there.say("long 100000");
    await main(page).getByText("long 100000").waitFor();
    await until(
      async () => (await replies(page).count()) === 1 && (await replies(page).first().innerText()).length > 60,
      "nothing comes",
    );
    assert.equal(there.runs.length, 0, "it streams there, too");
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await sending;
    await server.idle("s");
    await sameInAgUi(there);
    await shows(page, server);

    await say(page, "long 150");
    await server.when("s", "running");
    // A client that comes back is told what was said meanwhile, and runs along to the end.
    const back = new AgUi(server, "s");
    await back.run();
    await server.idle("s");
    await sameInAgUi(back);
    assert.equal(back.messages.filter(({ role }) => role === "user").at(-1).content, "long 150");
    await shows(page, server);
  },
);

test("what is asked here is answered by the client of @ag-ui/client, and shown as answered", browserTest, async (t) => {
  const { server, page } = await opened(t);
  await say(page, "please approve");
  const card = main(page).getByRole("group", { name: "Tool execute_trade" });
  await card.getByText("waiting for you").waitFor();
  const there = new AgUi(server, "s");
  await there.run();
  const [{ id }] = there.agent.pendingInterrupts;
  await there.resume({
    [id]: { status: "resolved", payload: { approved: true, editedArgs: { symbol: "VNM", quantity: 7 } } },
  });
  await card.getByText("done").waitFor();
  await card.getByText("VNM").first().waitFor();
  await server.idle("s");
  await sameInAgUi(there);
  await shows(page, server);
});

test("both of them and this page in one conversation end with the same", browserTest, async (t) => {
  const { server, page } = await opened(t);
  await openChat(server, { id: "s" }).chat.sendMessage({ text: "what is the weather" });
  await server.idle("s");
  const agent = new AgUi(server, "s");
  await agent.run();
  await agent.say("an image");
  await server.idle("s");
  await say(page, "hello there");
  await until(async () => (await server.messages("s")).length === 6, "it was not taken");
  await server.idle("s");
  const [chat, back] = [await reloadChat(server, "s"), new AgUi(server, "s")];
  await back.run();
  warnings.length = 0;
  await sameInChat(server, chat);
  await sameInAgUi(back);
  await shows(page, server);
});
