// A page with a client of another project, in a real browser; a server; and a fake provider behind its agent.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { chromium } from "playwright-core";
import { proxy, serve, TIMEOUT, until } from "../harness.mjs";
import { executablePath, skipWithoutBrowser } from "../skips.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const skip = skipWithoutBrowser("tests/peers/node/browser");
/** The options of a test. */
export const browserTest = { timeout: TIMEOUT * 2, skip };

let browser;

/** Starts a browser for the tests of a file. */
export function withBrowser() {
  before(async () => {
    // As root, in a container, there is no other sandbox.
    const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
    if (!skip) browser = await chromium.launch({ executablePath, args });
  });
  after(() => browser?.close());
}

/** A page, bundled as an application would: one of `pages/`, or other code, with the packages of a folder. */
async function bundle(name, code, folder) {
  const outfile = `${here}/../../../../target/browser-clients/${name}.js`;
  const stdin = { contents: code, loader: "jsx", resolveDir: folder };
  await build({
    ...(code ? { stdin } : { entryPoints: [`${here}/pages/${name}.jsx`] }),
    outfile,
    bundle: true,
    format: "esm",
    jsx: "automatic",
    define: { "process.env.NODE_ENV": '"development"' },
    // The pages need no look.
    loader: { ".css": "empty" },
    logLevel: "error",
  });
  return readFileSync(outfile);
}

const bundles = new Map();

/** Serves a page on an origin of its own. */
async function servePage(t, name) {
  const html = '<!doctype html><title>Test</title><div id="root"></div><script type="module" src="/page.js"></script>';
  const listener = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.writeHead(200, { "content-type": isScript ? "text/javascript" : "text/html; charset=utf-8" });
    response.end(isScript ? bundles.get(name) : html);
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  t.after(() => {
    listener.closeAllConnections();
    listener.close();
  });
  return `http://127.0.0.1:${listener.address().port}`;
}

/** A model provider that logs what it is sent, and answers with what follows from it. */
export async function startProvider(t) {
  const child = spawn("python3", [`${here}/../../stateless/fake_provider.py`], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(() => child.kill());
  const [url] = await once(createInterface({ input: child.stdout }), "line");
  const log = async () => (await fetch(`${url}/log`)).json();
  return { url, log };
}

const settings = (provider) => `[agents.plain]
model = "openai:gpt-4o"
base_url = "${provider.url}/v1"
retries = 0
[agents.travel]
model = "openai:gpt-4o"
base_url = "${provider.url}/v1"
retries = 0
tools = ["mcp:travel/*"]
[[agents.travel.permissions]]
tool = "travel/book"
behavior = "ask"
[mcp.travel]
command = ["${process.execPath}", "${here}/tools-server.mjs"]
`;

/** Like the test `t`, but `after` ends the latest first, and all also if one fails. */
export function latestFirst(t) {
  const ends = [];
  t.after(async () => {
    let failed;
    for (const end of ends.reverse()) {
      try {
        await end();
      } catch (error) {
        failed ??= error;
      }
    }
    if (failed) throw failed;
  });
  return { after: (end) => ends.push(end) };
}

/**
 * Everything that a test needs: the page's origin, a server that lets it in, and a proxy between them that can cut. The
 * agent `travel` has a provider and two tools of its own, `plain` only a provider, and `demo` neither. `code(url)` is the page if
 * it is none of `pages/`.
 */
export async function start(t, name, { rate = 0, code, folder = `${here}/pages` } = {}) {
  const inOrder = latestFirst(t);
  const origin = await servePage(inOrder, name);
  const provider = await startProvider(inOrder);
  const server = await serve(inOrder, { settings: settings(provider), rate, options: ["--origin", origin] });
  if (code || !bundles.has(name)) bundles.set(name, await bundle(name, code?.(server.url), folder));
  const cutting = await proxy(inOrder, server);
  return { origin, provider, server, cutting, inOrder };
}

/** Opens the page. Fails the test for an error on it that `forgives` does not match. */
export async function open({ origin, inOrder }, query, { forgives } = {}) {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT / 2);
  const trouble = [];
  page.on("pageerror", (error) => void trouble.push(`an error: ${error.stack ?? error}`));
  page.on("console", (message) => {
    if (message.type() === "error") trouble.push(`on the console: ${message.text()}`);
  });
  inOrder.after(async () => {
    await context.close();
    const found = trouble.filter((what) => !forgives?.test(what));
    for (const what of found) console.error(what);
    assert.deepEqual(found, []);
  });
  await page.goto(`${origin}/?${new URLSearchParams(query)}`);
  return page;
}

/** Sends a message, as a person does. */
export async function say(page, text) {
  const composer = page.getByRole("textbox", { name: "Message" });
  await composer.fill(text);
  await composer.press("Enter");
}

/** What the page shows: each message as its role and its text. */
export async function shown(page) {
  const found = page.locator("article");
  const read = (nodes) => nodes.map((node) => `${node.dataset.role}: ${node.innerText.replace(/\s+/g, " ").trim()}`);
  return found.evaluateAll(read);
}

/** Waits until the client is idle and the page shows exactly these messages: each a text, or a pattern. */
export async function shows(page, expected) {
  const fits = (text, wanted) => (wanted instanceof RegExp ? wanted.test(text) : text === wanted);
  let found;
  const is_there = async () => {
    if ((await page.locator('[data-status="ready"]').count()) === 0) return false;
    found = await shown(page);
    return found.length === expected.length && expected.every((wanted, at) => fits(found[at], wanted));
  };
  await until(is_there, "not shown").catch(() => assert.deepEqual(found, expected));
}

