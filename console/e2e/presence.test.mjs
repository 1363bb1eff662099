// Being there: the tab's title, the connection, signing in, and every size of screen.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { accessible, browserTest, open, picture, program, serve, until, withBrowser } from "./harness.mjs";

withBrowser();

const main = (page) => page.getByRole("main");
const composer = (page) => page.getByRole("textbox", { name: /^Message / });

async function asks(server, id) {
  await server.create(id);
  await server.say(id, "approve");
  await server.when(id, "waiting");
}

test("the tab says how many questions wait, and the inbox does not scroll away", browserTest, async (t) => {
  const server = await serve(t);
  for (let n = 0; n < 60; n++) await server.ask("POST", "/v1/sessions", { id: `s${n}`, title: `number ${n}` });
  for (const id of ["one", "two"]) await asks(server, id);
  const page = await open(t, server);
  await until(async () => (await page.title()).startsWith("(2) "), "the title does not say so");
  const icon = () => page.locator('link[rel="icon"]').getAttribute("href");
  assert.match(await icon(), /^data:image\/svg/);
  const inbox = page.getByRole("region", { name: "Waiting for you" });
  await page.locator(".sessions-list").evaluate((box) => void (box.scrollTop = box.scrollHeight));
  assert.ok(await inbox.evaluate((it) => it.getBoundingClientRect().top >= 0 && it.getBoundingClientRect().bottom > 0));
  for (const id of ["one", "two"])
    await server.ask("POST", `/v1/sessions/${id}/events`, { type: "USER_INTERRUPT", id: "stop", reply_id: "" });
  await until(async () => (await page.title()) === "Turnwire", "the number stays");
  assert.equal(await icon(), "./favicon.svg");
});

test(
  "a hidden tab counts new questions and notifies, also where notifications cannot be shown",
  browserTest,
  async (t) => {
    const server = await serve(t);
    const page = await open(t, server);
    await page.addInitScript(() => {
      let isHidden = false;
      Object.defineProperty(document, "hidden", { get: () => isHidden });
      window.hide = (to) => {
        isHidden = to;
        document.dispatchEvent(new Event("visibilitychange"));
      };
      window.shown = [];
      // As Chrome on Android does.
      window.Notification = class {
        static permission = "granted";
        constructor(title) {
          window.shown.push(title);
          throw new TypeError("Illegal constructor");
        }
      };
      localStorage.setItem("turnwire.notify", "on");
    });
    await page.reload();
    await page.getByText("No conversations yet.").waitFor();
    const requests = [];
    page.on("request", (request) => requests.push(new URL(request.url()).pathname));
    await page.evaluate(() => window.hide(true));
    await asks(server, "one");
    await until(async () => (await page.title()).startsWith("(1) "), "the title of a hidden tab does not count");
    assert.deepEqual(await page.evaluate(() => window.shown), ["execute_trade waits for you"]);
    await asks(server, "two");
    await until(async () => (await page.title()).startsWith("(2) "), "a hidden tab stops counting");
    await main(page).waitFor();
    // Only one list may have been under way when the tab was hidden.
    assert.ok(requests.filter((path) => path === "/v1/sessions").length <= 2, "it lists all sessions while hidden");
    await page.evaluate(() => window.hide(false));
    await page.getByRole("navigation", { name: "All conversations" }).getByRole("listitem").first().waitFor();
  },
);

test("a lost connection is told in words, with a way to retry", browserTest, async (t) => {
  const server = await serve(t, { store: "sqlite:turnwire.db" });
  await server.create("s");
  const page = await open(t, server, { forgives: /ERR_|WebSocket|status of 502|preload assets/ });
  const row = page.getByRole("navigation", { name: "All conversations" }).getByRole("listitem");
  await row.waitFor();
  const host = new URL(server.url).host;
  await server.end();
  await page.getByText("The server cannot be reached.").waitFor();
  assert.equal(await page.getByText(/TypeError|Failed to fetch|undefined|NetworkError/).count(), 0);
  await accessible(page);
  await server.start(host);
  await page.getByRole("button", { name: "Retry now" }).click();
  await page.getByText("The server cannot be reached.").waitFor({ state: "detached" });
  await row.click();
  await page.getByRole("status", { name: "Connection" }).getByText("Connected").waitFor();
});

