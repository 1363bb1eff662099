// Inspector: the events, the scrubber, any wire, and where time and tokens went.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  accessible,
  below,
  browserTest,
  open,
  picture,
  proxy,
  random,
  seed,
  serve,
  TIMEOUT,
  until,
  withBrowser,
} from "./harness.mjs";

withBrowser();
console.log(`to repeat this run: TURNWIRE_SEED=${seed}`);

const events = (page) => page.getByRole("treegrid", { name: "Events" });
const row = (page, type) => events(page).getByRole("row").filter({ hasText: type });
const scrubber = (page) => page.getByRole("slider");
const main = (page) => page.getByRole("main");

/** A session that has seen the weather, and its log. */
async function weather(t, options) {
  const server = await serve(t, options);
  await server.create("s");
  await server.say("s", "weather");
  await server.idle("s");
  return { server, log: await server.log("s") };
}

const becomes = (page, hash) => page.waitForURL((url) => url.hash === hash);

test("the events stand there as they were written, deltas of a block together, and open", browserTest, async (t) => {
  const { server, log } = await weather(t);
  const page = await open(t, server, { hash: "#/s?pane=timeline" });
  const deltas = log.filter(({ type }) => type === "TEXT_BLOCK_DELTA");
  await row(page, "TEXT_BLOCK_DELTA")
    .getByRole("button", { name: `Open ${deltas.length} events` })
    .click();
  await row(page, "TEXT_BLOCK_DELTA").nth(3).waitFor();
  const shown = await row(page, "TEXT_BLOCK_DELTA").nth(2).innerText();
  assert.match(shown, new RegExp(`^${deltas[1].seq}\\s+TEXT_BLOCK_DELTA`));
  await row(page, "TEXT_BLOCK_DELTA")
    .first()
    .getByRole("button", { name: `Close ${deltas.length} events` })
    .click();
  await row(page, "TEXT_BLOCK_DELTA").nth(1).waitFor({ state: "detached" });

  await page.getByRole("button", { name: "Tools", exact: true }).click();
  const types = await events(page).getByRole("row").allInnerTexts();
  assert.ok(types.length > 0 && types.every((text) => text.includes("TOOL_")), types.join("\n"));
  await page.getByRole("button", { name: "Other", exact: true }).click();
  await page.getByText("No events of this kind: Everything else").waitFor();
  await page.getByRole("button", { name: "Show all" }).click();
  await row(page, "MESSAGE").first().waitFor();
  await accessible(page);
});

test("the scrubber takes the conversation back to any event, and live returns", browserTest, async (t) => {
  const { server, log } = await weather(t);
  const page = await open(t, server, { hash: "#/s?pane=timeline" });
  const deltas = log.filter(({ type }) => type === "TEXT_BLOCK_DELTA");
  const text = deltas.map(({ delta }) => delta).join("");
  // More than one word: the tool has said much of it, too.
  const last = text.trim().split(/\s+/).slice(-3).join(" ").replaceAll("*", "");
  await main(page).getByText(last).last().waitFor();

  const middle = deltas[4].seq;
  await scrubber(page).fill(String(middle));
  await becomes(page, `#/s@${middle}?pane=timeline`);
  await page.getByText(`event ${middle} of ${log.length}`).waitFor();
  await main(page).getByText(last).first().waitFor({ state: "detached" });
  await picture(page, "timeline-scrubbed");

  await scrubber(page).focus();
  await page.keyboard.press("ArrowLeft");
  await becomes(page, `#/s@${middle - 1}?pane=timeline`);
  await scrubber(page).fill("1");
  await main(page).getByText("get_weather").waitFor({ state: "detached" });
  await main(page).getByText("weather").first().waitFor();

  await page.getByRole("button", { name: "Live", exact: true }).click();
  await becomes(page, "#/s?pane=timeline");
  await main(page).getByText(last).last().waitFor();
});

test("every event shows what a fold of the log up to it has", browserTest, async (t) => {
  const { server, log } = await weather(t);
  const page = await open(t, server, { hash: "#/s?pane=timeline" });
  const deltas = log.filter(({ type }) => type === "TEXT_BLOCK_DELTA");
  // A scrubber goes no further than what has been loaded.
  await until(
    async () => (await scrubber(page).getAttribute("max")) === String(log.length),
    "the log is not all there",
  );
  // There and back again, in steps of all sizes.
  for (const at of [3, 10, 5, 12, 2].filter((at) => at < deltas.length)) {
    await scrubber(page).fill(String(deltas[at].seq));
    const [now, next] = [at + 1, at + 2].map((end) =>
      deltas
        .slice(0, end)
        .map(({ delta }) => delta)
        .join("")
        .replaceAll(/[*\s]+/g, ""),
    );
    const shows = async () => (await main(page).innerText()).replaceAll(/[*\s]+/g, "");
    await until(async () => {
      const text = await shows();
      return text.includes(now) && !text.includes(next);
    }, `at ${at} it is not: ${now}`);
  }
});

