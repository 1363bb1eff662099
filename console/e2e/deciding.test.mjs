// Deciding about pending calls is safe: nothing is allowed unseen, and no key decides by accident.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { accessible, browserTest, open, program, serve, until, withBrowser } from "./harness.mjs";

withBrowser();

const main = (page) => page.getByRole("main");
const composer = (page) => page.getByRole("textbox", { name: /^Message / });
const inbox = (page) => page.getByRole("region", { name: "Waiting for you" });
const card = (page, name = "execute_trade") => main(page).getByRole("group", { name: `Tool ${name}` });

/** A session of the demo agent that waits for an approval. */
async function asks(server, id = "trade") {
  await server.create(id);
  await server.say(id, "approve");
  await server.when(id, "waiting");
}

/** A session in which an agent elsewhere asks for a call with this input. */
async function asksFor(server, id, name, input) {
  await server.ask("POST", "/v1/sessions", { id, agent: "external", title: id });
  const call = { tool_call_id: "c1", tool_call_name: name };
  const tool_calls = [{ type: "tool_call", id: "c1", name, input, state: "asking" }];
  const events = [
    { type: "REPLY_START", name: "friday" },
    { type: "TOOL_CALL_START", ...call },
    { type: "TOOL_CALL_DELTA", ...call, delta: input },
    { type: "TOOL_CALL_END", ...call },
    { type: "REQUIRE_USER_CONFIRM", tool_calls },
  ];
  const all = events.map((event, at) => ({ id: `${id}-${at}`, reply_id: `${id}-reply`, ...event }));
  await server.ask("POST", `/v1/sessions/${id}/events`, all, { "turnwire-producer": "tests.1" });
  await server.when(id, "waiting");
}

const decisions = async (server, id) =>
  (await server.log(id))
    .filter(({ type }) => type === "USER_CONFIRM_RESULT")
    .flatMap(({ confirm_results: results }) => results.map(({ confirmed, message = "" }) => ({ confirmed, message })));

test("the inbox decides nothing: it leads to the card, which shows the whole input", browserTest, async (t) => {
  const server = await serve(t);
  const harmless = Array.from({ length: 60 }, (_, n) => [`step_${n}`, `echo ${"harmless ".repeat(20)}`]);
  const input = JSON.stringify({ ...Object.fromEntries(harmless), command: "rm -rf /everything" });
  await asksFor(server, "cleanup", "shell", input);
  const page = await open(t, server);
  await inbox(page).getByText("shell").waitFor();
  await accessible(page);
  assert.equal(
    await inbox(page)
      .getByRole("button", { name: /allow|deny/i })
      .count(),
    0,
  );
  assert.equal(await page.getByText("rm -rf /everything").count(), 0, "the inbox shows only a part");
  await inbox(page).getByRole("button", { name: "Review shell" }).click();
  const allow = card(page, "shell").getByRole("button", { name: "Allow once" });
  await allow.waitFor();
  await until(() => card(page, "shell").evaluate((it) => it === document.activeElement), "the card has the focus");
  // Nothing of the input is cut off or scrolls away inside of a box, and the buttons come after it.
  const shown = await card(page, "shell")
    .locator(".json")
    .evaluate((box) => ({
      isWhole: box.scrollHeight <= box.clientHeight + 1 && box.scrollWidth <= box.clientWidth + 1,
      end: box.getBoundingClientRect().bottom,
      text: box.innerText,
    }));
  assert.ok(shown.isWhole, "a part of the input is hidden");
  assert.match(shown.text, /rm -rf \/everything/);
  assert.ok(shown.end <= (await allow.evaluate((button) => button.getBoundingClientRect().top)));
  await accessible(page);
});

test("the inbox leads to a card in the open conversation, also from the past", browserTest, async (t) => {
  const server = await serve(t);
  await asks(server);
  const page = await open(t, server, { hash: "#/trade@1" });
  await page.getByText("conversation at event").waitFor();
  await inbox(page)
    .getByRole("button", { name: /^Review execute_trade/ })
    .click();
  await card(page).getByRole("button", { name: "Allow once" }).waitFor();
  await until(() => card(page).evaluate((it) => it === document.activeElement), "the card has the focus");
});