test("one place shows the connection, and retrying keeps what is being edited", browserTest, async (t) => {
  const server = await serve(t, { store: "sqlite:turnwire.db" });
  await asks(server, "trade");
  const page = await open(t, server, { hash: "#/trade?pane=wire", forgives: /ERR_|WebSocket|status of 502/ });
  const connection = page.getByRole("status", { name: "Connection" });
  await connection.getByText("Connected").waitFor();
  await page.getByRole("treegrid", { name: /^Frames/ }).waitFor();
  await main(page).getByRole("button", { name: "Edit", exact: true }).last().click();
  const field = page.getByRole("textbox", { name: /^Tool input/ });
  await field.fill('{"symbol":"ACME","quantity":3}');
  const host = new URL(server.url).host;
  await server.end();
  await connection.getByText("Reconnecting").waitFor();
  // Long enough for all that asks the server by itself.
  await page.waitForTimeout(5000);
  assert.equal(await page.getByRole("button", { name: "Retry now" }).count(), 1);
  assert.equal(await page.getByText(/cannot be reached|unreachable|interrupted|connection lost/).count(), 0);
  assert.doesNotMatch(await connection.innerText(), /\d/, "each second is announced");
  for (const pane of ["Timeline", "Usage"]) {
    await page.getByRole("tab", { name: pane }).click();
    assert.equal(await page.getByText(/reconnecting/i).count(), 1);
  }
  await accessible(page);
  await server.start(host);
  await page.getByRole("button", { name: "Retry now" }).click();
  await connection.getByText("Connected").waitFor();
  assert.equal(await field.inputValue(), '{"symbol":"ACME","quantity":3}');
  // The question is the same after the restart.
  await page.getByRole("button", { name: "Allow with changes" }).click();
  await main(page).getByText("Done", { exact: true }).waitFor();
});

test("where the list is not shown, what waits is counted and one step away", browserTest, async (t) => {
  const server = await serve(t);
  for (const id of ["trade", "other"]) await asks(server, id);
  const page = await open(t, server, { hash: "#/trade", width: 390, height: 800, mobile: true });
  const back = page.getByRole("button", { name: "All conversations, 1 question waiting" });
  await back.waitFor();
  await page.goto(`${page.url().split("#")[0]}#/trade?pane=trace`);
  const bar = page.locator(".beside .waiting-bar");
  await bar.getByText("execute_trade waits for you").waitFor();
  await accessible(page);
  await picture(page, "waiting-390");
  await bar.getByRole("button", { name: "Show" }).click();
  await main(page).getByRole("button", { name: "Allow once" }).waitFor();
  await until(() => page.evaluate(() => document.activeElement?.dataset.call !== undefined), "the card has no focus");
  // Rows can be touched.
  await page.goto(`${page.url().split("#")[0]}#/`);
  const rows = page.getByRole("navigation", { name: "All conversations" }).getByRole("link");
  await rows.first().waitFor();
  for (const height of await rows.evaluateAll((all) => all.map((it) => it.getBoundingClientRect().height)))
    assert.ok(height >= 44, `a row of ${height} pixels`);
  const [row] = await page
    .getByRole("listitem")
    .evaluateAll((all) => all.filter((it) => it.ariaSetSize).map((it) => [it.ariaPosInSet, it.ariaSetSize]));
  assert.deepEqual(row, ["1", "2"]);

  const wide = await open(t, server, { hash: "#/trade?pane=trace", width: 1000, height: 700 });
  await wide.getByRole("button", { name: "All conversations, 1 question waiting" }).click();
  const list = wide.getByRole("complementary", { name: "Conversations" });
  await list.getByRole("button", { name: "Review execute_trade" }).first().waitFor();
  await accessible(wide);
  await picture(wide, "list-1000");
  await wide.keyboard.press("Escape");
  await list.waitFor({ state: "hidden" });
  assert.match(wide.url(), /#\/trade\?pane=trace$/);
  await main(wide).getByRole("button", { name: "Allow once" }).click({ trial: true });
});

test("signing in is in the middle, focused and explained, and can be remembered", browserTest, async (t) => {
  const settings = execFileSync(program, ["token", "new"], { encoding: "utf8" });
  const token = settings.match(/# (tw_\S+)/)[1];
  const server = await serve(t, { settings: settings.replace(token, "") });
  const page = await open(t, server, { forgives: /status of 401|WebSocket/ });
  const field = page.getByLabel("Token", { exact: true });
  await field.waitFor();
  await until(() => field.evaluate((it) => it === document.activeElement), "it has no focus");
  const { left, right } = await field.evaluate((it) => it.getBoundingClientRect().toJSON());
  assert.ok(left > 300 && right < 1400, "it is not in the middle");
  await main(page).getByText("turnwire token new").waitFor();
  await accessible(page);
  await page.getByRole("checkbox", { name: "Remember me in this browser" }).check();
  await field.fill(token);
  await field.press("Enter");
  await composer(page).waitFor();
  // Another tab of the same browser.
  const other = await page.context().newPage();
  await other.goto(page.url());
  await composer(other).waitFor();
  await page.getByRole("button", { name: "sign out" }).click();
  await field.waitFor();
  assert.equal(
    await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]).includes("tw_")),
    false,
  );
});

