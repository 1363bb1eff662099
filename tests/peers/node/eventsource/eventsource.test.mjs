// The npm package `eventsource` watches a running server.

import assert from "node:assert/strict";
import { test } from "node:test";
import { EventSource } from "eventsource";
import { checkWhole, proxy, random, STORES, seed, serve, TIMEOUT, until } from "../harness.mjs";

console.log(`to repeat this run: TURNWIRE_SEED=${seed}`);

/** An EventSource, and all that it was told. It closes when the test ends. */
function watch(t, url) {
  const source = new EventSource(url);
  const seen = { source, frames: [], ids: [], opened: 0, errors: [] };
  source.onopen = () => void seen.opened++;
  source.onmessage = (event) => {
    seen.frames.push(JSON.parse(event.data));
    seen.ids.push(event.lastEventId);
  };
  source.onerror = (error) => void seen.errors.push(error.code);
  t.after(() => source.close());
  seen.at = (token) => until(() => seen.ids.includes(token), `no event ${token} came`);
  seen.closed = () => until(() => source.readyState === EventSource.CLOSED, "it does not close");
  return seen;
}

for (const store of STORES) {
  test(`cut at random bytes, each has every event once and in order (${store})`, {
    timeout: TIMEOUT * 2,
  }, async (t) => {
    const server = await serve(t, { store, rate: 150 });
    // Enough for a frame each time, so that everybody gets on.
    const cut = await proxy(t, server, () => 1500 + random(30_000));
    await server.create("s");
    const watchers = Array.from({ length: 6 }, () => watch(t, `${cut.url}/v1/sessions/s/events`));
    await server.say("s", "weather");
    await server.idle("s");
    await server.say("s", "long 200");
    const { last_event_id: last } = await server.idle("s");
    const log = await server.log("s");
    for (const seen of watchers) {
      await seen.at(last);
      checkWhole(seen.frames, log);
    }
    assert.ok(cut.cuts >= watchers.length, `${cut.cuts} cuts are too few to show anything`);
  });
}

test("an EventSource outlives its server", { timeout: TIMEOUT }, async (t) => {
  const server = await serve(t, { store: "sqlite:turnwire.db" });
  await server.create("s");
  const seen = watch(t, `${server.url}/v1/sessions/s/events`);
  await server.say("s", "weather");
  await seen.at((await server.idle("s")).last_event_id);
  await server.restart();
  await server.say("s", "hello");
  await seen.at((await server.idle("s")).last_event_id);
  checkWhole(seen.frames, await server.log("s"));
});

test("?after= begins behind a token, and a reconnect goes on from the last event", { timeout: TIMEOUT }, async (t) => {
  const server = await serve(t);
  const cut = await proxy(t, server);
  await server.create("s");
  await server.say("s", "hello");
  await server.idle("s");
  const page = await server.ask("GET", "/v1/sessions/s/messages");
  const seen = watch(t, `${cut.url}/v1/sessions/s/events?after=${page.last_event_id}`);
  await until(() => seen.opened === 1, "it does not open");
  await server.say("s", "weather");
  const { last_event_id: middle } = await server.idle("s");
  await seen.at(middle);
  cut.cut();
  await server.say("s", "image");
  const { last_event_id: last } = await server.idle("s");
  await seen.at(last);
  const start = Number(page.last_event_id.split(".")[1]);
  const log = (await server.log("s")).slice(start);
  checkWhole(
    seen.frames.map((frame) => shifted(frame, start)),
    log,
  );
  assert.equal(seen.opened, 2);
  const again = cut.requests.filter((request) => request.includes("/events?after=")).at(-1);
  assert.match(again, new RegExp(`last-event-id: ${middle}`, "i"), "the header wins over ?after=");
});

/** A frame as it would be if the log began there. */
function shifted({ seq, seq_from: from, ...frame }, start) {
  return { ...frame, seq: seq - start, ...(from && { seq_from: from - start }) };
}