test("a link shows what its sender saw, and j and k go on from there", browserTest, async (t) => {
  const { server, log } = await weather(t);
  const call = log.find(({ type }) => type === "TOOL_CALL_START").seq;
  const page = await open(t, server, { hash: `#/s@${call}?pane=timeline` });
  const chosen = events(page).getByRole("row", { selected: true });
  await chosen.waitFor();
  assert.match(await chosen.innerText(), /TOOL_CALL_START/);
  const json = page.getByRole("figure", { name: `Event ${call}` });
  assert.deepEqual(JSON.parse(await json.locator("pre").innerText()), log[call - 1]);
  await json.getByRole("button", { name: `Copy Event ${call}` }).click();
  await until(
    async () =>
      JSON.stringify(JSON.parse((await page.evaluate(() => navigator.clipboard.readText())) || "0")) ===
      JSON.stringify(log[call - 1]),
    "it was not copied",
  );

  await page.keyboard.press("k");
  await becomes(page, `#/s@${call - 1}?pane=timeline`);
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  // A row of deltas is the state behind them all.
  const behind = log.findIndex(({ type }, at) => at >= call && type !== "TOOL_CALL_DELTA");
  await becomes(page, `#/s@${behind}?pane=timeline`);
  await page.keyboard.press("Enter");
});

test("fifty thousand events scroll, and a scrubber goes through them", {
  ...browserTest,
  timeout: TIMEOUT * 3,
}, async (t) => {
  const server = await serve(t);
  await server.create("s");
  // Neighbours of one block are one row: blocks of an agent elsewhere are many.
  const reply_id = "r";
  const written = [{ type: "REPLY_START", reply_id, session_id: "s", name: "elsewhere" }];
  for (let at = 0; written.length < 49_999; at++) {
    const block_id = `b${at}`;
    written.push(
      { type: "TEXT_BLOCK_START", reply_id, block_id },
      { type: "TEXT_BLOCK_DELTA", reply_id, block_id, delta: `word${at} ` },
      { type: "TEXT_BLOCK_END", reply_id, block_id },
    );
  }
  written.push({ type: "REPLY_END", reply_id, session_id: "s" });
  for (let from = 0; from < written.length; from += 5000) {
    const some = written
      .slice(from, from + 5000)
      .map((event, at) => ({ id: `e${from + at}`, created_at: new Date(1e12 + from + at).toISOString(), ...event }));
    await server.ask("POST", "/v1/sessions/s/events", some, {
      "turnwire-producer": "elsewhere.1",
      "content-type": "application/json",
    });
  }
  const page = await open(t, server, { hash: "#/s?pane=timeline" });
  const all = written.length;
  await page.getByText(`${all} events`, { exact: true }).waitFor();
  const list = events(page);
  assert.equal(await list.getAttribute("aria-rowcount"), String(all));
  await row(page, "REPLY_END").waitFor();

  // As somebody scrolls: in steps, each of which shows the rows that belong there.
  const height = await list.evaluate((list) => list.scrollHeight);
  for (let step = 0; step <= 20; step++) {
    const top = Math.round(((20 - step) * height) / 20);
    await list.evaluate((list, top) => void (list.scrollTop = top), top);
    const index = await list.evaluate((list) =>
      Math.floor((list.scrollTop + list.clientHeight / 2) / (list.scrollHeight / Number(list.ariaRowCount))),
    );
    await list.locator(`[aria-rowindex="${index + 1}"]`).waitFor();
  }
  const rows = await list.getByRole("row").count();
  assert.ok(rows < 120, `${rows} rows are in the page`);

  for (const at of [40_000, 100, 25_000, 24_999]) {
    await scrubber(page).fill(String(at));
    await page.getByText(`event ${at} of ${all}`).waitFor();
    await list
      .getByRole("row", { selected: true })
      .filter({ hasText: String(at) })
      .waitFor();
  }
});