test("typing outside of a text field decides nothing", browserTest, async (t) => {
  const server = await serve(t);
  await asks(server);
  for (const place of ["thread", "card"]) {
    const page = await open(t, server, { hash: "#/trade" });
    await card(page).getByRole("button", { name: "Allow once" }).waitFor();
    if (place === "thread") await page.getByRole("region", { name: "Messages" }).focus();
    else await card(page).focus();
    await page.keyboard.type("actually no, add a deed ");
    await page.keyboard.press("Enter");
    await server.session("trade");
    assert.deepEqual(await decisions(server, "trade"), []);
  }
  assert.equal((await server.session("trade")).status, "waiting");
});

test("on a focused card a key with a modifier decides, and denying takes a second step", browserTest, async (t) => {
  const server = await serve(t);
  await asks(server);
  const page = await open(t, server, { hash: "#/trade" });
  const show = page.getByRole("button", { name: "Show", exact: true });
  await show.click();
  await page.keyboard.press("Control+Backspace");
  await card(page)
    .getByRole("textbox", { name: /^Reason/ })
    .waitFor();
  assert.deepEqual(await decisions(server, "trade"), []);
  await page.keyboard.type("too expensive");
  // Escape closes the reason, and nothing else.
  await page.keyboard.press("Escape");
  await card(page).getByRole("button", { name: "Allow once" }).waitFor();
  assert.equal((await server.session("trade")).status, "waiting");
  await page.keyboard.press("Control+Backspace");
  await page.keyboard.press("Enter");
  await card(page).locator("header").getByText("Denied", { exact: true }).waitFor();
  await server.idle("trade");
  assert.deepEqual(await decisions(server, "trade"), [{ confirmed: false, message: "too expensive" }]);

  await asks(server, "again");
  await page.goto(`${page.url().split("#")[0]}#/again`);
  await show.click();
  await page.keyboard.press("Control+Enter");
  await card(page).getByText("done").waitFor();
  assert.deepEqual(await decisions(server, "again"), [{ confirmed: true, message: "" }]);
});

