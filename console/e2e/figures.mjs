// The figures of the console, measured in a real browser: `TURNWIRE=… node e2e/figures.mjs [paint] [reply] [long]
// [log]`. They say how it is on this machine, at this moment; nothing fails. `CONSOLE_DIST=dist` measures a build
// that the program does not have yet.

import { accessSync } from "node:fs";
import { chromium } from "playwright-core";
import { below, serve } from "./harness.mjs";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
accessSync(executablePath);
const wanted = process.argv.slice(2);
const ends = [];
const t = { after: (end) => void ends.push(end) };
const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
const browser = await chromium.launch({ executablePath, args });

/** A server, and where its console is. */
async function start(options) {
  const server = await serve(t, options);
  const dist = process.env.CONSOLE_DIST;
  server.console = dist ? await below(t, server, "", dist) : server.url;
  return server;
}

/** A page with an empty cache. */
async function open(url) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 860 } });
  const page = await context.newPage();
  await page.addInitScript(() => {
    window.long = [];
    window.shifts = 0;
    new PerformanceObserver((list) => window.long.push(...list.getEntries().map(({ duration }) => duration))).observe({
      type: "longtask",
      buffered: true,
    });
    new PerformanceObserver((list) => list.getEntries().forEach(({ value }) => (window.shifts += value))).observe({
      type: "layout-shift",
      buffered: true,
    });
    // It can be used when its first session is listed, and the picture of that is made.
    const listed = new MutationObserver(() => {
      if (!document.querySelector('nav[aria-label="All conversations"] li')) return;
      listed.disconnect();
      requestAnimationFrame(() => setTimeout(() => (window.usable = performance.now())));
    });
    listed.observe(document, { childList: true, subtree: true });
  });
  const devtools = await context.newCDPSession(page);
  await devtools.send("Performance.enable");
  /** How busy the main thread is while something happens, in percent, and its tasks above 50 ms. */
  page.busy = async (what) => {
    const read = async () =>
      Object.fromEntries(
        (await devtools.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value]),
      );
    await page.evaluate(() => void (window.long = []));
    const from = await read();
    await what();
    const to = await read();
    const long = await page.evaluate(() => window.long);
    const percent = ((to.TaskDuration - from.TaskDuration) / (to.Timestamp - from.Timestamp)) * 100;
    return `${percent.toFixed(0)}% busy, ${long.length} tasks above 50 ms${long.length ? ` (the longest ${Math.max(...long).toFixed(0)})` : ""}`;
  };
  page.frame = () => page.evaluate(() => new Promise(requestAnimationFrame));
  await page.goto(url);
  return page;
}

const say = (what, value) => console.log(`${what.padEnd(58)} ${value}`);
const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];