test("a stream that is seen live grows at the end, and who has scrolled up stays there", browserTest, async (t) => {
  const server = await serve(t, { rate: 100 });
  await server.create("s");
  await server.say("s", "weather");
  await server.idle("s");
  const page = await open(t, server, { hash: "#/s?pane=timeline", height: 500 });
  await row(page, "REPLY_END").waitFor();
  await server.say("s", "long 60");
  await server.idle("s");
  const last = (await server.log("s")).length;
  await page.getByText(`${last} events`, { exact: true }).waitFor();
  await row(page, "REPLY_END")
    .filter({ hasText: String(last) })
    .waitFor();
  await events(page).evaluate((list) => void (list.scrollTop = 0));
  await row(page, "user: weather").waitFor();
  await server.say("s", "hello");
  await server.idle("s");
  await page.getByText(`${(await server.log("s")).length} events`, { exact: true }).waitFor();
  assert.ok(await row(page, "user: weather").isVisible());
});

/** What a browser says of a connection that was cut. */
const cuts = /ERR_CONNECTION|ERR_EMPTY|ERR_INCOMPLETE|ERR_SOCKET|WebSocket|status of 502/;

test("a session that is another one after a restart leaves nothing of the one before", browserTest, async (t) => {
  const server = await serve(t, { store: "sqlite:other.db" });
  const host = new URL(server.url).host;
  await server.create("s");
  await server.say("s", "hello");
  await server.idle("s");
  await server.end();
  const store = server.options.indexOf("sqlite:other.db");
  server.options[store] = "sqlite:turnwire.db";
  await server.start(host);
  await server.create("s");
  await server.say("s", "weather");
  await server.idle("s");
  const page = await open(t, server, { hash: "#/s?pane=timeline", forgives: cuts });
  await row(page, "user: weather").waitFor();
  await server.end();
  server.options[store] = "sqlite:other.db";
  await server.start(host);
  await row(page, "user: hello").waitFor();
  await page.getByText(`${(await server.log("s")).length} events`, { exact: true }).waitFor();
  assert.equal(await row(page, "user: weather").count(), 0);
  await main(page).getByRole("group", { name: "Tool get_weather" }).waitFor({ state: "detached" });
});

test("cut at random bytes, the timeline has every event once and in order", browserTest, async (t) => {
  const server = await serve(t, { rate: 200 });
  await server.create("s");
  let calm = true;
  const cut = await proxy(t, server, () => (calm ? undefined : 2000 + random(30_000)));
  const page = await open(
    t,
    process.env.CONSOLE_DIST ? await below(t, { url: cut.url }, "", process.env.CONSOLE_DIST) : cut.url,
    { hash: "#/s?pane=timeline", forgives: cuts },
  );
  await page.getByText("No events yet.").waitFor();
  calm = false;
  cut.cut();
  await server.say("s", "long 400");
  await until(() => cut.cuts >= 3, "it was not cut");
  await server.idle("s");
  calm = true;
  cut.cut();
  const log = await server.log("s");
  await page.getByText(`${log.length} events`, { exact: true }).waitFor();
  await row(page, "TEXT_BLOCK_DELTA")
    .getByRole("button", { name: /^Open 400 events$/ })
    .click();
  const list = events(page);
  const rows = [];
  for (let top = 0; rows.length < log.length; top += 200) {
    await list.evaluate((list, top) => void (list.scrollTop = top), top);
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    for (const text of await list.locator('[role="row"]:not([aria-expanded])').allInnerTexts()) {
      const [seq, type] = text.split(/\s+/);
      if (Number(seq) === rows.length + 1) rows.push(type);
    }
    assert.ok(top < log.length * 100, `it goes no further than ${rows.length}`);
  }
  assert.deepEqual(
    rows,
    log.map(({ type }) => type),
  );
});

