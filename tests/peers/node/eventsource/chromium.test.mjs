// A browser's own EventSource and WebSocket watch a running server, in Chromium.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { checkWhole, program, proxy, random, STORES, seed, serve, TIMEOUT, until } from "../harness.mjs";
import { executablePath, skipWithoutBrowser } from "../skips.mjs";

const skip = skipWithoutBrowser("tests/peers/node/eventsource");
const limited = { timeout: TIMEOUT * 2, skip };

console.log(`to repeat this run: TURNWIRE_SEED=${seed}`);

let browser;
before(async () => {
  // Whoever is root in a container has no other sandbox.
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  if (!skip) browser = await chromium.launch({ executablePath, args });
});
after(() => browser?.close());

/** A page at an address. */
async function open(t, url) {
  const page = await browser.newPage();
  t.after(() => page.close());
  await page.goto(url);
  return page;
}

/** A web server elsewhere, whose pages are empty. */
async function elsewhere(t) {
  const listener = createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>x</title>");
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  t.after(() => listener.close());
  return `http://127.0.0.1:${listener.address().port}`;
}

/** Has the page watch with its own EventSource; what it was told is in `window[name]`. */
function watch(page, url, name = "seen") {
  return page.evaluate(
    ([url, name]) => {
      const source = new EventSource(url);
      const seen = { source, frames: [], ids: [], opened: 0, errors: 0 };
      window[name] = seen;
      source.onopen = () => void seen.opened++;
      source.onerror = () => void seen.errors++;
      source.onmessage = (event) => {
        seen.frames.push(JSON.parse(event.data));
        seen.ids.push(event.lastEventId);
      };
    },
    [url, name],
  );
}

/** What the page was told, once the event with this token came. */
async function at(page, token, name = "seen") {
  await page.waitForFunction(([name, token]) => window[name].ids.includes(token), [name, token], {
    timeout: TIMEOUT,
  });
  return page.evaluate((name) => window[name].frames, name);
}

/** Waits until the page's EventSource is open (1) or closed (2). */
function becomes(page, readyState, name = "seen") {
  return page.waitForFunction(
    ([name, readyState]) => window[name].source.readyState === readyState,
    [name, readyState],
    { timeout: TIMEOUT },
  );
}

for (const store of STORES) {
  test(`cut at random bytes, its EventSource has every event once and in order (${store})`, limited, async (t) => {
    const server = await serve(t, { store, rate: 150 });
    let calm = true;
    const cut = await proxy(t, server, () => (calm ? undefined : 1500 + random(10_000)));
    await server.create("s");
    // A page of our own origin, as it is seen through the proxy.
    const page = await open(t, `${cut.url}/healthz`);
    cut.cut();
    calm = false;
    // Raw, so that what it has missed is not merged into a few frames.
    await watch(page, "/v1/sessions/s/events?raw=true");
    await server.say("s", "weather");
    await server.idle("s");
    await server.say("s", "long 200");
    const { last_event_id: last } = await server.idle("s");
    checkWhole(await at(page, last), await server.log("s"));
    assert.ok(cut.cuts >= 2, `${cut.cuts} cuts are too few to show anything`);
  });
}

test("its EventSource stops at the end of until=idle", limited, async (t) => {
  const server = await serve(t, { rate: 200 });
  await server.create("s");
  await server.say("s", "long 40");
  const page = await open(t, `${server.url}/healthz`);
  const asked = [];
  page.on("response", (response) => void asked.push(response.status()));
  await watch(page, "/v1/sessions/s/events?until=idle");
  await becomes(page, 2);
  const frames = await page.evaluate(() => window.seen.frames);
  checkWhole(frames, await server.log("s"));
  assert.deepEqual(asked, [200, 204]);
});

test("its EventSource is told of a session that was made again", limited, async (t) => {
  const server = await serve(t);
  await server.create("s");
  await server.say("s", "hello");
  const old = await server.idle("s");
  const page = await open(t, `${server.url}/healthz`);
  await watch(page, "/v1/sessions/s/events");
  await at(page, old.last_event_id);
  await server.ask("DELETE", "/v1/sessions/s");
  await server.create("s");
  await server.say("s", "weather");
  const made = await server.idle("s");
  const frames = await at(page, made.last_event_id);
  const reset = frames.findIndex((frame) => frame.type === "RESET");
  assert.equal(frames[reset].epoch, made.epoch);
  checkWhole(frames.slice(reset + 1), await server.log("s"));
});

