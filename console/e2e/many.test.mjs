// Much of everything: long conversations, and many of them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { browserTest, open, serve, until, withBrowser } from "./harness.mjs";

withBrowser();

const at = (n) => new Date(1e12 + n * 1000).toISOString();

/** A session of so many messages, of an external agent. */
async function publishConversation(server, id, count) {
  await server.create(id);
  const events = Array.from({ length: count }, (_, n) => ({
    type: "MESSAGE",
    id: `e${n}`,
    created_at: at(n),
    message: {
      id: `m${n}`,
      name: n % 2 ? "demo" : "user",
      role: n % 2 ? "assistant" : "user",
      content: [{ type: "text", id: `t${n}`, text: `Word ${n} of it. `.repeat(1 + (n % 9)) }],
      finished_at: at(n),
      finished_reason: "completed",
    },
  }));
  for (let from = 0; from < count; from += 500) {
    await server.ask("POST", `/v1/sessions/${id}/events`, events.slice(from, from + 500), {
      "turnwire-producer": "elsewhere.1",
      "content-type": "application/json",
    });
  }
}

test(
  "a thousand messages are read from the last to the first, and what one reads stays in its place",
  browserTest,
  async (t) => {
    const server = await serve(t, { rate: 100 });
    await publishConversation(server, "s", 1000);
    const page = await open(t, server, { hash: "#/s" });
    const thread = page.getByRole("region", { name: "Messages" });
    const articles = page.locator("article");
    await articles.last().getByText("Word 999 of it.").waitFor();
    const loaded = await articles.count();
    assert.ok(loaded <= 100, `${loaded} messages are loaded at once`);

    const count = () => articles.count();
    /** Where the first message in sight stands. */
    const seen = () =>
      thread.evaluate((box) => {
        const { top } = box.getBoundingClientRect();
        const found = [...box.querySelectorAll("article")].find(
          (article) => article.getBoundingClientRect().bottom > top + 1,
        );
        return { text: found.textContent, top: found.getBoundingClientRect().top };
      });
    // Somebody who goes up comes near the beginning of what is there, and more comes in above; that must not move anything.
    await thread.hover();
    await page.mouse.wheel(0, -300);
    await until(
      async () => !(await thread.evaluate((box) => box.scrollTop + box.clientHeight >= box.scrollHeight - 4)),
      "it stays at the end",
    );
    await thread.evaluate((box) => void (box.scrollTop = 200));
    const before = await seen();
    await until(async () => (await count()) > loaded, "nothing comes before it");
    await until(async () => (await seen()).text === before.text, "it is not kept in its place");
    const { top } = await seen();
    assert.ok(Math.abs(top - before.top) < 2, `it moved from ${before.top} to ${top}`);

    while (await page.locator(".earlier").count()) {
      const before = await count();
      await thread.evaluate((box) => void (box.scrollTop = 0));
      await until(
        async () => (await count()) > before || !(await page.locator(".earlier").count()),
        "it ends before the beginning",
      );
    }
    assert.equal(await count(), 1000);
    await thread.evaluate((box) => void (box.scrollTop = 0));
    await articles.first().getByText("Word 0 of it.").waitFor();
    // What is far away is not laid out.
    const skipped = await thread.evaluate(
      (box) =>
        [...box.querySelectorAll("article")].filter(
          (article) => !article.checkVisibility({ contentVisibilityAuto: true }),
        ).length,
    );
    assert.ok(skipped > 800, `only ${skipped} of 1000 are left out`);

    const latest = page.getByRole("button", { name: "Jump to latest" });
    // It lies on no message: the buttons of a decision may be there.
    const lies = await latest.evaluate((it) => {
      const thread = it.parentElement.querySelector(".thread").getBoundingClientRect();
      return it.getBoundingClientRect().top < thread.bottom;
    });
    assert.equal(lies, false, "it lies on the messages");
    await latest.click();
    await page.getByRole("textbox", { name: /^Message / }).fill("long 40");
    await page.keyboard.press("Enter");
    await until(async () => (await count()) === 1002, "there is no reply");
    await server.idle("s");
    await until(
      () => thread.evaluate((box) => box.scrollTop + box.clientHeight >= box.scrollHeight - 4),
      "its end is not in sight",
    );
  },
);

test("all conversations can be reached, however many, and those that change come up", browserTest, async (t) => {
  const server = await serve(t);
  const all = 430;
  for (let n = 0; n < all; n++) await server.ask("POST", "/v1/sessions", { id: `s${n}`, title: `number ${n} of all` });
  const page = await open(t, server);
  const list = page.getByRole("navigation", { name: "All conversations" });
  const rows = list.getByRole("listitem");
  await rows.first().waitFor();
  assert.ok((await rows.count()) <= 100, "not all of them at once");
  const seen = new Set();
  const box = page.locator(".sessions-list");
  const look = async () => {
    for (const href of await rows.evaluateAll((rows) => rows.map((row) => row.querySelector("a").getAttribute("href"))))
      seen.add(href);
  };
  for (let top = 0; seen.size < all && top < 100_000; top += 300) {
    await box.evaluate((box, top) => void (box.scrollTop = top), top);
    await page.evaluate(() => new Promise(requestAnimationFrame));
    await look();
    // The end of what is listed loads more.
    if (await box.evaluate((box) => box.scrollTop + box.clientHeight >= box.scrollHeight - 2)) top -= 300;
  }
  assert.equal(seen.size, all, "some are missing");
  await page.getByText("number 0 of all").waitFor();
  assert.ok((await rows.count()) < 60, "only what is in sight is on the page");

  // One from the far end changes, another one is new: both come up.
  await box.evaluate((box) => void (box.scrollTop = 0));
  await server.say("s3", "hello");
  await server.idle("s3");
  await server.create("latest");
  await until(async () => (await rows.first().innerText()).includes("latest"), "what is new is not there");
  await rows.nth(1).getByText("number 3 of all").waitFor();

  // What is deleted here is gone, wherever it stood.
  await page.getByRole("searchbox").fill("7 of all");
  const far = rows.filter({ hasText: /number 7 of all/ });
  await far.waitFor();
  await far.hover();
  await far.getByRole("button", { name: /^Menu of/ }).click();
  await far.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await far.waitFor({ state: "detached" });
});