test("the same events on every wire, with a line to get them", browserTest, async (t) => {
  const { server, log } = await weather(t);
  const call = log.find(({ type }) => type === "TOOL_CALL_START").seq;
  const page = await open(t, server, { hash: `#/s@${call}?pane=wire`, width: 1600 });
  const origin = new URL(page.url()).origin;
  const wires = {
    "ag-ui": "TOOL_CALL_START",
    "ai-sdk": "tool-input-start",
    blocks: "content_block_start",
    agentscope: "TOOL_CALL_START",
    "agentscope-java": "TOOL_CALL_START",
    turnwire: "TOOL_CALL_START",
  };
  for (const [wire, type] of Object.entries(wires)) {
    await page.getByRole("combobox", { name: "Protocol" }).selectOption(wire);
    const frames = page.getByRole("treegrid", { name: `Frames on ${wire}` });
    await frames.getByRole("row", { selected: true }).filter({ hasText: type }).waitFor();
    const sent = page.getByRole("figure", { name: `On ${wire}` });
    assert.ok((await sent.innerText()).includes(type));
  }
  for (const wire of ["openai-chat", "openai-responses", "anthropic"]) {
    await page.getByRole("combobox", { name: "Protocol" }).selectOption(wire);
    await page
      .getByRole("treegrid", { name: `Frames on ${wire}` })
      .getByRole("row")
      .first()
      .waitFor();
  }

  await page.getByRole("combobox", { name: "Protocol" }).selectOption("ag-ui");
  const snippet = page.getByRole("figure", { name: "How to receive this stream" });
  assert.equal(
    (await snippet.locator("pre").innerText()).trim(),
    `curl -N '${origin}/v1/sessions/s/events?wire=ag-ui'`,
  );
  await snippet.getByRole("button", { name: "JavaScript" }).click();
  assert.match(await snippet.locator("pre").innerText(), /new HttpAgent/);

  await page.getByRole("button", { name: "Wide" }).click();
  await page.getByRole("figure", { name: `Event ${call}` }).waitFor();
  const [left, right] = await Promise.all(
    [`Event ${call}`, "On ag-ui"].map((name) => page.getByRole("figure", { name, exact: true }).boundingBox()),
  );
  assert.ok(right.x >= left.x + left.width - 1 && Math.abs(right.y - left.y) < 2, "they stand beside each other");
  await accessible(page);
  await picture(page, "wire");
});

test("the usage says how many tokens it took, and where the time went", browserTest, async (t) => {
  const { server } = await weather(t, { rate: 300 });
  await server.say("s", "team");
  await server.idle("s");
  await server.say("s", "approve");
  await server.when("s", "waiting");
  const page = await open(t, server, { hash: "#/s?pane=usage", dark: true });
  const pane = page.getByRole("tabpanel", { name: "Usage" });
  await pane.getByText("so far").waitFor();
  const { usage } = await server.session("s");
  const [input, output] = await Promise.all(
    ["Tokens in", "Tokens out"].map((name) =>
      pane.locator("dl > div").filter({ hasText: name }).locator("dd").innerText(),
    ),
  );
  // The same total as in the list, the header and the API: an open reply counts when it has ended.
  assert.deepEqual([Number(input), Number(output)], [usage.input_tokens, usage.output_tokens]);
  const total = `${(usage.input_tokens + usage.output_tokens).toLocaleString("en")} tokens`;
  await main(page).getByRole("group", { name: "About this conversation" }).getByText(total).waitFor();
  await page.getByRole("navigation", { name: "All conversations" }).getByText(total).waitFor();
  assert.match(await pane.getByRole("img", { name: /^Tokens over time/ }).getAttribute("aria-label"), /6 model calls/);
  await pane
    .getByRole("button", { name: /^demo .* out$/ })
    .nth(1)
    .click();
  // Its steps are in the trace.
  await page.getByRole("treegrid", { name: "Trace" }).getByText("researcher", { exact: true }).waitFor();
  await accessible(page);
  await picture(page, "usage-dark");
});

test("a session that is not there says so, and is there once it is", browserTest, async (t) => {
  const server = await serve(t);
  const page = await open(t, server, { hash: "#/nobody?pane=timeline", forgives: /404/ });
  const pane = page.getByRole("complementary", { name: "Inspector" });
  await pane.getByRole("alert").waitFor();
  await server.create("nobody");
  await server.say("nobody", "hello");
  await server.idle("nobody");
  await pane.getByRole("button", { name: "Try again" }).click();
  await row(page, "user: hello").waitFor();
});

test("it all works below a path", browserTest, async (t) => {
  const { server, log } = await weather(t);
  const url = await below(t, server, "/agents/turnwire", process.env.CONSOLE_DIST);
  const page = await open(t, `${url}/`.replace(/\/$/, ""), { hash: "#/s?pane=timeline" });
  await page.getByText(`${log.length} events`, { exact: true }).waitFor();
  await server.say("s", "hello");
  await row(page, "user: hello").waitFor();
  await page.getByRole("tab", { name: "Wire" }).click();
  await page.getByText(`curl -N '${url}/v1/sessions/s/events`).waitFor();
});