test("Escape closes the innermost thing, and stops no reply from there", browserTest, async (t) => {
  const server = await serve(t);
  await asks(server);
  const page = await open(t, server, { hash: "#/trade" });
  const isWaiting = async (where) =>
    assert.equal((await server.session("trade")).status, "waiting", `Escape ${where} stopped the reply`);
  await card(page).getByRole("button", { name: "Edit" }).click();
  await card(page)
    .getByRole("textbox", { name: /^Tool input/ })
    .press("Escape");
  await card(page).getByRole("button", { name: "Allow once" }).waitFor();
  await isWaiting("in the edited input");
  await page.getByRole("button", { name: "Conversation menu" }).click();
  await page.getByRole("menu", { name: "Conversation menu" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("menu", { name: "Conversation menu" }).waitFor({ state: "detached" });
  await isWaiting("in the menu");
  await page.goto(`${page.url().split("#")[0]}#/trade@2`);
  await page.getByText("conversation at event").waitFor();
  await page.keyboard.press("Escape");
  await composer(page).waitFor();
  await isWaiting("in the past");
  // Also where the focus is elsewhere: an open edit closes first.
  await card(page).getByRole("button", { name: "Edit" }).click();
  await page.getByRole("region", { name: "Messages" }).focus();
  await page.keyboard.press("Escape");
  await card(page).getByRole("button", { name: "Allow once" }).waitFor();
  await isWaiting("beside an open edit");
  // From the message field it stops the reply.
  await composer(page).press("Escape");
  await server.idle("trade");
});

test("keys of a single character can be turned off", browserTest, async (t) => {
  const server = await serve(t);
  await asks(server);
  const page = await open(t, server, { hash: "#/trade" });
  await card(page).getByRole("button", { name: "Allow once" }).waitFor();
  const timeline = page.getByRole("slider", { name: "Show the conversation at an event" });
  await composer(page).blur();
  await page.keyboard.press("?");
  await page.getByRole("checkbox", { name: "Use shortcuts of a single character" }).uncheck();
  await accessible(page);
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("t");
  await page.reload();
  await card(page).getByRole("button", { name: "Allow once" }).waitFor();
  await composer(page).blur();
  await page.keyboard.press("t");
  assert.equal(await timeline.count(), 0);
  // What needs a modifier still works, and so does Escape.
  await composer(page).press("Escape");
  await server.idle("trade");
});

test("the keys of a card allow nothing before the end of its input was in view", browserTest, async (t) => {
  const server = await serve(t);
  await asksFor(server, "long", "shell", LONG);
  const page = await open(t, server, { hash: "#/long" });
  const end = card(page, "shell").getByRole("button", { name: "Allow once" });
  await end.waitFor();
  const messages = page.getByRole("region", { name: "Messages" });
  await messages.evaluate((box) => void (box.scrollTop = 0));
  await card(page, "shell").evaluate((it) => it.focus({ preventScroll: true }));
  await page.keyboard.press("Control+Enter");
  await until(
    () => end.evaluate((it) => it.getBoundingClientRect().bottom <= innerHeight),
    "it does not lead to the end",
  );
  assert.deepEqual(await decisions(server, "long"), []);
  await page.keyboard.press("Control+Enter");
  await until(async () => (await decisions(server, "long")).length === 1, "at the end it counts");
});

const LONG = JSON.stringify(Object.fromEntries(Array.from({ length: 80 }, (_, n) => [`step_${n}`, "echo ok"])));

test("nothing lies on the input of a call, on a touch screen or under the pointer", browserTest, async (t) => {
  const server = await serve(t);
  await server.create("s");
  await server.say("s", "approve");
  await server.when("s", "waiting");
  for (const mobile of [true, false]) {
    const page = await open(t, server, { hash: "#/s", width: mobile ? 390 : 1000, mobile });
    const input = card(page).getByLabel("Input", { exact: true });
    await input.waitFor();
    await input.hover();
    for (const text of [null, `{"word":"${"x".repeat(600)}"}`]) {
      // A word without an end reaches the edge of every line.
      if (text !== null) await input.evaluate((box, text) => void (box.textContent = text), text);
      const lies = await input.evaluate((box) => {
        const copy = box.parentElement.querySelector(".copy").getBoundingClientRect();
        const range = document.createRange();
        range.selectNodeContents(box);
        return [...range.getClientRects()].some(
          ({ left, right, top, bottom }) =>
            right > copy.left && left < copy.right && bottom > copy.top && top < copy.bottom,
        );
      });
      assert.equal(lies, false, `the copy button lies on the input, touch: ${mobile}, long: ${text !== null}`);
    }
  }
});

test("holding Ctrl Enter allows nothing that was not seen", browserTest, async (t) => {
  const server = await serve(t);
  await asksFor(server, "long", "shell", LONG);
  const page = await open(t, server, { hash: "#/long" });
  await card(page, "shell").getByRole("button", { name: "Allow once" }).waitFor();
  await page.getByRole("region", { name: "Messages" }).evaluate((box) => void (box.scrollTop = 0));
  await card(page, "shell").evaluate((it) => it.focus({ preventScroll: true }));
  await page.keyboard.down("Control");
  // A second `down` without an `up` is a repeat.
  for (let n = 0; n < 10; n++) {
    await page.keyboard.down("Enter");
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  await page.keyboard.up("Enter");
  assert.deepEqual(await decisions(server, "long"), []);
  await page.keyboard.press("Enter");
  await until(async () => (await decisions(server, "long")).length === 1, "a key that is pressed again does not count");
});

test("on little height the keys allow nothing unseen, and lists load only what is near", browserTest, async (t) => {
  const server = await serve(t);
  for (let n = 0; n < 150; n++) await server.ask("POST", "/v1/sessions", { id: `s${n}`, title: `number ${n}` });
  await server.ask("POST", "/v1/sessions", { id: "long", agent: "external", title: "long" });
  const messages = Array.from({ length: 300 }, (_, n) => ({
    type: "MESSAGE",
    id: `e${n}`,
    message: {
      id: `m${n}`,
      name: "user",
      role: "user",
      content: [{ type: "text", id: `t${n}`, text: `message ${n}` }],
    },
  }));
  await server.ask("POST", "/v1/sessions/long/events", messages, { "turnwire-producer": "tests.1" });
  const call = { tool_call_id: "c1", tool_call_name: "shell" };
  const tool_calls = [{ type: "tool_call", id: "c1", name: "shell", input: LONG, state: "asking" }];
  const events = [
    { type: "REPLY_START", name: "friday" },
    { type: "TOOL_CALL_START", ...call },
    { type: "TOOL_CALL_DELTA", ...call, delta: LONG },
    { type: "TOOL_CALL_END", ...call },
    { type: "REQUIRE_USER_CONFIRM", tool_calls },
  ].map((event, n) => ({ id: `r${n}`, reply_id: "r", ...event }));
  await server.ask("POST", "/v1/sessions/long/events", events, { "turnwire-producer": "tests.1" });
  await server.when("long", "waiting");
  const page = await open(t, server, { hash: "#/long", width: 320, height: 256 });
  const allow = card(page, "shell").getByRole("button", { name: "Allow once" });
  await allow.waitFor();
  const thread = page.getByRole("region", { name: "Messages" });
  assert.ok(await thread.evaluate((box) => box.clientHeight <= innerHeight && box.scrollHeight > box.clientHeight));
  assert.ok((await page.locator("article").count()) < 150, "all messages are loaded");
  await card(page, "shell").evaluate((it) => it.scrollIntoView({ block: "start" }));
  await card(page, "shell").evaluate((it) => it.focus({ preventScroll: true }));
  await page.keyboard.press("Control+Enter");
  await until(
    () => allow.evaluate((it) => it.getBoundingClientRect().bottom <= innerHeight + 1),
    "it does not lead to the end",
  );
  assert.deepEqual(await decisions(server, "long"), []);
  await page.keyboard.press("Control+Enter");
  await until(async () => (await decisions(server, "long")).length === 1, "at the end it counts");
  await page.goto(`${page.url().split("#")[0]}#/`);
  const rows = page.getByRole("navigation", { name: "All conversations" }).getByRole("listitem");
  await rows.first().waitFor();
  assert.ok((await rows.count()) < 40, "every row is rendered");
});

test(
  "the whole input is seen while it is edited, and an input that was not changed is not sent",
  browserTest,
  async (t) => {
    const server = await serve(t);
    await asksFor(server, "long", "shell", LONG);
    const page = await open(t, server, { hash: "#/long" });
    await card(page, "shell").getByRole("button", { name: "Edit" }).click();
    const field = card(page, "shell").getByRole("textbox", { name: /^Tool input/ });
    assert.ok(await field.evaluate((it) => it.scrollHeight <= it.clientHeight + 1), "a part of the input is hidden");
    await accessible(page);
    await card(page, "shell").getByRole("button", { name: "Allow once" }).click();
    await until(async () => (await decisions(server, "long")).length === 1, "it is not allowed");
    const [{ confirm_results: results }] = (await server.log("long")).filter(
      ({ type }) => type === "USER_CONFIRM_RESULT",
    );
    assert.equal(results[0].tool_call?.input ?? LONG, LONG);
  },
);

/** A server with the tokens of two people; the second may only read. */
async function withTokens(t, second = ["read"]) {
  const make = (subject, scopes) => {
    const text = execFileSync(program, ["token", "new", "--subject", subject, "--scopes", scopes.join(",")], {
      encoding: "utf8",
    });
    return { text: text.replace(/# tw_\S+/, ""), token: text.match(/# (tw_\S+)/)[1] };
  };
  const [ann, ben] = [make("ann", ["read", "chat", "approve"]), make("ben", second)];
  const server = await serve(t, { settings: ann.text + ben.text });
  server.headers = { authorization: `Bearer ${ann.token}` };
  return { server, ann: ann.token, ben: ben.token };
}

async function signIn(page, token) {
  await page.getByLabel("Token", { exact: true }).fill(token);
  await page.getByLabel("Token", { exact: true }).press("Enter");
}

const forgives = /status of 401|WebSocket/;
const note = (page, name) => card(page, name).getByRole("group", { name: "Decision" });

test("the decision stays on the card: who, when, where, what was changed, and why", browserTest, async (t) => {
  const { server, ann } = await withTokens(t);
  await asks(server);
  const page = await open(t, server, { hash: "#/trade", forgives });
  await signIn(page, ann);
  await card(page).getByRole("button", { name: "Edit" }).click();
  await card(page).getByRole("textbox").fill('{"symbol":"ACME","quantity":7}');
  await card(page).getByRole("button", { name: "Allow with changes" }).click();
  await note(page).getByText("Allowed").waitFor();
  await page.reload();
  await note(page).getByText("ann").waitFor();
  await note(page).getByText("in console").waitFor();
  assert.match(await note(page).locator("time").getAttribute("title"), /20\d\d/);
  await note(page).getByRole("button", { name: "Input changed" }).click();
  await note(page).getByLabel("Input before", { exact: true }).getByText("100").waitFor();
  await note(page).getByLabel("Input after", { exact: true }).getByText("7").waitFor();
  await accessible(page);

  await asks(server, "no");
  await page.goto(`${page.url().split("#")[0]}#/no`);
  await card(page).getByRole("button", { name: "Deny…" }).click();
  await card(page).getByRole("textbox").fill("too expensive");
  await card(page).getByRole("button", { name: "Deny", exact: true }).click();
  await note(page).getByText("Denied").waitFor();
  await note(page).getByText("too expensive").waitFor();
});

test("a question that nobody answers is expired, not denied", browserTest, async (t) => {
  const server = await serve(t, { settings: '[agents.demo]\nmodel = "demo"\napproval_timeout = "1s"\n' });
  await asks(server);
  await server.idle("trade");
  const page = await open(t, server, { hash: "#/trade" });
  await note(page).getByText("Expired, nobody answered").waitFor();
  await card(page).getByText("the question expired").waitFor();
  assert.equal(
    await main(page)
      .getByText(/You said no|did not allow|Denied/)
      .count(),
    0,
  );
  const row = page.getByRole("navigation", { name: "All conversations" }).getByRole("listitem");
  await row.getByText("expired, nobody answered").waitFor();
});

test("Always says what it covers, works with the demo, and can be revoked", browserTest, async (t) => {
  const server = await serve(t);
  await asks(server);
  const page = await open(t, server, { hash: "#/trade" });
  const rule = 'Always allow `execute_trade` with exactly symbol = "ACME", quantity = 100';
  await card(page).getByText(`${rule}, in this session`).waitFor();
  await accessible(page);
  await card(page).getByRole("button", { name: rule }).click();
  await card(page).getByText("done").waitFor();
  await server.idle("trade");
  await server.say("trade", "approve once more");
  await server.idle("trade");
  assert.equal((await decisions(server, "trade")).length, 1, "the second call asks again");
  await page.getByRole("button", { name: "1 rule" }).click();
  await accessible(page);
  await page.getByRole("button", { name: `Revoke: ${rule}` }).click();
  await page.getByText("No rules:").waitFor();
  await page.keyboard.press("Escape");
  await server.say("trade", "approve a third time");
  await server.when("trade", "waiting");
  // A fork has neither the rule nor its revocation undone.
  const fork = await server.ask("POST", "/v1/sessions/trade/fork", { id: "copy" });
  const { rules } = await server.ask("GET", `/v1/sessions/${fork.id}/decisions`);
  assert.deepEqual(rules, []);
});

test("a token that may only read is offered nothing that would fail", browserTest, async (t) => {
  const { server, ben } = await withTokens(t);
  await asks(server);
  const page = await open(t, server, { hash: "#/trade", forgives });
  await signIn(page, ben);
  await card(page).getByText("Your token cannot approve").waitFor();
  assert.equal(await page.getByText(/(waiting|waits) for you/i).count(), 0, "it does not wait for them");
  assert.ok(!(await page.title()).startsWith("("), await page.title());
  const uploads = [];
  page.on("request", (request) => request.url().endsWith("/v1/blobs") && uploads.push(request.url()));
  await main(page).evaluate((it) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(["text"], "a.txt", { type: "text/plain" }));
    for (const type of ["dragover", "drop"])
      it.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
  });
  assert.ok(await composer(page).isDisabled());
  assert.deepEqual(uploads, [], "a dropped file is uploaded");
  for (const name of [/^Allow/, /^Deny/, /^Delete/, "Edit", "Always", /^Stop/, "New conversation", "Retry"])
    assert.equal(await page.getByRole("button", { name }).count(), 0, `${name} is offered`);
  await page.getByRole("button", { name: "Conversation menu" }).click();
  assert.equal(await page.getByRole("menuitem", { name: /Rename|Fork|Delete/ }).count(), 0);
  await page.keyboard.press("Escape");
  await composer(page).evaluate((field) => field.blur());
  await page.keyboard.press("Escape");
  assert.equal((await server.session("trade")).status, "waiting");
  await accessible(page);
});