test("a page elsewhere is refused", limited, async (t) => {
  const server = await serve(t);
  await server.create("s");
  await server.say("s", "hello");
  await server.idle("s");
  const page = await open(t, await elsewhere(t));
  await watch(page, `${server.url}/v1/sessions/s/events`);
  await becomes(page, 2);
  assert.deepEqual(await page.evaluate(() => window.seen.frames), []);
  const post = await page.evaluate(async (url) => {
    const body = JSON.stringify({ id: "made-by-a-foreign-page" });
    return fetch(url, { method: "POST", body, mode: "no-cors" }).then(() => "sent", String);
  }, `${server.url}/v1/sessions`);
  assert.equal(post, "sent", "a browser sends it, and cannot read the answer");
  const { sessions } = await server.ask("GET", "/v1/sessions");
  assert.deepEqual(
    sessions.map(({ id }) => id),
    ["s"],
    "nothing came of it",
  );
  const socket = await page.evaluate(
    (url) => {
      const socket = new WebSocket(url);
      return new Promise((resolve) => {
        socket.onopen = () => resolve("open");
        socket.onclose = () => resolve("closed");
      });
    },
    `${server.url.replace("http", "ws")}/v1/ws?wire=turnwire`,
  );
  assert.equal(socket, "closed");
});

test("a page elsewhere that is configured watches, asks and answers", limited, async (t) => {
  const origin = await elsewhere(t);
  const server = await serve(t, { options: ["--origin", origin] });
  await server.create("s");
  const page = await open(t, origin);
  await watch(page, `${server.url}/v1/sessions/s/events`);
  // A JSON body has the browser ask first.
  const said = await page.evaluate(async (url) => {
    const headers = { "content-type": "application/json", "idempotency-key": "1" };
    const body = JSON.stringify({ content: "weather" });
    return (await fetch(url, { method: "POST", headers, body })).json();
  }, `${server.url}/v1/sessions/s/messages`);
  assert.ok(said.reply_id);
  const { last_event_id: last } = await server.idle("s");
  checkWhole(await at(page, last), await server.log("s"));
});

