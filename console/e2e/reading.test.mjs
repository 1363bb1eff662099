// Reading: tables, code, math, pictures, days; answering again; finding things.

import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, browserTest, open, picture, serve, until, withBrowser } from "./harness.mjs";
import { publishMessages } from "./publish-messages.mjs";

withBrowser();

const main = (page) => page.getByRole("main");
const composer = (page) => page.getByRole("textbox", { name: /^Message / });
const list = (page) => page.getByRole("navigation", { name: "All conversations" });
const rows = (page) => list(page).getByRole("listitem");

const WORDS = "Internationalisation 1234567890.12345 incomprehensibilities".split(" ");
const TABLE = `| ${WORDS.join(" | ")} | d | e | f |\n|---|---|---|---|---|---|\n| ${WORDS.join(" | ")} | 1 | 2 | 3 |`;
const PLAIN_DIFF = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new";

test("tables keep words whole, code has colours, math is set, days are told apart", browserTest, async (t) => {
  const server = await serve(t);
  const call = { type: "tool_call", id: "c", name: "build", input: "{}", state: "finished" };
  const result = (id, output) => ({ type: "tool_result", id, name: "build", output, state: "success" });
  await publishMessages(server, "rich", [
    {
      role: "user",
      text: "Look:\n```js\nconst answer = 42; // yes\n```\nand `inline`",
      at: Date.now() - 3 * 86_400_000,
    },
    {
      role: "assistant",
      text: `${TABLE}\n\n\`\`\`rust\nfn main() { let x = "text"; }\n\`\`\`\n\n\`\`\`diff\n-old\n+new\n\`\`\`\n\nInline $x^2 + \\frac{1}{2}$ costs $5 and $6.\n\n$$\\sum_{i=1}^{n} \\sqrt{i}$$`,
    },
    {
      role: "assistant",
      content: [
        call,
        result(
          "c",
          "\u001b[31mfailed\u001b[0m \u001b[1mloud\u001b[22m \u001b]8;;http://evil.example\u0007link\u001b]8;;\u0007",
        ),
        { ...call, id: "d" },
        result("d", PLAIN_DIFF),
      ],
    },
  ]);
  const page = await open(t, server, { hash: "#/rich", width: 700 });
  const table = main(page).getByRole("group", { name: "Table" });
  await table.waitFor();
  // Each word stands on one line, and the rest is a scroll away.
  for (const word of WORDS) {
    const lines = await table.getByRole("cell", { name: word }).evaluate((cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      return range.getClientRects().length;
    });
    assert.equal(lines, 1, `${word} is broken`);
  }
  assert.ok(
    await table.evaluate((box) => box.scrollWidth > box.clientWidth && document.body.scrollWidth <= innerWidth),
  );
  await main(page).locator(".hl-keyword", { hasText: "fn" }).waitFor();
  await main(page).locator("figure .hl-added", { hasText: "+new" }).waitFor();
  // In a user's message, too.
  await page.locator('article[data-role="user"] .hl-comment').waitFor();
  await page.locator('article[data-role="user"] .plain code', { hasText: "inline" }).waitFor();
  await main(page).locator("math mfrac").waitFor();
  await main(page).locator('math[display="block"] munderover').waitFor();
  await main(page).getByText("costs $5 and $6.").waitFor();
  const tool = main(page).getByRole("group", { name: "Tool build" });
  await tool.first().locator(".ansi-1", { hasText: "failed" }).waitFor();
  assert.equal(await tool.first().getByLabel("Output", { exact: true }).innerText(), "failed loud link");
  await tool.last().locator(".hl-removed", { hasText: "-old" }).waitFor();
  assert.equal(await main(page).getByRole("separator").count(), 2);
  // The exact time is a hover away.
  assert.match(
    await main(page).locator("article > header time").first().getAttribute("title"),
    /^\d+ \w+ \d{4}.*\d:\d\d:\d\d$/,
  );
  await accessible(page);
  await picture(page, "reading");
});

test("a copy of a very long paragraph has no line breaks of its own", browserTest, async (t) => {
  const server = await serve(t);
  // Longer than what is drawn as one.
  const text = Array.from({ length: 4000 }, (_, n) => `word${n}`).join(" ");
  await publishMessages(server, "long", [
    { role: "assistant", text },
    { role: "assistant", text: "one\n\ntwo" },
  ]);
  const page = await open(t, server, { hash: "#/long" });
  const paragraph = main(page).locator('article[data-message="m0"] .md p');
  await paragraph.waitFor();
  assert.ok((await paragraph.locator(".md-part").count()) > 1, "it is not drawn in parts");
  const copy = async (locator) => {
    await locator.evaluate((it) => getSelection().selectAllChildren(it));
    await page.keyboard.press("Control+c");
    return page.evaluate(async () => {
      const [item] = await navigator.clipboard.read();
      const read = async (type) => (await item.getType(type)).text();
      return { plain: await read("text/plain"), html: await read("text/html") };
    });
  };
  await main(page).getByRole("region", { name: "Messages" }).focus();
  const { plain, html } = await copy(paragraph);
  assert.equal(plain, text);
  assert.equal(html.replaceAll(/<[^>]*>/g, ""), text);
  assert.equal(
    await paragraph
      .locator(".md-part")
      .first()
      .evaluate((it) => getComputedStyle(it).display),
    "block",
  );
  // Where a paragraph ends, a copy has a line break as before.
  assert.equal((await copy(main(page).locator('article[data-message="m1"] .md'))).plain.trim(), "one\n\ntwo");
});

