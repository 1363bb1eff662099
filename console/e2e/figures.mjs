// The figures of the console, measured in a real browser: `TURNWIRE=… node e2e/figures.mjs`. They say how it
// is on this machine, at this moment; nothing fails.

import { accessSync } from "node:fs";
import { chromium } from "playwright-core";
import { serve, until } from "../../tests/peers/node/serving.mjs";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
accessSync(executablePath);
const ends = [];
const t = { after: (end) => void ends.push(end) };
const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
const browser = await chromium.launch({ executablePath, args });

async function open(url) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 860 } });
  const page = await context.newPage();
  await page.addInitScript(() => {
    window.long = [];
    new PerformanceObserver((list) => window.long.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask", buffered: true });
  });
  const devtools = await context.newCDPSession(page);
  await devtools.send("Performance.enable");
  /** How busy the main thread is while something happens, in percent, and its tasks above 50 ms. */
  page.busy = async (what) => {
    const read = async () => Object.fromEntries((await devtools.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value]));
    await page.evaluate(() => void (window.long = []));
    const from = await read();
    await what();
    const to = await read();
    const long = await page.evaluate(() => window.long);
    const percent = ((to.TaskDuration - from.TaskDuration) / (to.Timestamp - from.Timestamp)) * 100;
    return `${percent.toFixed(0)}% busy, ${long.length} tasks above 50 ms${long.length ? ` (the longest ${Math.max(...long).toFixed(0)})` : ""}`;
  };
  await page.goto(url);
  return page;
}

const say = (what, value) => console.log(`${what.padEnd(58)} ${value}`);

try {
  const server = await serve(t, { rate: 500 });

  let sent = 0;
  const first = await open("about:blank");
  first.on("response", async (response) => {
    if (response.url().endsWith(".js")) sent += (await response.request().sizes()).responseBodySize;
  });
  const paints = [];
  for (let run = 0; run < 5; run++) {
    sent = 0;
    await first.goto("about:blank");
    await first.goto(`${server.url}/`, { waitUntil: "networkidle" });
    paints.push(await first.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN));
  }
  const fresh = await open(`${server.url}/`);
  const cold = await until(() => fresh.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime), "nothing is painted");
  say("first contentful paint, empty cache", `${cold.toFixed(0)} ms; again ${paints.sort((a, b) => a - b)[2].toFixed(0)} ms`);
  const scripts = await (await fetch(`${server.url}/`)).text();
  let bytes = 0;
  for (const [, path] of scripts.matchAll(/src="\.\/(assets\/[^"]+\.js)"/g)) {
    const { headers } = await fetch(`${server.url}/${path}`, { method: "GET", headers: { "accept-encoding": "gzip" } });
    bytes += Number(headers.get("content-length"));
  }
  say("JavaScript sent", `${(bytes / 1024).toFixed(1)} KiB`);

  for (const pane of ["", "?pane=timeline"]) {
    const id = `reply${pane.length}`;
    await server.create(id);
    const page = await open(`${server.url}/#/${id}${pane}`);
    await page.getByRole("status", { name: "Connection" }).getByText("live").waitFor();
    const busy = await page.busy(async () => {
      await server.say(id, "long 4000");
      await server.idle(id);
    });
    say(`a reply at 500 deltas a second${pane && ", timeline open"}`, busy);
    await page.context().close();
  }

  const many = await serve(t);
  await many.create("many");
  await many.say("many", "long 100000");
  await many.idle("many");
  const from = Date.now();
  const page = await open(`${many.url}/#/many?pane=timeline`);
  const { last_seq: last } = await many.session("many");
  let loaded = 0;
  await page.getByText(`${last} events`, { exact: true }).waitFor({ timeout: 60_000 });
  loaded = Date.now() - from;
  say(`a log of ${last} events is there after`, `${loaded} ms`);
  await page.getByRole("button", { name: /^Open \d+ events$/ }).first().click();
  say("its rows, all opened, are scrolled through", await page.busy(async () => {
    for (let step = 0; step < 60; step++) {
      await page.getByRole("treegrid").evaluate((list, share) => void (list.scrollTop = list.scrollHeight * share), step / 60);
      await page.evaluate(() => new Promise(requestAnimationFrame));
    }
  }));
  await page.getByRole("slider").fill(String(Math.floor(last / 2)));
  say("the scrubber is dragged, 60 steps", await page.busy(async () => {
    for (let step = 0; step < 60; step++) {
      await page.getByRole("slider").fill(String(Math.floor(last / 3) - step * 37));
      await page.evaluate(() => new Promise(requestAnimationFrame));
    }
  }));
} finally {
  await browser.close();
  for (const end of ends.reverse()) await end();
}
