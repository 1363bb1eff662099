import assert from "node:assert/strict";
import { test } from "node:test";
import { play, random, readRequest, scenarios } from "./client.mjs";

const all = scenarios();

const mark = { metadata: { turnwire: { reply: "r" } } };
const user = { id: "u", role: "user", content: "hi" };
const text = (id, content, more = {}) => ({
  id,
  role: "assistant",
  content,
  name: "friday",
  ...mark,
  ...more,
});
const call = (id, name, args, message = id) => ({
  id: message,
  role: "assistant",
  toolCalls: [{ id, type: "function", function: { name, arguments: args }, ...mark }],
});
const result = (id, content, state) => ({
  id: `${id}-result`,
  role: "tool",
  toolCallId: id,
  content,
  metadata: { turnwire: { reply: "r", ...(state && { state }) } },
});
const discarded = (id) => ({ id, role: "activity", activityType: "discarded", content: {}, ...mark });
const ask = (id, name) => ({
  id,
  reason: "tool_call",
  message: `May ${name} run?`,
  toolCallId: id,
  responseSchema: {
    type: "object",
    properties: { approved: { type: "boolean" }, editedArgs: { type: "object" } },
    required: ["approved"],
  },
  metadata: {
    turnwire: {
      suggested_rules: [{ tool_name: name, rule_content: null, behavior: "allow", source: "" }],
    },
  },
});

/** What the client silently accepts as well as what it refuses. */
function checkRuns(played, bodies, outcomes) {
  assert.deepEqual(played.warnings, []);
  assert.deepEqual(
    played.runs.map((run) => run.ends.map((end) => end.outcome)),
    outcomes.map((x) => [x]),
  );
  for (const [at, run] of played.runs.entries()) {
    assert.equal(run.steps, 0, "every step was finished");
    for (const end of run.ends) {
      if (end.run === undefined) continue;
      assert.equal(end.run, run.ids[0], "the run that ends is the one that began");
      assert.equal(end.thread, "t");
    }
    const types = bodies[at].match(/"type":"[A-Z_]+"/g);
    assert.match(types[0], /RUN_STARTED/);
    assert.match(types.filter((type) => /RUN_/.test(type)).at(-1), /RUN_(FINISHED|ERROR)/);
    assert.match(bodies[at].trim().split("\n").at(-1), /^data: {"type":"RUN_(FINISHED|ERROR)"/);
  }
  for (const message of played.messages) {
    for (const { function: made } of message.toolCalls ?? []) JSON.parse(made.arguments || "{}");
    if (message.role !== "tool") continue;
    const made = played.messages.some((other) => other.toolCalls?.some(({ id }) => id === message.toolCallId));
    assert.ok(made, `the result ${message.id} has its call`);
  }
  const ids = played.messages.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, "no message is there twice");
}

