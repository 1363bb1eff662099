// Texts that want to be more than text, in every place where foreign text appears: nothing runs, nothing is fetched, and
// nothing hides a part of a decision.

import assert from "node:assert/strict";
import { test } from "node:test";
import { browserTest, open, serve, TIMEOUT, until, withBrowser } from "./harness.mjs";
import { TEXTS } from "./hostile-texts.mjs";

withBrowser();

const HIDDEN = new Set(
  "\u00ad\u061c\u200b\u200c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2028\u2029\u2066\u2067\u2068\u2069\u2800\ufeff\u001b\u{e0041}\u{e0042}",
);
const hiddenIn = (text) => [...text].filter((sign) => HIDDEN.has(sign));

/** How many characters can be seen. */
const seen = (text) => text.replaceAll(/[\s\u2800]+/g, "").length;

test("hostile texts do nothing anywhere", { ...browserTest, timeout: TIMEOUT * 6 }, async (t) => {
  assert.ok(TEXTS.length >= 60, `${TEXTS.length} texts`);
  const server = await serve(t);
  const SIZE = 13;
  for (let from = 0; from < TEXTS.length; from += SIZE) {
    const some = TEXTS.slice(from, from + SIZE);
    const id = `h${from}`;
    await server.ask("POST", "/v1/sessions", { id, agent: "external", title: some.join(" ").slice(0, 900) });
    const own = { reply_id: `r${from}` };
    const calls = some.map((text, n) => ({
      type: "tool_call",
      id: `c${from + n}`,
      name: text.slice(0, 300),
      title: text.slice(0, 300),
      input: JSON.stringify({ [text.slice(0, 300)]: text, command: `the end ${from + n}` }),
      state: "asking",
      suggested_rules: [
        {
          tool_name: text.slice(0, 300),
          rule_content: text.slice(0, 300),
          behavior: "allow",
          description: text.slice(0, 300),
        },
      ],
    }));
    const events = [
      ...some.map((text, n) => ({
        type: "MESSAGE",
        message: {
          id: `m${from + n}`,
          name: text.slice(0, 200),
          role: "user",
          content: [{ type: "text", id: `t${from + n}`, text }],
        },
      })),
      { type: "REPLY_START", ...own, name: some[0].slice(0, 200) },
      ...some.flatMap((text, n) => [
        { type: "TEXT_BLOCK_START", ...own, block_id: `b${n}` },
        { type: "TEXT_BLOCK_DELTA", ...own, block_id: `b${n}`, delta: text },
        { type: "TEXT_BLOCK_END", ...own, block_id: `b${n}` },
        { type: "TOOL_CALL_START", ...own, tool_call_id: `o${from + n}`, tool_call_name: text.slice(0, 300) },
        { type: "TOOL_CALL_END", ...own, tool_call_id: `o${from + n}` },
        { type: "TOOL_RESULT_START", ...own, tool_call_id: `o${from + n}`, tool_call_name: "out" },
        { type: "TOOL_RESULT_TEXT_DELTA", ...own, tool_call_id: `o${from + n}`, delta: text },
        { type: "TOOL_RESULT_END", ...own, tool_call_id: `o${from + n}`, state: "success" },
      ]),
      ...calls.flatMap(({ id: call, name, input }) => [
        { type: "TOOL_CALL_START", ...own, tool_call_id: call, tool_call_name: name },
        { type: "TOOL_CALL_DELTA", ...own, tool_call_id: call, delta: input },
        { type: "TOOL_CALL_END", ...own, tool_call_id: call },
      ]),
      { type: "REQUIRE_USER_CONFIRM", ...own, tool_calls: calls },
    ].map((event, n) => ({ id: `${id}-${n}`, ...event }));
    await server.ask("POST", `/v1/sessions/${id}/events`, events, { "turnwire-producer": "tests.1" });
    await server.when(id, "waiting");

    const page = await open(t, server, { hash: `#/${id}?pane=timeline`, forgives: /Maximum call stack/ });
    page.on("dialog", () => assert.fail("a dialog opened"));
    const cards = page.locator(".tool:has(.approval)");
    await until(async () => (await cards.count()) === some.length, `not all cards of ${id} are there`);
    await page.getByRole("treegrid", { name: "Events" }).getByRole("row").first().waitFor();
    const found = await cards.evaluateAll((cards) =>
      cards.map((card) => {
        const box = card.querySelector(".json");
        const [input, actions] = [box.getBoundingClientRect(), card.querySelector(".actions").getBoundingClientRect()];
        return {
          call: card.dataset.call,
          text: box.textContent,
          isWhole: box.scrollHeight <= box.clientHeight + 1 && box.scrollWidth <= box.clientWidth + 1,
          fits: card.scrollWidth <= card.clientWidth,
          isBelow: input.bottom <= actions.top + 1,
          buttons: [...card.querySelectorAll("button")].map((button) => button.textContent.trim()).filter(Boolean),
          name: card.querySelector(".tool-name").textContent,
        };
      }),
    );
    for (const [n, { call, text, isWhole, fits, isBelow, buttons, name }] of found.entries()) {
      const which = `${call}: ${JSON.stringify(some[n].slice(0, 60))}`;
      assert.ok(isWhole, `a part of the input is hidden: ${which}`);
      assert.ok(fits, `something sticks out of the card: ${which}`);
      assert.ok(isBelow, `the buttons are not below the input: ${which}`);
      assert.ok(text.includes(`the end ${from + n}`), `the end is missing: ${which}`);
      assert.equal(buttons.filter((text) => text === "Allow once").length, 1, `there is another button: ${which}`);
      assert.deepEqual(hiddenIn(text + name), [], `it is not seen: ${which}`);
      if (some[n].startsWith("е")) assert.match(name, /mixed alphabets/);
      assert.ok(seen(name) > 0, `it has no name: ${which}`);
    }
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.ok(
      await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
      "it is wider than the page",
    );
    // No link leads to a script, and none anywhere without its address to be seen.
    const links = await page
      .locator("main a[href]")
      .evaluateAll((all) => all.map((a) => [a.protocol, a.title, a.href]));
    for (const [protocol, title, href] of links) {
      assert.match(protocol, /^(https?|mailto):$/);
      if (!href.includes("127.0.0.1")) assert.ok(title !== "", href);
    }
    await page.getByRole("tab", { name: "Trace" }).click();
    await page.getByRole("treegrid", { name: "Trace" }).getByRole("row").first().waitFor();
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.deepEqual(hiddenIn(await page.title()), []);
    // The same texts as reasons of decisions, and as the client that made them.
    await server.ask("POST", `/v1/sessions/${id}/events`, {
      type: "USER_CONFIRM_RESULT",
      id: `${id}-no`,
      reply_id: own.reply_id,
      confirm_results: calls.map(({ id: call, input }, n) => ({
        confirmed: false,
        tool_call: { id: call, input },
        message: some[n].slice(0, 900),
      })),
      metadata: { client: some.at(-1).slice(0, 100) },
    });
    const notes = page.getByRole("group", { name: "Decision" });
    await until(async () => (await notes.count()) === some.length, "not all decisions are there");
    for (const note of await notes.allTextContents()) assert.deepEqual(hiddenIn(note), []);
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    await page.close();
  }
});

