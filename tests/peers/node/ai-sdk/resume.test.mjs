// What breaks off, and goes on: cuts, reloads, stops, a server that is killed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { validateUIMessages } from "ai";
import { until } from "../harness.mjs";
import { ours, theirs } from "./content.mjs";
import { answer, load, open, over, post, rejected, reload, said, same, text, tools } from "./harness.mjs";

// Replies that take a while: so many deltas a second.
over("a chat over a server that takes its time", { rate: 200, store: "sqlite:turnwire.db" }, (running) => {
  // A reply that does not end before it is stopped: whatever takes how long, it runs.
  const endless = { text: "long 1000000" };
  // The chat has some of the answer, more than it had.
  const begun = (chat, had = 40) =>
    until(() => chat.lastMessage?.role === "assistant" && text(chat.lastMessage).length > had, "it goes on");
  const had = (chat) => (chat.lastMessage.role === "assistant" ? text(chat.lastMessage).length : 0);

  test("cut and resumed at every tenth frame of a long reply", async () => {
    const cuts = Array.from({ length: 12 }, (_, n) => 10 * (n + 1));
    await Promise.all(
      cuts.map(async (frames) => {
        const opened = open(running.server, { cutAfter: (nth) => (nth === 0 ? frames : undefined) });
        const { chat, seen, transport } = opened;
        await chat.sendMessage(endless);
        assert.equal(chat.status, "error", "the connection broke");
        assert.equal(seen.cuts, 1);
        const before = had(chat);
        const resuming = chat.resumeStream();
        await begun(chat, before);
        await transport.stop(chat.id);
        await resuming;
        assert.equal(chat.status, "ready", String(chat.error));
        assert.equal(chat.messages.length, 2, "no message is doubled");
        await same(running.server, opened);
      }),
    );
  });

  test("cut again and again, the same reply", async () => {
    const opened = open(running.server, { cutAfter: (nth) => (nth < 6 ? 4 + 3 * nth : undefined) });
    const { chat, seen, transport } = opened;
    await chat.sendMessage(endless);
    for (let nth = 1; nth < 6; nth += 1) await chat.resumeStream();
    assert.equal(seen.cuts, 6);
    const resuming = chat.resumeStream();
    await begun(chat, had(chat));
    await transport.stop(chat.id);
    await resuming;
    await same(running.server, opened);
  });

  test("reload in the middle of a reply", async () => {
    const first = open(running.server);
    const sending = first.chat.sendMessage(endless);
    await begun(first.chat);
    const messages = await load(running.server, first.chat.id);
    await validateUIMessages({ messages });
    const second = open(running.server, { id: first.chat.id, messages });
    const before = had(second.chat);
    const resuming = second.chat.resumeStream();
    await begun(second.chat, before);
    await first.transport.stop(first.chat.id);
    await Promise.all([sending, resuming]);
    assert.equal(second.chat.messages.length, 2, "no message is doubled");
    await same(running.server, second);
    await same(running.server, first);
  });

  test("a connection that breaks does not stop a reply", async () => {
    const { chat, seen } = open(running.server);
    const sending = chat.sendMessage({ text: "long 60" });
    await begun(chat);
    seen.cut();
    await sending;
    await running.server.idle(chat.id);
    const [, reply] = await running.server.messages(chat.id);
    assert.equal(reply.finished_reason, "completed");
    await same(running.server, await reload(running.server, chat.id));
  });

  test("a stop does, and the stream ends in order", async () => {
    const opened = open(running.server);
    const { chat, transport, finished } = opened;
    const sending = chat.sendMessage(endless);
    await begun(chat);
    assert.equal((await transport.stop(chat.id)).status, 204);
    await sending;
    assert.equal(chat.status, "ready", String(chat.error));
    const [{ isError, isDisconnect, finishReason }] = finished;
    assert.deepEqual(
      { isError, isDisconnect, finishReason },
      { isError: false, isDisconnect: false, finishReason: "interrupted" },
    );
    const [, reply] = await same(running.server, opened);
    assert.equal(reply.finished_reason, "interrupted");
    assert.match(opened.seen.bodies[0], /"type":"abort"/);
    await chat.sendMessage({ text: "long 5" });
    await same(running.server, opened);
  });

  test("stop() of the chat stops the reply, and the next message is taken", async () => {
    const { chat } = open(running.server);
    const sending = chat.sendMessage(endless);
    await begun(chat);
    await chat.stop();
    await sending;
    await chat.sendMessage({ text: "long 5" });
    assert.equal(chat.status, "ready", String(chat.error));
    const messages = await running.server.messages(chat.id);
    assert.deepEqual(
      messages.map((message) => message.finished_reason ?? null),
      [null, "interrupted", null, "completed"],
    );
    assert.deepEqual(theirs(chat.lastMessage, messages[3]), ours(messages[3]));
    // What the client has of the one that it left is a beginning of what there is.
    assert.ok(messages[1].content[0].text.startsWith(text(chat.messages[1])));
    await validateUIMessages({ messages: chat.messages });
  });

  test("a stop while a question waits", async () => {
    const opened = open(running.server);
    const { chat, transport } = opened;
    await chat.sendMessage({ text: "approve" });
    await transport.stop(chat.id);
    await running.server.idle(chat.id);
    const again = await reload(running.server, chat.id);
    const [, reply] = await running.server.messages(chat.id);
    assert.equal(reply.finished_reason, "interrupted");
    assert.equal(tools(again.chat)[0].state, "output-error");
    await again.chat.sendMessage({ text: "long 5" });
    assert.equal(again.chat.status, "ready", String(again.chat.error));
  });

  test("a message while a reply runs or waits is refused, and not stored", async () => {
    const { chat, transport } = open(running.server);
    const sending = chat.sendMessage(endless);
    await begun(chat);
    await rejected(post(transport, chat.id, [...chat.messages, said("me, too")]), 409, "busy");
    const [question] = chat.messages;
    const edited = { ...question, parts: [{ type: "text", text: "other words" }] };
    await rejected(post(transport, chat.id, [edited], { messageId: question.id }), 409, "busy");
    const regenerate = { trigger: "regenerate-message", messageId: question.id };
    await rejected(post(transport, chat.id, [question], regenerate), 409, "busy");
    await transport.stop(chat.id);
    await sending;
    assert.equal((await running.server.messages(chat.id)).length, 2);

    const waiting = open(running.server);
    await waiting.chat.sendMessage({ text: "approve" });
    await rejected(post(transport, waiting.chat.id, [...waiting.chat.messages, said("me, too")]), 409, "busy");
    assert.equal((await running.server.messages(waiting.chat.id)).length, 2);
  });

  test("a request whose answer was lost is sent again, and finds its reply", async () => {
    for (const again of [(chat) => chat.sendMessage(), (chat) => chat.resumeStream()]) {
      const opened = open(running.server, { cutAfter: (nth) => (nth === 0 ? 0 : undefined) });
      const { chat, transport } = opened;
      await chat.sendMessage(endless);
      assert.equal(chat.status, "error");
      assert.equal(chat.messages.length, 1);
      const asking = again(chat);
      await begun(chat);
      await transport.stop(chat.id);
      await asking;
      assert.equal(chat.status, "ready", String(chat.error));
      const messages = await same(running.server, opened);
      assert.equal(messages.length, 2, "it was said once");
    }
  });

  test("cut behind the answer to an approval, while the reply goes on", async () => {
    await Promise.all(
      Array.from({ length: 10 }, async (_, n) => {
        const opened = open(running.server, { cutAfter: (nth) => (nth === 1 ? n : undefined) });
        const { chat, seen } = opened;
        await chat.sendMessage({ text: "parallel" });
        await answer(opened, true);
        assert.equal(chat.status, seen.cuts ? "error" : "ready", "the connection broke");
        await chat.resumeStream();
        // It has come to its end before the client was back: then there is nothing to resume.
        if (seen.statuses.at(-1) === 204) chat.messages = await load(running.server, chat.id);
        assert.equal(chat.status, "ready", String(chat.error));
        assert.equal(chat.messages.length, 2, "no message is doubled");
        await same(running.server, opened);
      }),
    );
  });

  test("the server is killed in the middle of a reply, and of a question", async () => {
    const long = open(running.server);
    const asking = open(running.server);
    await asking.chat.sendMessage({ text: "approve" });
    const sending = long.chat.sendMessage(endless);
    await begun(long.chat);
    await running.server.crash();
    await sending;
    assert.equal(long.chat.status, "error");
    const before = had(long.chat);
    const resuming = long.chat.resumeStream();
    await begun(long.chat, before);
    await long.transport.stop(long.chat.id);
    await resuming;
    assert.equal(long.chat.status, "ready", String(long.chat.error));
    assert.equal(long.chat.messages.length, 2, "no message is doubled");
    await same(running.server, long);
    // The question is still there, is shown to whoever comes, and is answered by the client that had it.
    const other = await reload(running.server, asking.chat.id);
    assert.equal(tools(other.chat)[0].state, "approval-requested");
    await answer(asking, true);
    const [, reply] = await same(running.server, asking);
    assert.equal(reply.finished_reason, "completed");
  });
});
