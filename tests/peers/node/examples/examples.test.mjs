// The examples for a browser, each as its README starts it, in a real Chromium, with a real server.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify, stripVTControlCharacters } from "node:util";
import { browserTest, latestFirst, open, until, withBrowser } from "../browser/harness.mjs";
import { serve, TIMEOUT } from "../harness.mjs";

withBrowser();

const folder = (example) => fileURLToPath(new URL(`../../../../examples/${example}`, import.meta.url));

/** The examples, and a path of Turnwire that each forwards to. */
const examples = { "react-chat": "/v1/sessions", "ai-sdk-chat": "/ai-sdk/demo", "ag-ui-page": "/ag-ui/demo" };

/**
 * What a page may complain about: a session that does not exist yet, a server that is away. After a lost connection
 * `@ag-ui/client` leaves a rejection without a stack.
 */
const forgives = /404|502|ERR_|network error|^an error: $/;

/** Starts an example with its own command, beside a server; `page` is open. */
async function start(t, example, { rate = 0 } = {}) {
  const inOrder = latestFirst(t);
  const server = await serve(inOrder, { store: "sqlite:turnwire.db", rate });
  // In a group of its own, because npm starts further processes.
  const child = spawn("npm", ["start", "--", "--port", "0"], {
    cwd: folder(example),
    env: { ...process.env, TURNWIRE_URL: server.url },
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  const ended = once(child, "exit");
  inOrder.after(async () => {
    process.kill(-child.pid, "SIGTERM");
    await ended;
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text) => (output += stripVTControlCharacters(text)));
  const origin = await until(() => output.match(/Local: +(http:\S+?)\/\s/)?.[1], `${example} does not start`);
  const page = await open({ origin, inOrder }, {}, { forgives });
  return { origin, server, page };
}

/** The id of the session, which is in the address of the page. */
const sessionOf = (page) => new URL(page.url()).hash.slice(1);

/** Sends a message, as soon as the page lets the user. */
async function say(page, text) {
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}

/** What the page shows, in order: texts, thinking, tool calls and their results. */
const shown = (page) =>
  page.locator("article :is(p, code, pre)").evaluateAll((nodes) => nodes.map((node) => node.textContent));

const asShown = {
  text: ({ text }) => text,
  thinking: ({ thinking }) => thinking,
  tool_call: ({ name, input }) => `${name} ${input}`,
  tool_result: ({ output }) => (typeof output === "string" ? output : output.map(({ text }) => text).join("")),
};

/** Waits until there are so many messages, nothing runs, and the page shows exactly what the server has. Returns that. */
async function agrees(page, server, count) {
  let expected;
  const isShown = async () => {
    const { sessions } = await server.ask("GET", "/v1/sessions");
    if (sessions[0]?.status !== "idle") return false;
    const messages = await server.messages(sessionOf(page));
    if (messages.length !== count) return false;
    expected = messages.flatMap(({ content }) => content).map((block) => asShown[block.type](block));
    return JSON.stringify(await shown(page)) === JSON.stringify(expected);
  };
  await until(isShown, "not shown").catch(async () => assert.deepEqual(await shown(page), expected));
  return expected;
}

/** How many characters `long 500` has: so many deltas of 8. */
const WHOLE = 4000;

/** Asks for a long reply, and waits until a part of it is shown. */
async function long(page, server) {
  await say(page, "long 500");
  const isPart = ({ length }) => length > 200 && length < WHOLE;
  await until(async () => isPart((await shown(page)).at(-1) ?? ""), "nothing comes");
  assert.equal((await server.session(sessionOf(page))).status, "running", "it comes while the reply runs");
}

const isWhole = (texts) => assert.equal(texts.at(-1).length, WHOLE);

for (const [example, path] of Object.entries(examples)) {
  test(`${example} type-checks and builds`, { timeout: TIMEOUT }, async (t) => {
    const out = mkdtempSync(join(tmpdir(), "turnwire-example-"));
    t.after(() => rmSync(out, { recursive: true }));
    await promisify(execFile)("npm", ["run", "build", "--", "--outDir", out], { cwd: folder(example) });
  });

  test(`${example}: messages, tools and approvals`, browserTest, async (t) => {
    const { origin, server, page } = await start(t, example);
    await say(page, "hello");
    await agrees(page, server, 2);
    await say(page, "weather");
    await agrees(page, server, 4);

    await say(page, "approve");
    await page.getByRole("button", { name: "Allow" }).click();
    const allowed = await agrees(page, server, 6);
    assert.match(allowed.at(-1), /Bought 100 ACME/);

    await say(page, "approve");
    await page.getByRole("button", { name: "Deny" }).click();
    const denied = async () => (await server.messages(sessionOf(page))).at(-1).content;
    await until(async () => (await shown(page)).at(-1) === (await denied()).at(-1).text, "the answer is not shown");
    assert.equal((await denied()).find(({ type }) => type === "tool_result").state, "denied");

    const foreign = await fetch(origin + path, { method: "POST", headers: { origin: "http://evil.example" } });
    assert.equal(foreign.status, 403, "pages of other origins cannot use Turnwire through the example");
  });

  test(`${example}: a reload in the middle of a reply, and a stop`, browserTest, async (t) => {
    const { server, page } = await start(t, example, { rate: 150 });
    await long(page, server);
    await page.reload();
    isWhole(await agrees(page, server, 2));

    await long(page, server);
    await page.getByRole("button", { name: "Stop" }).click();
    await agrees(page, server, 4);
    assert.equal((await server.messages(sessionOf(page))).at(-1).finished_reason, "interrupted");
    await say(page, "hello");
    await agrees(page, server, 6);
  });

  test(
    `${example}: the server is killed while a reply runs, while it waits, and before a message`,
    browserTest,
    async (t) => {
      const { server, page } = await start(t, example, { rate: 150 });
      await page.evaluate(() => (window.isSamePage = true));
      await long(page, server);
      await server.crash();
      isWhole(await agrees(page, server, 2));

      await say(page, "approve");
      await page.getByRole("button", { name: "Allow" }).waitFor();
      await server.crash();
      await page.getByRole("button", { name: "Allow" }).click();
      assert.match((await agrees(page, server, 4)).at(-1), /Bought 100 ACME/);

      server.child.kill("SIGKILL");
      await server.ended;
      const saying = say(page, "hello");
      await page.getByText("Connecting…").waitFor();
      await server.start(new URL(server.url).host);
      await saying;
      await agrees(page, server, 6);
      assert.equal(await page.evaluate(() => window.isSamePage), true, "it continues without a reload");
    },
  );
}

test("react-chat: whoever has the link follows the conversation", browserTest, async (t) => {
  const { server, page } = await start(t, "react-chat");
  const other = await page.context().newPage();
  await other.goto(page.url());
  await say(page, "hello");
  await agrees(other, server, 2);
  await say(other, "weather");
  await agrees(page, server, 4);
});

test("react-chat: its chat has as many lines as its README says", () => {
  const [chat] = readFileSync(`${folder("react-chat")}/src/chat.tsx`, "utf8").match(/^export function Chat[\s\S]*?^}/m);
  const [, lines] = readFileSync(`${folder("react-chat")}/README.md`, "utf8").match(/`Chat` in .*: (\d+) lines/);
  assert.equal(chat.split("\n").length, Number(lines));
});