const expected = {
  plain: { messages: [user, text("x1", "Hello wörld 🙂\n")], outcomes: ["success"] },
  thinking: {
    messages: [
      user,
      { id: "h1", role: "reasoning", content: "Let me see.", encryptedValue: "sig", ...mark },
      text("x1", "Yes."),
    ],
    outcomes: ["success"],
  },
  tools: {
    messages: [
      user,
      text("x1", "I look."),
      call("c1", "get_weather", '{"city":"Paris"}'),
      result("c1", "sunny"),
      text("x2", "All done."),
    ],
    outcomes: ["success"],
  },
  parallel: {
    messages: [
      user,
      call("c1", "get_weather", '{"city":"Paris"}'),
      result("c1", "sunny!"),
      call("c2", "get_time", '{"z":0}'),
      result("c2", "noon", "error"),
      text("x2", "All done."),
    ],
    outcomes: ["success"],
  },
  approval: {
    messages: [
      user,
      text("x1", "I ask."),
      call("c1", "execute_trade", '{"n":1}'),
      result("c1", "that was success"),
      text("x2", "All done."),
    ],
    outcomes: ["interrupt", "success"],
    interrupts: [[ask("c1", "execute_trade")], []],
  },
  edit: {
    messages: [
      user,
      text("x1", "I ask."),
      discarded("c1"),
      call("c1", "execute_trade", '{"n":2}', "c1-2"),
      result("c1", "that was success"),
      text("x2", "All done."),
    ],
    outcomes: ["interrupt", "success"],
    interrupts: [[ask("c1", "execute_trade")], []],
    answers: { c1: { status: "resolved", payload: { approved: true, editedArgs: { n: 2 } } } },
  },
  denial: {
    messages: [
      user,
      text("x1", "I ask."),
      call("c1", "execute_trade", '{"n":1}'),
      result("c1", "that was denied", "denied"),
      text("x2", "All done."),
    ],
    outcomes: ["interrupt", "success"],
    interrupts: [[ask("c1", "execute_trade")], []],
    answers: { c1: { status: "cancelled" } },
  },
  asks: {
    messages: [
      user,
      call("c1", "execute_trade", '{"n":1}'),
      result("c1", "sold"),
      call("c2", "send_mail", "{}"),
      result("c2", "denied", "denied"),
      call("c3", "now", "{}"),
      result("c3", "noon"),
      text("x2", "All done."),
    ],
    // What goes on while two are asked for comes in a run that ends with the same question.
    outcomes: ["interrupt", "interrupt", "success"],
    interrupts: [
      [ask("c1", "execute_trade"), ask("c2", "send_mail")],
      [ask("c1", "execute_trade"), ask("c2", "send_mail")],
      [],
    ],
    answers: { c2: { status: "resolved", payload: { approved: false } } },
  },
  external: {
    messages: [
      user,
      call("c1", "open_page", '{"url":"/"}'),
      { id: "client-1", role: "tool", toolCallId: "c1", content: "opened" },
      text("x2", "All done."),
    ],
    outcomes: ["success", "success"],
    results: { c1: { id: "client-1", role: "tool", toolCallId: "c1", content: "opened" } },
  },
  error: { messages: [user, text("x1", "It was a dark")], outcomes: ["error"] },
  interruption: {
    messages: [
      user,
      text("x1", "I look."),
      call("c1", "get_weather", '{"city":"Paris"}'),
      result("c1", "half", "interrupted"),
      text("x2", "And then"),
    ],
    outcomes: ["cancelled"],
  },
  stop: {
    messages: [user, call("c1", "execute_trade", '{"n":1}'), result("c1", "stopped", "interrupted")],
    outcomes: ["interrupt", "cancelled"],
    interrupts: [[ask("c1", "execute_trade")], []],
  },
  discard: {
    messages: [user, discarded("x1"), discarded("c1"), text("x2", "All done.")],
    outcomes: ["success"],
  },
  replaced: {
    messages: [user, discarded("x1"), text("x1-2", "It is going"), text("x2", "Next.")],
    outcomes: ["success"],
  },
  truncated: { messages: [user, text("x1", "Hello")], outcomes: ["error"] },
};

for (const [name, want] of Object.entries(expected)) {
  test(`${name}: the client ends with these messages`, async () => {
    const played = await play(all[name].runs, want);
    checkRuns(played, all[name].runs, want.outcomes);
    assert.deepEqual(played.messages, want.messages);
    if (want.interrupts) {
      assert.deepEqual(
        played.runs.map((run) => run.pendingInterrupts),
        want.interrupts,
      );
    }
  });
}

test("usage is that of the run's own model calls, and the runs have names", async () => {
  const { runs } = await play(all.approval.runs);
  const tokens = (times) => [
    {
      model: "demo",
      inputTokens: 10 * times,
      outputTokens: 4 * times,
      totalTokens: 14 * times,
      cachedInputTokens: 3 * times,
    },
  ];
  assert.deepEqual(
    runs.map((run) => run.ends[0].usage),
    [tokens(1), tokens(1)],
  );
  assert.deepEqual(
    runs.map((run) => run.ids),
    [["run"], ["run-2"]],
  );
  const tools = await play(all.tools.runs);
  assert.deepEqual(tools.runs[0].ends[0].usage, tokens(2));
});

test("an error says what kind it is", async () => {
  const { runs } = await play(all.error.runs);
  assert.deepEqual(runs[0].ends, [{ outcome: "error", message: "the model broke off", code: "upstream" }]);
});

test("a call that the client executes is named at the end of the run", async () => {
  const { runs } = await play(all.external.runs, expected.external);
  assert.deepEqual(
    runs.map((run) => run.ends[0].pending),
    [["c1"], []],
  );
});

