// Replies of an agent elsewhere, which is the test: nothing here depends on time.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../harness.mjs";
import { fresh, open, over, quiet, same, text, tools } from "./harness.mjs";

// An agent elsewhere, which is this test: it says what it wants, when it wants.
over("a chat with an agent elsewhere", {}, (running) => {
  const publish = (id, events) => {
    const named = events.map((event) => ({ id: fresh("e"), ...event }));
    return running.server.ask("POST", `/v1/sessions/${id}/events`, named, { "turnwire-producer": "p.1" });
  };
  const call = (reply_id, tool_call_id, name) => [
    { type: "TOOL_CALL_START", reply_id, tool_call_id, tool_call_name: name },
    { type: "TOOL_CALL_DELTA", reply_id, tool_call_id, delta: '{"n":1}' },
    { type: "TOOL_CALL_END", reply_id, tool_call_id },
  ];
  const result = (reply_id, tool_call_id, name, state) => [
    { type: "TOOL_RESULT_START", reply_id, tool_call_id, tool_call_name: name },
    { type: "TOOL_RESULT_TEXT_DELTA", reply_id, tool_call_id, delta: `${name}: ${state}` },
    { type: "TOOL_RESULT_END", reply_id, tool_call_id, state },
  ];
  const saying = (reply_id, block_id, delta) => [
    { type: "TEXT_BLOCK_START", reply_id, block_id },
    { type: "TEXT_BLOCK_DELTA", reply_id, block_id, delta },
    { type: "TEXT_BLOCK_END", reply_id, block_id },
  ];

  // The question is asked, and two calls of the reply wait for a yes.
  async function asks(opened, reply_id) {
    const { chat, seen } = opened;
    const sending = chat.sendMessage({ text: "both, please" });
    await until(
      () =>
        running.server.session(chat.id).then(
          () => true,
          () => false,
        ),
      "the message arrives",
    );
    await until(async () => (await running.server.messages(chat.id)).length === 1, "the message arrives");
    const tool_calls = ["one", "two"].map((name) => ({
      type: "tool_call",
      id: `${reply_id}-${name}`,
      name,
      input: '{"n":1}',
    }));
    await publish(chat.id, [
      { type: "REPLY_START", reply_id, name: "far" },
      { type: "MODEL_CALL_START", reply_id, model_name: "m" },
      ...saying(reply_id, `${reply_id}-a`, "May I?"),
      ...tool_calls.flatMap(({ id, name }) => call(reply_id, id, name)),
      { type: "MODEL_CALL_END", reply_id, input_tokens: 1, output_tokens: 2 },
      { type: "REQUIRE_USER_CONFIRM", reply_id, tool_calls },
    ]);
    await sending;
    assert.equal(chat.status, "ready", String(chat.error));
    assert.equal(seen.requests.length, 1);
    assert.deepEqual(
      tools(chat).map((part) => part.state),
      ["approval-requested", "approval-requested"],
    );
  }

  // The agent goes on once both are answered.
  async function goesOn(chat, reply_id, states) {
    await until(async () => (await running.server.session(chat.id)).pending.length === 0, "both are answered");
    await publish(chat.id, [
      ...["one", "two"].flatMap((name, at) => result(reply_id, `${reply_id}-${name}`, name, states[at])),
      { type: "MODEL_CALL_START", reply_id, model_name: "m" },
      ...saying(reply_id, `${reply_id}-b`, "Done."),
      { type: "MODEL_CALL_END", reply_id, input_tokens: 3, output_tokens: 4 },
      { type: "REPLY_END", reply_id, finished_reason: "completed" },
    ]);
  }

  test("two approvals at once: both are sent together when both are given", async () => {
    const opened = open(running.server, { agent: "external" });
    await asks(opened, "r-both");
    const { chat, seen } = opened;
    await chat.addToolApprovalResponse({ id: tools(chat)[0].approval.id, approved: true });
    assert.equal(seen.requests.length, 1, "one answer is not all");
    await chat.addToolApprovalResponse({ id: tools(chat)[1].approval.id, approved: false });
    await goesOn(chat, "r-both", ["success", "denied"]);
    await until(() => seen.requests.length === 2, "the answers are sent");
    await quiet(chat);
    const messages = await same(running.server, opened);
    assert.equal(messages.length, 2);
    assert.match(text(chat.lastMessage), /Done\./);
  });

  test("two approvals at once, one by one", async () => {
    const opened = open(running.server, { agent: "external", sendAutomaticallyWhen: undefined });
    await asks(opened, "r-single");
    const { chat } = opened;
    await chat.addToolApprovalResponse({ id: tools(chat)[0].approval.id, approved: true });
    await chat.sendMessage();
    assert.equal(chat.status, "ready", String(chat.error));
    assert.deepEqual(
      tools(chat).map((part) => part.state),
      ["approval-responded", "approval-requested"],
    );
    assert.deepEqual(
      (await running.server.session(chat.id)).pending[0].confirm.map((call) => call.id),
      ["r-single-two"],
    );
    await chat.addToolApprovalResponse({ id: tools(chat)[1].approval.id, approved: true });
    const sending = chat.sendMessage();
    await goesOn(chat, "r-single", ["success", "success"]);
    await sending;
    await same(running.server, opened);
  });

  test("two approvals at once, one of them given elsewhere with another answer", async () => {
    const opened = open(running.server, { agent: "external" });
    await asks(opened, "r-split");
    const { chat, seen } = opened;
    const [{ confirm }] = (await running.server.session(chat.id)).pending;
    const confirm_results = [{ confirmed: true, tool_call: confirm[0] }];
    await running.server.ask("POST", `/v1/sessions/${chat.id}/events`, [
      { type: "USER_CONFIRM_RESULT", reply_id: "r-split", confirm_results },
    ]);
    for (const part of tools(chat)) await chat.addToolApprovalResponse({ id: part.approval.id, approved: false });
    await goesOn(chat, "r-split", ["success", "denied"]);
    await until(() => seen.requests.length === 2, "the answers are sent");
    await quiet(chat);
    await same(running.server, opened);
    assert.deepEqual(
      tools(chat).map((part) => part.state),
      ["output-available", "output-denied"],
    );
  });

  test("what was answered elsewhere meanwhile counts, and goes on here", async () => {
    for (const opinion of [true, false]) {
      const reply_id = `r-elsewhere-${opinion}`;
      const opened = open(running.server, { agent: "external" });
      await asks(opened, reply_id);
      const { chat, seen } = opened;
      const [{ confirm }] = (await running.server.session(chat.id)).pending;
      const confirm_results = confirm.map((tool_call) => ({ confirmed: true, tool_call }));
      await running.server.ask("POST", `/v1/sessions/${chat.id}/events`, [
        { type: "USER_CONFIRM_RESULT", reply_id, confirm_results },
      ]);
      for (const part of tools(chat)) await chat.addToolApprovalResponse({ id: part.approval.id, approved: opinion });
      await until(() => seen.statuses.length === 2, "the answers are sent");
      await goesOn(chat, reply_id, ["success", "success"]);
      await quiet(chat);
      assert.deepEqual(seen.statuses, [200, 200]);
      await same(running.server, opened);
      assert.deepEqual(
        tools(chat).map((part) => part.approval.approved),
        [true, true],
      );
    }
  });

  // The agent says ten frames, the client is cut off, the agent goes on: nothing depends on time.
  test("cut at every tenth frame, whatever comes when", async () => {
    const opened = open(running.server, { agent: "external" });
    const { chat, seen } = opened;
    const reply_id = "r-tenth";
    let asking = chat.sendMessage({ text: "tell me" });
    await until(
      () =>
        running.server.session(chat.id).then(
          () => true,
          () => false,
        ),
      "the message arrives",
    );
    await publish(chat.id, [
      { type: "REPLY_START", reply_id, name: "far" },
      { type: "TEXT_BLOCK_START", reply_id, block_id: "b" },
    ]);
    let whole = "";
    for (let round = 0; round < 12; round += 1) {
      const words = Array.from({ length: 10 }, (_, n) => `word-${round}-${n} `);
      whole += words.join("");
      await publish(
        chat.id,
        words.map((delta) => ({ type: "TEXT_BLOCK_DELTA", reply_id, block_id: "b", delta })),
      );
      await until(
        () => chat.lastMessage.role === "assistant" && text(chat.lastMessage) === whole,
        "it has arrived, once",
      );
      seen.cut();
      await asking;
      assert.equal(chat.status, "error");
      asking = chat.resumeStream();
    }
    await until(() => seen.statuses.length === 13, "the client is back");
    await publish(chat.id, [
      { type: "TEXT_BLOCK_END", reply_id, block_id: "b" },
      { type: "REPLY_END", reply_id, finished_reason: "completed" },
    ]);
    await asking;
    assert.equal(seen.cuts, 12);
    await same(running.server, opened);
  });
});