/** What the page and its scripts name, compressed. */
async function scripts(url) {
  const sizes = new Map();
  const look = async (path) => {
    const answer = await fetch(`${url}/${path}`, { headers: { "accept-encoding": "gzip" } });
    if (path !== "") sizes.set(path, Number(answer.headers.get("content-length")));
    for (const [, name] of (await answer.text()).matchAll(/["'`](?:\.\/)?(?:assets\/)?([\w-]+\.js)["'`]/g)) {
      if (!sizes.has(`assets/${name}`)) await look(`assets/${name}`);
    }
  };
  await look("");
  return sizes;
}

const figures = {
  async paint() {
    const server = await start();
    for (const id of ["one", "two", "three"]) await server.create(id);
    const found = { paint: [], usable: [], again: [], sent: [], shift: [] };
    for (let run = 0; run < 9; run++) {
      const page = await open("about:blank");
      const read = async () => {
        await page.goto(`${server.console}/`, { waitUntil: "networkidle" });
        await page.waitForFunction(() => window.usable && performance.getEntriesByName("first-contentful-paint")[0]);
        return page.evaluate(() => {
          const scripts = performance
            .getEntriesByType("resource")
            .filter(({ name, startTime }) => name.endsWith(".js") && startTime < window.usable);
          return [
            performance.getEntriesByName("first-contentful-paint")[0].startTime,
            window.usable,
            window.shifts,
            scripts.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0),
          ];
        });
      };
      const [paint, usable, shift, sent] = await read();
      found.paint.push(paint);
      found.usable.push(usable);
      found.shift.push(shift);
      found.sent.push(sent);
      await page.goto("about:blank");
      found.again.push((await read())[0]);
      await page.context().close();
    }
    const sizes = await scripts(server.console);
    const all = [...sizes.values()].reduce((sum, size) => sum + size, 0);
    say(
      "first contentful paint, empty cache",
      `${middle(found.paint).toFixed(0)} ms; again ${middle(found.again).toFixed(0)} ms`,
    );
    say(
      "the list of sessions is there, empty cache",
      `${middle(found.usable).toFixed(0)} ms; layout shift ${Math.max(...found.shift).toFixed(3)}`,
    );
    say(
      "JavaScript for that, and all that there is",
      `${(middle(found.sent) / 1024).toFixed(1)} KiB, ${(all / 1024).toFixed(1)} KiB in ${sizes.size} files`,
    );
  },

  async reply() {
    const server = await start({ rate: 500 });
    for (const pane of ["", "?pane=timeline"]) {
      const id = `reply${pane.length}`;
      await server.create(id);
      const page = await open(`${server.console}/#/${id}${pane}`);
      await page.getByRole("status", { name: "Connection" }).getByText("live").waitFor();
      const busy = await page.busy(async () => {
        await server.say(id, "long 4000");
        await server.idle(id);
      });
      say(`a reply at 500 deltas a second${pane && ", timeline open"}`, busy);
      await page.context().close();
    }
  },

  async long() {
    const server = await start();
    await server.create("long");
    const told = Array.from({ length: 2000 }, (_, at) => ({
      type: "MESSAGE",
      id: `m${at}`,
      created_at: new Date(1e12 + at * 1000).toISOString(),
      message: {
        id: `m${at}`,
        name: at % 2 ? "demo" : "user",
        role: at % 2 ? "assistant" : "user",
        content: [{ type: "text", id: `t${at}`, text: `Message ${at}. `.repeat(1 + (at % 9)) }],
        finished_at: new Date(1e12 + at * 1000).toISOString(),
        finished_reason: "completed",
      },
    }));
    for (let from = 0; from < told.length; from += 500)
      await server.ask("POST", "/v1/sessions/long/events", told.slice(from, from + 500), {
        "turnwire-producer": "elsewhere.1",
        "content-type": "application/json",
      });
    const page = await open("about:blank");
    say(
      "a session of 2,000 messages is opened",
      await page.busy(async () => {
        await page.goto(`${server.console}/#/long`);
        await page.getByText("Message 1999.").first().waitFor();
      }),
    );
    say(
      "all of it is scrolled through",
      await page.busy(async () => {
        const up = () =>
          page.evaluate(() => {
            document.querySelector(".thread").scrollTop -= 700;
            return document.querySelector(".earlier") !== null;
          });
        for (let steps = 0; steps < 3000 && (await up()); steps++) await page.frame();
      }),
    );
    say(
      "and back down to the end",
      await page.busy(async () => {
        for (let step = 0; step <= 60; step++) {
          await page.evaluate((share) => {
            const thread = document.querySelector(".thread");
            thread.scrollTop = thread.scrollHeight * share;
          }, step / 60);
          await page.frame();
        }
      }),
    );
  },

  async log() {
    const many = await start();
    await many.create("many");
    await many.say("many", "long 100000");
    await many.idle("many");
    const from = Date.now();
    const page = await open(`${many.console}/#/many?pane=timeline`);
    const { last_seq: last } = await many.session("many");
    await page.getByText(`${last} events`, { exact: true }).waitFor({ timeout: 60_000 });
    say(`a log of ${last} events is there after`, `${Date.now() - from} ms`);
    await page
      .getByRole("button", { name: /^Open \d+ events$/ })
      .first()
      .click();
    say(
      "its rows, all opened, are scrolled through",
      await page.busy(async () => {
        for (let step = 0; step < 60; step++) {
          await page
            .getByRole("treegrid")
            .evaluate((list, share) => void (list.scrollTop = list.scrollHeight * share), step / 60);
          await page.frame();
        }
      }),
    );
    await page.getByRole("slider").fill(String(Math.floor(last / 2)));
    say(
      "the scrubber is dragged, 60 steps",
      await page.busy(async () => {
        for (let step = 0; step < 60; step++) {
          await page.getByRole("slider").fill(String(Math.floor(last / 3) - step * 37));
          await page.frame();
        }
      }),
    );
  },
};

try {
  for (const [name, measure] of Object.entries(figures))
    if (wanted.length === 0 || wanted.includes(name)) await measure();
} finally {
  await browser.close();
  for (const end of ends.reverse()) await end();
}