test("after=now shows only what comes", { timeout: TIMEOUT }, async (t) => {
  const server = await serve(t);
  await server.create("s");
  await server.say("s", "hello");
  const { last_seq: before } = await server.idle("s");
  const seen = watch(t, `${server.url}/v1/sessions/s/events?after=now`);
  await until(() => seen.opened === 1, "it does not open");
  await server.say("s", "weather");
  await seen.at((await server.idle("s")).last_event_id);
  assert.equal(seen.frames[0].seq, before + 1);
});

test("a session that was deleted and made again is a RESET, then everything", { timeout: TIMEOUT }, async (t) => {
  const server = await serve(t);
  await server.create("s");
  await server.say("s", "hello");
  const old = await server.idle("s");
  const seen = watch(t, `${server.url}/v1/sessions/s/events`);
  await seen.at(old.last_event_id);
  await server.ask("DELETE", "/v1/sessions/s");
  await server.create("s");
  await server.say("s", "weather");
  const made = await server.idle("s");
  await seen.at(made.last_event_id);
  const reset = seen.frames.findIndex((frame) => frame.type === "RESET");
  assert.ok(reset > 0, "it was told to forget");
  assert.equal(seen.frames[reset].epoch, made.epoch);
  assert.notEqual(made.epoch, old.epoch);
  checkWhole(seen.frames.slice(reset + 1), await server.log("s"));
});

test("a session that is gone ends it for good", { timeout: TIMEOUT }, async (t) => {
  const server = await serve(t);
  const cut = await proxy(t, server);
  await server.create("s");
  const seen = watch(t, `${cut.url}/v1/sessions/s/events`);
  await until(() => seen.opened === 1, "it does not open");
  await server.ask("DELETE", "/v1/sessions/s");
  await seen.closed();
  assert.equal(seen.errors.at(-1), 404);
  assert.equal(cut.requests.length, 2);
});

test("until=idle ends, and the one reconnect is told to stay away", { timeout: TIMEOUT }, async (t) => {
  const server = await serve(t, { rate: 200 });
  const cut = await proxy(t, server);
  await server.create("s");
  await server.say("s", "long 40");
  const seen = watch(t, `${cut.url}/v1/sessions/s/events?until=idle`);
  await seen.closed();
  checkWhole(seen.frames, await server.log("s"));
  assert.equal(seen.errors.at(-1), 204);
  assert.equal(cut.requests.length, 2, "it asked once more, and no more");
});

test("a quiet stream has a heartbeat that no client sees as a message", { timeout: TIMEOUT }, async (t) => {
  const server = await serve(t, { settings: '[limits]\nheartbeat = "100ms"\n' });
  await server.create("s");
  const seen = watch(t, `${server.url}/v1/sessions/s/events`);
  const response = await fetch(`${server.url}/v1/sessions/s/events`);
  assert.equal(response.headers.get("content-type"), "text/event-stream");
  assert.equal(response.headers.get("cache-control"), "no-cache, no-transform");
  assert.equal(response.headers.get("x-accel-buffering"), "no");
  let text = "";
  for await (const bytes of response.body) {
    text += Buffer.from(bytes).toString();
    if (text.split(": \n\n").length > 4) break;
  }
  assert.match(text, /^: turnwire\nretry: \d+\n\n(: \n\n)+$/);
  assert.deepEqual([seen.frames, seen.errors], [[], []]);
});

test("a reconnect comes as late as `retry:` says, and not all come at once", { timeout: TIMEOUT }, async (t) => {
  const server = await serve(t);
  const cut = await proxy(t, server);
  await server.create("s");
  const watchers = Array.from({ length: 8 }, () => watch(t, `${cut.url}/v1/sessions/s/events`));
  await until(() => watchers.every((seen) => seen.opened === 1), "they do not open");
  const start = Date.now();
  const back = watchers.map(async (seen) => {
    await until(() => seen.opened === 2, "it does not come back");
    return Date.now() - start;
  });
  cut.cut();
  const times = await Promise.all(back);
  assert.ok(Math.min(...times) >= 950, `${times}`);
  assert.ok(Math.max(...times) <= 6000, `${times}`);
  assert.ok(Math.max(...times) - Math.min(...times) >= 50, `all at once: ${times}`);
});