const SIZES = [
  { name: "a phone", width: 390, height: 800, mobile: true },
  { name: "400% zoom", width: 320, height: 256 },
  { name: "900 pixels", width: 900, height: 700 },
  { name: "1,100 pixels", width: 1100, height: 700 },
];

for (const { name, ...size } of SIZES)
  for (const pane of ["", "?pane=trace"])
    test(`at ${name}${pane && " with the trace"} a call is decided, and nothing sticks out`, browserTest, async (t) => {
      const server = await serve(t);
      await asks(server, "trade");
      const page = await open(t, server, { hash: `#/trade${pane}`, ...size });
      if (pane) {
        await page.getByRole("treegrid", { name: "Trace" }).getByRole("row").first().waitFor();
        await accessible(page);
        await picture(page, `size-${size.width}-trace`);
        const back = page.getByRole("button", { name: "Conversation", exact: true });
        if (await back.isVisible()) await back.click();
      }
      const allow = main(page).getByRole("button", { name: "Allow once" });
      await allow.waitFor();
      await allow.scrollIntoViewIfNeeded();
      await picture(page, `size-${size.width}${pane && "-beside"}`);
      const fits = await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
      assert.ok(fits, "it is wider than the screen");
      // It can really be clicked: nothing lies over it.
      await allow.click({ trial: true });
      if (size.mobile) {
        const small = await page.evaluate(() =>
          [...document.querySelectorAll("main button, main select, main input, main textarea")]
            .filter((it) => it.checkVisibility({ opacityProperty: true }) && !it.disabled)
            .map((it) => [
              it.getAttribute("aria-label") ?? it.textContent,
              it.getBoundingClientRect().height,
              getComputedStyle(it).fontSize,
              it.tagName,
            ])
            .filter(
              ([, height, font, tag]) =>
                height < 43.5 || (/^(INPUT|TEXTAREA|SELECT)$/.test(tag) && Number.parseFloat(font) < 16),
            ),
        );
        assert.deepEqual(small, []);
      }
      await accessible(page);
      await allow.click();
      await main(page).getByText("Done", { exact: true }).waitFor();
    });

test("without a mouse: from the list to a decision", browserTest, async (t) => {
  const server = await serve(t);
  await asks(server, "trade");
  const page = await open(t, server);
  await page.getByRole("region", { name: "Waiting for you" }).getByRole("button").first().focus();
  await page.keyboard.press("Enter");
  await main(page).getByRole("button", { name: "Allow once" }).waitFor();
  await until(() => page.evaluate(() => document.activeElement?.classList.contains("tool")), "the card has no focus");
  await page.keyboard.press("Tab");
  for (let n = 0; n < 6 && !(await page.evaluate(() => document.activeElement?.textContent === "Allow once")); n++)
    await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await main(page).getByText("Done", { exact: true }).waitFor();
});

test("with reduced motion nothing moves by itself", browserTest, async (t) => {
  const server = await serve(t, { rate: 40 });
  await server.create("s");
  await server.say("s", "long 100000");
  const page = await open(t, server, { hash: "#/s" });
  await page.emulateMedia({ reducedMotion: "reduce" });
  await page.getByRole("group", { name: "Running reply" }).waitFor();
  assert.equal(
    await page.evaluate(() => document.getAnimations().filter(({ playState }) => playState === "running").length),
    0,
  );
});
