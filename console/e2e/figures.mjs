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
      if (!document.querySelector('nav[aria-label="All conversations"] [role="listitem"]')) return;
      listed.disconnect();
      requestAnimationFrame(() => setTimeout(() => (window.usable = performance.now())));
    });
    listed.observe(document, { childList: true, subtree: true });
  });
  const devtools = await context.newCDPSession(page);
  await devtools.send("Performance.enable");
  /**
   * How busy the main thread is while something happens, in percent, and its tasks above 50 ms. In processor time, too: where
   * other programs run at the same time, a task takes as long as it has to wait for them.
   */
  page.busy = async (what) => {
    const read = async () =>
      Object.fromEntries(
        (await devtools.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value]),
      );
    await page.evaluate(() => void (window.long = []));
    await browser.startTracing(page, { categories: ["toplevel"] });
    const from = await read();
    await what();
    const to = await read();
    const cpu = tasksOf(JSON.parse(await browser.stopTracing()));
    const long = await page.evaluate(() => window.long);
    const percent = ((to.TaskDuration - from.TaskDuration) / (to.Timestamp - from.Timestamp)) * 100;
    const share = (cpu.reduce((sum, ms) => sum + ms, 0) / 10 / (to.Timestamp - from.Timestamp)).toFixed(0);
    const describeTasks = (tasks) => {
      const above = tasks.filter((ms) => ms > 50);
      return `${above.length} tasks above 50 ms${above.length ? ` (the longest ${Math.max(...above).toFixed(0)})` : ""}`;
    };
    return `${percent.toFixed(0)}% busy, ${describeTasks(long)}; processor ${share}%, ${describeTasks(cpu)}`;
  };
  page.frame = () => page.evaluate(() => new Promise(requestAnimationFrame));
  await page.goto(url);
  return page;
}

/** The processor time of each task of the pages' main threads, in milliseconds. */
function tasksOf({ traceEvents }) {
  const isMain = ({ ph, name, args }) => ph === "M" && name === "thread_name" && args.name === "CrRendererMain";
  const main = new Set(traceEvents.filter(isMain).map(({ pid, tid }) => `${pid} ${tid}`));
  return traceEvents
    .filter(
      ({ ph, name, pid, tid }) => ph === "X" && name === "ThreadControllerImpl::RunTask" && main.has(`${pid} ${tid}`),
    )
    .map(({ tdur = 0 }) => tdur / 1000);
}