test("characters that change the direction of text reorder nothing around them", browserTest, async (t) => {
  const server = await serve(t);
  const evil = "\u202eetirw ot\u202c \u2067abc";
  await server.ask("POST", "/v1/sessions", { id: "s", title: `x \u202egnp.exe` });
  await publishMessages(server, "t", [{ role: "user", text: evil }]);
  const page = await open(t, server, { hash: "#/t" });
  const row = rows(page).filter({ hasText: "gnp.exe" });
  await row.waitFor();
  // The time stands behind the title, and the words after it in their own order.
  const [title, time] = await Promise.all(
    [".row-title", "time"].map((part) => row.locator(part).evaluate((it) => it.getBoundingClientRect().left)),
  );
  assert.ok(title < time);
  for (const part of [".row-title", "article .plain"])
    assert.match(
      await page
        .locator(part)
        .first()
        .evaluate((it) => getComputedStyle(it).unicodeBidi),
      /isolate|plaintext/,
    );
});

test("a picture opens large, and Escape closes it", browserTest, async (t) => {
  const server = await serve(t);
  await server.create("s");
  await server.say("s", "image");
  await server.idle("s");
  const page = await open(t, server, { hash: "#/s" });
  await main(page)
    .getByRole("button", { name: /^Open .* large$/ })
    .click();
  const large = page.getByRole("dialog").getByRole("img");
  await large.waitFor();
  assert.ok((await large.evaluate((img) => img.getBoundingClientRect().width)) > 300);
  await accessible(page);
  await page.keyboard.press("Escape");
  await large.waitFor({ state: "detached" });
});

test(
  "a running reply says what it does, for how long and how fast, and can be stopped there",
  browserTest,
  async (t) => {
    const server = await serve(t, { rate: 100 });
    await server.create("s");
    await server.say("s", "long 100000");
    const page = await open(t, server, { hash: "#/s" });
    const live = page.getByRole("group", { name: "Running reply" });
    await live.getByText("writing").waitFor();
    await live.getByText(/About \d+ tokens\/s/).waitFor();
    await live.getByText(/^\d+(\.\d)? s$/).waitFor();
    await accessible(page);
    await live.getByRole("button", { name: "Stop the reply" }).click();
    await server.idle("s");
    await live.waitFor({ state: "detached" });
  },
);

test(
  "any turn can be answered again or edited, and earlier answers stay beside the new one",
  browserTest,
  async (t) => {
    const server = await serve(t);
    await server.create("s");
    for (const text of ["hello one", "hello two"]) {
      await server.say("s", text);
      await server.idle("s");
    }
    const page = await open(t, server, { hash: "#/s" });
    const user = page.locator('article[data-role="user"]');
    await user.nth(1).waitFor();
    await user.nth(1).getByRole("button", { name: "Edit" }).click();
    const field = page.getByRole("form", { name: "Edit the message" }).getByRole("textbox");
    // Escape closes the edit, and the message is as it was.
    await field.fill("never");
    await field.press("Escape");
    await user.nth(1).getByText("hello two").waitFor();
    await user.nth(1).getByRole("button", { name: "Edit" }).click();
    await field.fill("hello three");
    await accessible(page);
    await page.getByRole("button", { name: "Send again" }).click();
    await user.nth(1).getByText("hello three").waitFor();
    await server.idle("s");
    assert.deepEqual(
      (await server.messages("s")).filter(({ role }) => role === "user").map(({ content }) => content[0].text),
      ["hello one", "hello three"],
    );
    const replies = page.locator('article[data-role="assistant"][data-nested="false"]');
    await replies.nth(1).waitFor();
    await replies.last().getByRole("button", { name: "Retry" }).click();
    await main(page)
      .getByRole("button", { name: /earlier repl/ })
      .last()
      .waitFor();
    await server.idle("s");
    await main(page).getByRole("button", { name: "compare" }).last().click();
    await page.getByRole("table", { name: "Two replies" }).getByRole("columnheader").nth(1).waitFor();
    await accessible(page);
  },
);