/** A server that wants a token, and the token. */
async function guarded(t, options = []) {
  const text = execFileSync(program, ["token", "new"], { encoding: "utf8" });
  const token = text.match(/# (tw_\S+)/)[1];
  const server = await serve(t, { settings: text.replace(token, ""), options });
  server.headers = { authorization: `Bearer ${token}` };
  return { server, token };
}

test("a ticket lets its EventSource in once; a new one and ?after= go on", limited, async (t) => {
  const { server } = await guarded(t);
  const cut = await proxy(t, server);
  await server.create("s");
  const page = await open(t, `${cut.url}/healthz`);
  const ticket = async () => (await server.ask("POST", "/v1/tickets")).ticket;

  await watch(page, "/v1/sessions/s/events", "without");
  await becomes(page, 2, "without");

  await watch(page, `/v1/sessions/s/events?ticket=${await ticket()}`);
  await becomes(page, 1);
  await server.say("s", "weather");
  const { last_event_id: middle } = await server.idle("s");
  const frames = await at(page, middle);
  cut.cut();
  await becomes(page, 2);

  const url = `/v1/sessions/s/events?after=${middle}&ticket=${await ticket()}`;
  await watch(page, url, "again");
  await becomes(page, 1, "again");
  await server.say("s", "hello");
  const { last_event_id: last } = await server.idle("s");
  checkWhole([...frames, ...(await at(page, last, "again"))], await server.log("s"));
});

test(
  "its six connections to a host are the browser's limit; one socket carries any number of sessions",
  limited,
  async (t) => {
    const server = await serve(t);
    const sessions = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (const id of sessions) await server.create(id);
    const page = await open(t, `${server.url}/healthz`);
    for (const id of sessions) await watch(page, `/v1/sessions/${id}/events`, id);
    for (const id of sessions.slice(0, 6)) await becomes(page, 1, id);
    const others = await page.evaluate(() => [window.g, window.h].map(({ source }) => source.readyState));
    assert.deepEqual(others, [0, 0], "the seventh waits");
    await page.evaluate(() => window.a.source.close());
    await becomes(page, 1, "g");

    await socket(
      page,
      "/v1/ws?wire=turnwire",
      sessions.map((id) => ({ type: "subscribe", session_id: id })),
    );
    for (const id of sessions) await server.say(id, "hello");
    for (const id of sessions) {
      const { last_event_id: last } = await server.idle(id);
      await heard(page, last);
      const frames = (await page.evaluate(() => window.socket.frames)).filter((frame) => frame.seq);
      checkWhole(
        frames.filter((frame) => frame.session_id === id),
        await server.log(id),
      );
    }
  },
);

/** Has the page open a WebSocket and send these commands; what it hears is in `window.socket`. */
function socket(page, path, commands) {
  return page.evaluate(
    ([path, commands]) => {
      const url = new URL(path, location.href);
      url.protocol = "ws:";
      const socket = new WebSocket(url);
      const earlier = window.socket?.frames ?? [];
      window.socket = { socket, frames: earlier, closed: null };
      socket.onmessage = ({ data }) => void window.socket.frames.push(JSON.parse(data));
      socket.onclose = ({ code }) => void (window.socket.closed = code);
      return new Promise((resolve, reject) => {
        socket.onerror = () => reject(new Error("the socket fails"));
        socket.onopen = () => {
          for (const command of commands) socket.send(JSON.stringify(command));
          resolve();
        };
      });
    },
    [path, commands],
  );
}

/** Waits for the frame with this token. */
function heard(page, token) {
  return page.waitForFunction((token) => window.socket.frames.some((frame) => frame.event_id === token), token, {
    timeout: TIMEOUT,
  });
}

test("its WebSocket is cut at random bytes, and resumes from the last frame", limited, async (t) => {
  const server = await serve(t, { rate: 150 });
  let calm = true;
  const cut = await proxy(t, server, () => (calm ? undefined : 1500 + random(20_000)));
  await server.create("s");
  const page = await open(t, `${cut.url}/healthz`);
  cut.cut();
  calm = false;
  await server.say("s", "long 250");
  let last = "";
  for (;;) {
    const subscribe = { type: "subscribe", session_id: "s", ...(last && { last_event_id: last }) };
    // A cut can come while it connects.
    await socket(page, "/v1/ws?wire=turnwire", [subscribe]).catch(() => {});
    const end = await until(async () => {
      const { closed, frames } = await page.evaluate(() => ({ ...window.socket, socket: null }));
      const over = frames.some((frame) => frame.type === "REPLY_END");
      return (closed !== null || over) && { frames, over };
    }, "neither cut nor over");
    last = end.frames.findLast((frame) => frame.event_id)?.event_id ?? "";
    if (!end.over) continue;
    checkWhole(
      end.frames.filter((frame) => frame.seq),
      await server.log("s"),
    );
    break;
  }
  assert.ok(cut.cuts >= 2, `${cut.cuts} cuts are too few to show anything`);
});

test("its WebSocket comes in with a ticket or with its first command, and talks", limited, async (t) => {
  const { server, token } = await guarded(t);
  await server.create("s");
  const page = await open(t, `${server.url}/healthz`);
  const { ticket } = await server.ask("POST", "/v1/tickets");
  const talk = [
    { type: "subscribe", session_id: "s", id: 1 },
    { type: "chat", session_id: "s", content: "weather", id: 2 },
  ];
  const answers = () => page.evaluate(() => window.socket.frames.filter((frame) => !frame.seq));
  await socket(page, `/v1/ws?wire=turnwire&ticket=${ticket}`, talk);
  await until(async () => (await answers()).length === 2, "no answers");
  assert.deepEqual(
    (await answers()).map(({ type, id }) => [type, id]),
    [
      ["subscribed", 1],
      ["accepted", 2],
    ],
  );
  await heard(page, (await server.idle("s")).last_event_id);

  await page.evaluate(() => void (window.socket = undefined));
  await socket(page, "/v1/ws?wire=turnwire", [{ type: "auth", token }, { type: "ping" }]);
  await until(async () => (await answers()).length === 2, "no answers");
  assert.deepEqual(
    (await answers()).map(({ type }) => type),
    ["authenticated", "pong"],
  );

  await page.evaluate(() => void (window.socket = undefined));
  await socket(page, "/v1/ws?wire=turnwire", [{ type: "auth", token: "tw_wrong" }]);
  await until(() => page.evaluate(() => window.socket.closed === 4401), "it stays open");
});

test("the first page says where one is, and asks for nothing from elsewhere", limited, async (t) => {
  const server = await serve(t);
  const page = await browser.newPage({ viewport: { width: 360, height: 640 } });
  t.after(() => page.close());
  const trouble = [];
  page.on("console", (message) => void trouble.push(message.text()));
  page.on("pageerror", (error) => void trouble.push(String(error)));
  const asked = [];
  page.on("request", (request) => void asked.push(new URL(request.url()).origin));
  await page.goto(`${server.url}/`);
  assert.match(await page.title(), /Turnwire/);
  assert.deepEqual(new Set(asked), new Set([server.url]));
  assert.deepEqual(trouble, []);
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 360, `on a phone it is ${width} wide`);
  if (process.env.SCREENSHOTS) {
    await page.setViewportSize({ width: 1280, height: 720 });
    mkdirSync(process.env.SCREENSHOTS, { recursive: true });
    await page.screenshot({ path: `${process.env.SCREENSHOTS}/index.png` });
  }
});