const report = (what, value) => console.log(`${what.padEnd(58)} ${value}`);
const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
/** The median, and the best: the second says more on a machine that does something else as well. */
const times = (values) => `${median(values).toFixed(0)} ms (best ${Math.min(...values).toFixed(0)})`;

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
    report("first contentful paint, empty cache", `${times(found.paint)}; again ${times(found.again)}`);
    report(
      "the list of sessions is there, empty cache",
      `${times(found.usable)}; layout shift ${Math.max(...found.shift).toFixed(3)}`,
    );
    report(
      "JavaScript for that, and all that there is",
      `${(median(found.sent) / 1024).toFixed(1)} KiB, ${(all / 1024).toFixed(1)} KiB in ${sizes.size} files`,
    );
  },

  async reply() {
    const server = await start({ rate: 500 });
    for (const pane of ["", "?pane=timeline", "?pane=trace"]) {
      const id = `reply${pane.replace(/\W/g, "")}`;
      await server.create(id);
      const page = await open(`${server.console}/#/${id}${pane}`);
      await page.getByRole("status", { name: "Connection" }).getByText("Connected").waitFor();
      const busy = await page.busy(async () => {
        await server.say(id, "long 4000");
        await server.idle(id);
      });
      report(`a reply at 500 deltas a second${pane && `, ${pane.slice(6)} open`}`, busy);
      await page.context().close();
    }
  },

  async long() {
    const server = await start();
    await server.create("long");
    const messages = Array.from({ length: 2000 }, (_, at) => ({
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
    for (let from = 0; from < messages.length; from += 500)
      await server.ask("POST", "/v1/sessions/long/events", messages.slice(from, from + 500), {
        "turnwire-producer": "elsewhere.1",
        "content-type": "application/json",
      });
    const page = await open("about:blank");
    report(
      "a session of 2,000 messages is opened",
      await page.busy(async () => {
        await page.goto(`${server.console}/#/long`);
        await page.getByText("Message 1999.").first().waitFor();
      }),
    );
    report(
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
    report(
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

  async trace() {
    const server = await start();
    await server.create("many");
    await server.say("many", "long 49980");
    const { last_seq: last } = await server.idle("many");
    const durations = [];
    for (let run = 0; run < 5; run++) {
      const page = await open("about:blank");
      await page.goto(`${server.console}/`);
      // The app is there, as it is for whoever clicks a conversation in the list.
      await page.waitForFunction(() => window.usable);
      await page.waitForLoadState("networkidle");
      const ms = await page.evaluate(
        () =>
          new Promise((resolve) => {
            const from = performance.now();
            location.hash = "#/many?pane=trace";
            const look = () => {
              const row = document.querySelector(".trace .row");
              const text = document.querySelector(".thread article[data-role='assistant'] .md");
              if (row && text) requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - from)));
              else requestAnimationFrame(look);
            };
            look();
          }),
      );
      durations.push(ms);
      await page.context().close();
    }
    report(`a session of ${last} events is opened with its trace`, times(durations));
  },

  async sessions() {
    const server = await start();
    const all = 10_000;
    const create = async (from) => {
      for (let n = from; n < all; n += 8)
        await server.ask("POST", "/v1/sessions", { id: `s${n}`, title: `conversation ${n} about ${n % 97} things` });
    };
    await Promise.all(Array.from({ length: 8 }, (_, from) => create(from)));
    const page = await open(`${server.console}/`);
    await page.waitForFunction(() => window.usable);
    const loaded = await page.evaluate(async () => {
      const box = document.querySelector(".sessions-list");
      const end = Date.now() + 180_000;
      // To the end once: all of them are then in the list.
      while (Date.now() < end) {
        box.scrollTop = box.scrollHeight;
        await new Promise((resolve) => setTimeout(resolve, 30));
        if (!document.querySelector(".sessions-list > .link.center")) break;
      }
      return Math.round(box.scrollHeight / 52);
    });
    const frames = await page.evaluate(async () => {
      const box = document.querySelector(".sessions-list");
      box.scrollTop = 0;
      const times = [];
      let before = await new Promise(requestAnimationFrame);
      for (let n = 0; n < 240; n++) {
        box.scrollTop += 700;
        const now = await new Promise(requestAnimationFrame);
        times.push(now - before);
        before = now;
      }
      times.sort((a, b) => a - b);
      return { median: times[120], worst: times[239], late: times.filter((ms) => ms > 17.5).length };
    });
    report(
      `${loaded} sessions are scrolled through, 240 frames`,
      `${(1000 / frames.median).toFixed(0)} frames a second; ${frames.late} frames late, the worst ${frames.worst.toFixed(0)} ms`,
    );
    const searched = [];
    for (const words of ["conversation 77", "about 42", "9876", "about 13", "conversation 5", "4321"]) {
      await page.getByRole("searchbox").fill("");
      await page.waitForFunction(() => !document.querySelector(".row-hit, mark"));
      const ms = await page.evaluate(async (words) => {
        const field = document.querySelector('input[type="search"]');
        const startedAt = performance.now();
        Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, words);
        field.dispatchEvent(new Event("input", { bubbles: true }));
        const first = words.split(" ").at(-1);
        for (;;) {
          await new Promise(requestAnimationFrame);
          const rows = [...document.querySelectorAll(".virtual .row-title")];
          if (rows.length > 0 && rows.every((row) => row.textContent.includes(first)))
            return performance.now() - startedAt;
          if (performance.now() - startedAt > 10_000) return Number.NaN;
        }
      }, words);
      searched.push(ms);
    }
    report("a search among them is answered", times(searched));
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
    report(`a log of ${last} events is there after`, `${Date.now() - from} ms`);
    await page
      .getByRole("button", { name: /^Open \d+ events$/ })
      .first()
      .click();
    report(
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
    report(
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