test("who did not execute the call is told its result", async () => {
  const { messages } = await play(all.external.runs);
  assert.deepEqual(
    messages.map(({ id }) => id),
    ["u", "c1", "client-1", "x2"],
  );
  assert.equal(messages[2].content, "opened");
});

test("an end that is not quite one says so", async () => {
  const { runs } = await play(all.replaced.runs);
  assert.deepEqual(runs[0].ends[0].metadata, { turnwire: { finished_reason: "exceed_max_iters" } });
});

test("data: activities in their places, parts in results, customs beside", async () => {
  const played = await play(all.data.runs);
  checkRuns(played, all.data.runs, ["success"]);
  const [, image, said, hint, other, whole, made, drawn] = played.messages;
  assert.equal(played.messages.length, 8);
  assert.deepEqual(
    [image.role, image.activityType, image.content.source, image.content.name],
    ["activity", "data", { type: "base64", data: "iVBORw0KGgo=", media_type: "image/png" }, "dot.png"],
  );
  assert.deepEqual(said, text("x1", "A dot."));
  assert.deepEqual([hint.id, hint.activityType, hint.content.hint], ["n1", "hint", "Mind the gap."]);
  assert.deepEqual([other.id, other.activityType, other.content], ["r-block-1", "block", { type: "x_map", zoom: 3 }]);
  assert.deepEqual(whole, text("x9", "All at once."));
  assert.deepEqual(made, call("c1", "draw", "{}"));
  assert.deepEqual(drawn, {
    ...result("c1", [
      { type: "text", text: "Here:" },
      { type: "image", source: { type: "data", value: "iVBORw0KGgo=", mimeType: "image/png" } },
    ]),
    metadata: { took: 3, turnwire: { reply: "r" } },
  });
  assert.deepEqual(played.customs[0], { name: "progress", value: { done: 0.5 } });
  assert.equal(played.customs[1].name, "x_later");
  assert.equal(played.customs[1].value.mood, "good");
  assert.deepEqual(played.runs[0].ends[0].result, { dots: 1 });
});

test("team: sub-agents' messages are theirs, and what they ask is asked", async () => {
  const played = await play(all.team.runs);
  checkRuns(played, all.team.runs, ["interrupt", "success"]);
  assert.deepEqual(
    played.messages.map(({ id, subagentRunId }) => [id, subagentRunId]),
    [
      ["u", undefined],
      ["c1", undefined],
      ["c1-result", undefined],
      ["y1", "s1"],
      ["k1", "s1"],
      ["k1-result", "s1"],
      ["z0", "s2"],
      ["z1", "s2"],
      ["m1", "s2"],
      ["m1-result", "s2"],
      ["y2", "s1"],
      ["x2", undefined],
    ],
  );
  assert.deepEqual(
    played.runs[0].pendingInterrupts.map(({ id, subagentRunId }) => [id, subagentRunId]),
    [["m1", "s2"]],
  );
  const subs = ({ subs }) =>
    subs.map((sub) => [sub.subagentRunId, sub.name, sub.parentSubagentRunId, sub.parentToolCallId]);
  const both = [
    ["s1", "researcher", undefined, "c1"],
    ["s2", "helper", "s1", "k1"],
  ];
  assert.deepEqual(played.runs.map(subs), [both, both]);
});

for (const [name, { runs, late, merged, events }] of Object.entries(all)) {
  const { answers, results } = expected[name] ?? {};
  test(`${name}: who comes late ends with what an early one has`, async () => {
    const early = await play(runs, { answers });
    for (const [way, bodies] of [
      ["", late],
      [", merged", merged],
    ]) {
      for (const [at, body] of bodies.entries()) {
        const where = `after ${events[at]} (${at + 1})${way}`;
        const played = await play(body, { answers }).catch((error) => {
          throw new Error(`${where}: ${error.message}`);
        });
        assert.deepEqual(played.warnings, [], where);
        assert.deepEqual(played.messages, early.messages, where);
        const last = ({ runs }) => {
          const { run, usage, pending, ...end } = runs.at(-1).ends.at(-1);
          // The client takes a call that was discarded for one that the application answers.
          return name === "discard" ? end : { ...end, pending };
        };
        assert.deepEqual(last(played), last(early), where);
        assert.deepEqual(played.agent.pendingInterrupts, early.agent.pendingInterrupts, where);
      }
    }
  });
  if (results) {
    test(`${name}: who comes late and answers ends with what an early one has`, async () => {
      const ids = async (bodies) => (await play(bodies, { results })).messages.map(({ id }) => id);
      const early = await ids(runs);
      for (const body of late) assert.deepEqual(await ids(body), early);
    });
  }
}