test("hostile texts do nothing in the other places", { ...browserTest, timeout: TIMEOUT * 6 }, async (t) => {
  const server = await serve(t, { rate: 100 });
  const SIZE = 30;
  const ids = [];
  for (let from = 0; from < TEXTS.length; from += SIZE) {
    const some = TEXTS.slice(from, from + SIZE);
    const id = `p${from}`;
    ids.push(id);
    await server.ask("POST", "/v1/sessions", { id, agent: "external", title: some.join(" ").slice(0, 900) });
    const data = Buffer.from("text").toString("base64");
    const events = some.flatMap((text, n) => {
      const own = { reply_id: `r${from + n}` };
      const name = text.slice(0, 200);
      return [
        {
          type: "MESSAGE",
          message: {
            id: `m${from + n}`,
            name: "user",
            role: "user",
            content: [
              { type: "data", id: "d", name, source: { type: "base64", media_type: "text/plain", data } },
              { type: "text", id: "t", text: `needle ${text.slice(0, 900)}` },
            ],
          },
        },
        { type: "REPLY_START", ...own, name },
        { type: "THINKING_BLOCK_START", ...own, block_id: "b" },
        { type: "THINKING_BLOCK_DELTA", ...own, block_id: "b", delta: text },
        { type: "THINKING_BLOCK_END", ...own, block_id: "b" },
        { type: "HINT_BLOCK", ...own, block_id: "h", source: name, hint: text },
        {
          type: "REPLY_END",
          ...own,
          finished_reason: "error",
          error: { type: "upstream", message: text.slice(0, 900) },
        },
      ];
    });
    const all = events.map((event, n) => ({ id: `${id}-${n}`, ...event }));
    await server.ask("POST", `/v1/sessions/${id}/events`, all, { "turnwire-producer": "tests.1" });
  }
  const page = await open(t, server, { forgives: /Maximum call stack/ });
  page.on("dialog", () => assert.fail("a dialog opened"));
  const base = page.url().split("#")[0];
  const check = async (where) => {
    assert.equal(await page.evaluate(() => window.pwned), undefined, where);
    const fits = await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
    assert.ok(fits, `${where} is wider than the page`);
    assert.deepEqual(hiddenIn(await page.title()), [], where);
  };
  const all = page.getByRole("navigation", { name: "All conversations" });
  for (const id of ids) {
    for (const [pane, shown] of [
      ["usage", page.getByText("Where the time went")],
      ["wire", page.getByRole("treegrid", { name: /^Frames/ })],
    ]) {
      await page.goto(`${base}#/${id}?pane=${pane}`);
      await shown.waitFor();
      await check(`${pane} of ${id}`);
    }
    await page.locator('article[data-role="assistant"]').first().waitFor();
    await page.locator(".thinking > button").evaluateAll((buttons) => {
      for (const button of buttons) button.click();
    });
    await page.locator(".thinking > .md, .thinking > p, .thinking ~ .problem").first().waitFor();
    await check(`thinking of ${id}`);
  }
  await page.getByRole("searchbox", { name: "Search conversations" }).fill("needle");
  await all.locator(".row-hit").first().waitFor();
  await check("search");
  await page.getByRole("searchbox", { name: "Search conversations" }).fill("");
  await page.goto(`${base}#/?page=overview`);
  await page.getByRole("main").getByRole("heading", { name: "Overview" }).waitFor();
  await page.getByRole("main").getByText("Failed in the last").waitFor();
  await check("overview");
  await page.keyboard.press("Control+k");
  await page.getByRole("dialog").getByRole("option").first().waitFor();
  await check("palette");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Select", exact: true }).click();
  for (const n of [0, 1]) await all.getByRole("checkbox").nth(n).check();
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.getByRole("table", { name: "Two conversations" }).waitFor();
  await check("compare");
  await page.keyboard.press("Escape");

  await server.create("queue");
  await server.say("queue", "long 1000000");
  await page.goto(`${base}#/queue`);
  await page.getByRole("group", { name: "Running reply" }).waitFor();
  const field = page.getByRole("textbox", { name: /^Message / });
  for (const text of TEXTS.filter((text) => text.length < 200 && !/\n/.test(text)).slice(0, 8)) {
    await field.fill(text);
    await field.press("Enter");
  }
  await page.getByRole("list", { name: "Queued messages" }).getByRole("listitem").nth(7).waitFor();
  await check("queue");
});