test("a search shows where the words are, and leads there", browserTest, async (t) => {
  const server = await serve(t);
  const filler = Array.from({ length: 120 }, (_, n) => ({ role: "user", text: `filler ${n}` }));
  await publishMessages(server, "deep", [
    { role: "user", text: "somewhere here a pangolin hides in the text" },
    ...filler,
  ]);
  await publishMessages(server, "other", [{ role: "user", text: "nothing" }]);
  const page = await open(t, server);
  await page.getByRole("searchbox").fill("pangolin");
  await until(async () => (await rows(page).count()) === 1, "it is not found");
  await rows(page).locator("mark", { hasText: "pangolin" }).waitFor();
  await accessible(page);
  await rows(page).getByRole("link").click();
  const hit = page.locator('article[data-message="m0"]');
  await hit.waitFor();
  await until(
    () =>
      hit.evaluate((it) => {
        const { top, bottom } = it.getBoundingClientRect();
        return top >= 0 && bottom <= innerHeight;
      }),
    "it is not in view",
  );
});

test("Ctrl K goes to a conversation or a command", browserTest, async (t) => {
  const server = await serve(t);
  for (const title of ["apples", "pears"]) await server.ask("POST", "/v1/sessions", { id: title, title });
  const page = await open(t, server);
  await rows(page).nth(1).waitFor();
  await composer(page).press("Control+k");
  const field = page.getByRole("combobox", { name: "Conversation or command" });
  await field.fill("pear");
  await page.getByRole("option", { name: /pears/ }).waitFor();
  await accessible(page);
  await field.press("Enter");
  await page.waitForURL((url) => url.hash === "#/pears");
  await page.keyboard.press("Control+k");
  await field.fill("overview");
  await field.press("Enter");
  await main(page).getByRole("heading", { name: "Overview" }).waitFor();
});

test("conversations are grouped by the day of their last change", browserTest, async (t) => {
  const server = await serve(t);
  for (const id of ["a", "b"]) await server.ask("POST", "/v1/sessions", { id, title: `title ${id}` });
  const page = await open(t, server);
  const groups = () => list(page).locator(".group").allTextContents();
  const changed = Date.parse((await server.session("b")).updated_at);
  const month = (at) => new Date(at).toLocaleDateString("en", { month: "long", year: "numeric" });
  const DAY = 86_400_000;
  for (const [days, name] of [
    [0, "Today"],
    [1, "Yesterday"],
    [3, "Last 7 days"],
    [10, "Last 30 days"],
    [60, month(changed)],
  ]) {
    await page.clock.setFixedTime(changed + days * DAY);
    await page.reload();
    await rows(page).nth(1).waitFor();
    assert.deepEqual(await groups(), [name], `after ${days} days`);
  }
  // Another conversation that changed later has a group of its own, above.
  await page.clock.setFixedTime(changed);
  await rows(page).filter({ hasText: "title a" }).hover();
  await page.getByRole("button", { name: "Menu of title a" }).click();
  await page.getByRole("menuitem", { name: "Pin" }).click();
  await page.reload();
  await rows(page).nth(1).waitFor();
  assert.deepEqual(await groups(), ["Pinned", "Today"]);
});

test("the list is filtered by agent, and says when nothing is left", browserTest, async (t) => {
  const settings = ["alpha", "beta", "gamma"].map((name) => `[agents.${name}]\nmodel = "demo"\n`).join("");
  const server = await serve(t, { settings: `default_agent = "alpha"\n${settings}` });
  for (const [id, agent] of [
    ["one", "alpha"],
    ["two", "beta"],
    ["three", "beta"],
  ])
    await server.ask("POST", "/v1/sessions", { id, agent, title: `title ${id}` });
  const page = await open(t, server);
  await rows(page).nth(2).waitFor();
  const filter = page.getByRole("complementary").getByRole("combobox", { name: "Agent" });
  const shown = async () => (await rows(page).locator(".row-title").allTextContents()).sort();
  const becomes = (titles) =>
    until(async () => JSON.stringify(await shown()) === JSON.stringify(titles), `${titles} are not shown`);
  await filter.selectOption("beta");
  await becomes(["title three", "title two"]);
  await filter.selectOption("alpha");
  await becomes(["title one"]);
  await filter.selectOption("gamma");
  await page.getByText("No conversation matches these filters.").waitFor();
  await accessible(page);
  await filter.selectOption("");
  await becomes(["title one", "title three", "title two"]);
});