/** Waits until the client is idle and the last message is this. */
export async function answered(page, last) {
  const isReady = async () =>
    (await page.locator('[data-status="ready"]').count()) > 0 && last.test((await shown(page)).at(-1) ?? "");
  await until(isReady, `no answer ${last}`);
}

/** Has an answer made again: the nth, from 0; -1 is the last. */
export const sayAgain = (page, nth) =>
  page.locator('article[data-role="assistant"]').nth(nth).getByRole("button", { name: "Again" }).click();

/** Edits a message of the user: the nth, from 0. */
export async function edit(page, nth, text) {
  await page.locator('article[data-role="user"]').nth(nth).getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Edited message" }).fill(text);
  await page.getByRole("button", { name: "Save" }).click();
}

/**
 * The turns that every client of AG-UI has: a message, a tool of the agent, and a tool of the page. `called(call, result)` gives
 * the lines in which the page shows a call with its result. Returns what the page shows at the end.
 */
export async function travel(page, called) {
  const lines = [];
  const turn = async (text, ...answer) => {
    lines.push(`user: ${text}`, ...answer);
    await say(page, text);
    await shows(page, lines);
  };
  await turn("hello", /You said: hello$/);
  const weather = called(/\[travel(\/|__)weather Rome\]/, "sunny in Rome");
  await turn("[travel__weather Rome]", ...weather, /^assistant: The results are sunny in Rome\./);
  const painted = called(/\[paint red\]/, '{"painted":"red"}');
  await turn("[paint red]", ...painted, /^assistant: The results are {"painted":"red"}\./);
  assert.equal(await page.evaluate(() => document.body.style.background), "red");
  return lines;
}

/** The lines of a page that shows a call and its result in one message. */
export const inOneMessage = (call, result) => [new RegExp(`${call.source} ${result}$`)];

/**
 * The page has the same conversation with Turnwire and with a server of comparison: it shows the same, and the provider is sent the
 * same. `more(page)` goes on behind the turns that every client has.
 */
export async function compareWithControl(t, name, startControl, more) {
  const place = await start(t, name);
  const provider = await startProvider(place.inOrder);
  const control = await startControl(place.inOrder, provider);
  const seen = [];
  for (const api of [`${place.server.url}/ag-ui/travel?history=client`, control]) {
    const page = await open(place, { api, thread: "t" });
    await travel(page, inOneMessage);
    await more(page);
    seen.push((await shown(page)).map((line) => line.replaceAll("travel/", "travel__")));
  }
  assert.deepEqual(seen[0], seen[1]);
  const [ours, theirs] = [await place.provider.log(), await provider.log()];
  assert.deepEqual(ours.map(conversation), theirs.map(conversation));
  assert.deepEqual(ours.map(offered), theirs.map(offered));
  assert.equal(await onlySession(place.server), "t");
}

/** Asks the demo agent for a long reply, and waits until a part of it is there. */
export async function long(page) {
  await say(page, "long 300");
  await until(async () => (await shown(page)).at(-1)?.length > 200, "nothing comes");
}

/** One request of the provider as a list of what was said: roles, texts, calls with their inputs, and results. */
export function conversation({ body }) {
  const names = new Map();
  return body.messages.map(({ role, content, tool_calls: calls, tool_call_id: id }) => {
    const text = Array.isArray(content) ? content.map((part) => part.text).join("") : (content ?? "");
    for (const call of calls ?? []) names.set(call.id, call.function.name);
    if (role === "tool") return `${names.get(id)} -> ${text}`;
    const made = (calls ?? []).map(
      ({ function: { name, arguments: input } }) => `${name}(${JSON.stringify(JSON.parse(input))})`,
    );
    return `${role}: ${[text, ...made].filter((part) => part).join(" ")}`;
  });
}

/** The names of the tools that a request offers. */
export const offered = ({ body }) => (body.tools ?? []).map((tool) => tool.function.name).sort();

/** Checks what the provider was sent in a conversation with every tool, whose last message was answered twice. */
export function checkTravel(log) {
  for (const entry of log) assert.deepEqual(offered(entry), ["paint", "travel__book", "travel__weather"]);
  const said = log.map(conversation);
  // Every request begins with the one before, and with what was answered to it.
  for (const [at, earlier] of said.slice(0, -2).entries())
    assert.deepEqual(said[at + 1].slice(0, earlier.length), earlier);
  assert.deepEqual(said.at(-1), said.at(-2), "the same question again");
  assert.deepEqual(
    said.at(-1).filter((line) => !line.startsWith("assistant: ")),
    [
      "user: hello",
      "user: [travel__weather Rome]",
      "travel__weather -> sunny in Rome",
      "user: [paint red]",
      'paint -> {"painted":"red"}',
      "user: [travel__book Oslo]",
      "travel__book -> booked a trip to Oslo",
      "user: thanks",
    ],
  );
}

/** The only session, which the client has named or not. */
export async function onlySession(server) {
  const { sessions } = await server.ask("GET", "/v1/sessions");
  assert.equal(sessions.length, 1, `one conversation is one session: ${sessions.map(({ id }) => id)}`);
  return sessions[0].id;
}

export { until };