test("the history that a client sends back is our own again", async () => {
  for (const name of ["plain", "thinking", "tools", "parallel", "approval", "data", "external"]) {
    const { answers, results } = expected[name] ?? {};
    const { agent } = await play(all[name].runs, { answers, results });
    agent.addMessage({ id: "u2", role: "user", content: "more" });
    const input = {
      threadId: "t",
      runId: "n",
      messages: agent.messages.filter(({ role }) => role !== "activity"),
    };
    const read = readRequest(input);
    assert.deepEqual(
      read.history.map(({ id, role }) => [id, role]),
      [
        ["u", "user"],
        ["r", "assistant"],
        ["u2", "user"],
      ],
      name,
    );
    assert.deepEqual(
      read.new.map(({ id }) => id),
      ["u2"],
      name,
    );
  }
});

test("what the client really sends is read", async () => {
  const asked = await play(all.asks.runs, expected.asks);
  const read = readRequest(asked.requests[2]);
  assert.equal(read.thread, "t");
  assert.deepEqual(
    read.decisions.map(({ type, reply_id, confirm_results }) => [
      type,
      reply_id,
      confirm_results.map(({ confirmed, tool_call }) => [tool_call.id, confirmed]),
    ]),
    [
      [
        "USER_CONFIRM_RESULT",
        "r",
        [
          ["c1", true],
          ["c2", false],
        ],
      ],
    ],
  );
  const edited = await play(all.edit.runs, expected.edit);
  const decision = readRequest(edited.requests[1]).decisions[0].confirm_results[0];
  assert.deepEqual([decision.confirmed, decision.tool_call.input], [true, '{"n":2}']);
  const denied = await play(all.denial.runs, expected.denial);
  assert.equal(readRequest(denied.requests[1]).decisions[0].confirm_results[0].confirmed, false);
  const external = await play(all.external.runs, expected.external);
  const [
    {
      type,
      execution_results: [opened],
    },
  ] = readRequest(external.requests[1]).results;
  assert.deepEqual(
    [type, opened.id, opened.output, opened.state, opened.message_id],
    ["EXTERNAL_EXECUTION_RESULT", "c1", "opened", "success", "client-1"],
  );
});

test("random turns are taken, early and late", async () => {
  const first = Number(process.env.TURNWIRE_SEED ?? Math.floor(Math.random() * 2 ** 40));
  for (const { seed, runs, late } of random(first, 40)) {
    const where = `TURNWIRE_SEED=${seed}`;
    if (runs.length === 0) continue;
    const [one, other] = [await play(runs), await play(late)];
    assert.deepEqual([one.warnings, other.warnings], [[], []], where);
    assert.deepEqual(other.messages, one.messages, where);
    for (const run of one.runs) assert.equal(run.ends.length, 1, where);
  }
});

test("random messages are messages to the client", async () => {
  const first = Number(process.env.TURNWIRE_SEED ?? Math.floor(Math.random() * 2 ** 40));
  for (const { seed, messages } of random(first, 40)) {
    const frame = (event) => `data: ${event}\n\n`;
    const body = [
      '{"type":"RUN_STARTED","threadId":"t","runId":"n"}',
      `{"type":"MESSAGES_SNAPSHOT","messages":[${messages.join(",")}]}`,
      '{"type":"RUN_FINISHED","threadId":"t","runId":"n"}',
    ]
      .map(frame)
      .join("");
    const played = await play([body]);
    assert.deepEqual(played.warnings, [], `TURNWIRE_SEED=${seed}`);
    assert.deepEqual(
      played.messages,
      messages.map((message) => JSON.parse(message)),
      `TURNWIRE_SEED=${seed}`,
    );
  }
});