test("conversations are pinned, and many are deleted with a way back", browserTest, async (t) => {
  const server = await serve(t);
  for (const id of ["a", "b", "c"]) await server.ask("POST", "/v1/sessions", { id, title: `title ${id}` });
  const page = await open(t, server);
  const row = (id) => rows(page).filter({ hasText: `title ${id}` });
  await row("a").hover();
  await row("a").getByRole("button", { name: /^Menu/ }).click();
  await page.getByRole("menuitem", { name: "Pin" }).click();
  await page.getByText("Pinned").waitFor();
  await page.reload();
  await rows(page).first().getByText("title a").waitFor();
  await page.getByRole("button", { name: "Select" }).click();
  for (const id of ["a", "b"]) await page.getByRole("checkbox", { name: `Select title ${id}` }).check();
  await accessible(page);
  await page.getByRole("button", { name: "Delete 2" }).click();
  await until(async () => (await rows(page).count()) === 1, "they are still there");
  await page.getByRole("button", { name: "Undo" }).click();
  await until(async () => (await rows(page).count()) === 3, "they are gone");
  assert.equal((await server.session("a")).id, "a");
  await page.getByRole("button", { name: "Select" }).click();
  await page.getByRole("checkbox", { name: "Select title b" }).check();
  await page.getByRole("button", { name: "Delete 1" }).click();
  await until(async () => (await fetch(`${server.url}/v1/sessions/b`)).status === 404, "it is never deleted");
});

test("a page that closes deletes all that was selected, and nothing else", browserTest, async (t) => {
  const server = await serve(t);
  const ids = Array.from({ length: 7 }, (_, n) => `s${n}`);
  for (const id of ids) await server.ask("POST", "/v1/sessions", { id, title: `title ${id}` });
  const page = await open(t, server);
  await page.getByRole("button", { name: "Select" }).click();
  for (const id of ids.slice(0, 6)) await page.getByRole("checkbox", { name: `Select title ${id}` }).check();
  await page.getByRole("button", { name: "Delete 6" }).click();
  await page.getByRole("button", { name: "Undo" }).waitFor();
  await page.goto("about:blank");
  await until(async () => {
    const { sessions } = await server.ask("GET", "/v1/sessions");
    return sessions.length === 1 && sessions[0].id === "s6";
  }, "some are not deleted");
});

test("what is selected while others are deleted can still be undone", browserTest, async (t) => {
  const server = await serve(t);
  for (const id of ["a", "b"]) await server.ask("POST", "/v1/sessions", { id, title: `title ${id}` });
  const page = await open(t, server);
  let answer;
  const held = new Promise((resolve) => (answer = resolve));
  await page.route(/\/v1\/sessions\/a$/, async (route) => {
    await held;
    await route.continue();
  });
  const remove = async (id) => {
    await page.getByRole("button", { name: "Select" }).click();
    await page.getByRole("checkbox", { name: `Select title ${id}` }).check();
    await page.getByRole("button", { name: "Delete 1" }).click();
  };
  await remove("a");
  const undo = page.getByRole("button", { name: "Undo" });
  await page.waitForRequest((request) => request.method() === "DELETE");
  await until(async () => (await undo.count()) === 0, "what is being deleted is offered to be undone");
  await remove("b");
  answer();
  await until(async () => (await fetch(`${server.url}/v1/sessions/a`)).status === 404, "it is never deleted");
  await undo.click();
  await rows(page).getByText("title b").waitFor();
  assert.equal((await server.session("b")).id, "b");
});

test("the menu of a row lies above the rows after it, and inside of the list", browserTest, async (t) => {
  const server = await serve(t);
  for (const id of ["a", "b", "c"]) await server.ask("POST", "/v1/sessions", { id, title: `title ${id}` });
  for (let n = 0; n < 20; n++) await server.ask("POST", "/v1/sessions", { id: `s${n}`, title: `number ${n}` });
  const page = await open(t, server);
  const isOnTop = () =>
    page.getByRole("menuitem").evaluateAll((all) =>
      all.every((item) => {
        const { left, top, width, height } = item.getBoundingClientRect();
        return item.contains(document.elementFromPoint(left + width / 2, top + height / 2));
      }),
    );
  await rows(page).nth(2).waitFor();
  for (const at of [0, 1, 10]) {
    await rows(page).nth(at).hover();
    await rows(page).nth(at).getByRole("button", { name: /^Menu/ }).click();
    await page.getByRole("menuitem").first().waitFor();
    assert.ok(await isOnTop(), `something lies over the menu of row ${at}`);
    await page.keyboard.press("Escape");
  }
});

test("the list can be made wider, and stays so", browserTest, async (t) => {
  const server = await serve(t);
  const page = await open(t, server);
  const edge = page.getByRole("separator", { name: "Width of the list" });
  const width = () => page.locator(".sessions").evaluate((it) => it.getBoundingClientRect().width);
  const before = await width();
  await edge.focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await until(async () => (await width()) > before + 30, "it does not grow");
  const after = await width();
  await page.reload();
  await until(async () => (await width()) === after, "it is forgotten");
});
