// The real `ai` package judges what the `ai-sdk` wire writes.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  readUIMessageStream,
  validateUIMessages,
} from "ai";
import { Chat, serve, until } from "./chat.mjs";
import { checkResponse } from "./response-checks.mjs";

const binary =
  process.env.SCENARIOS ??
  fileURLToPath(new URL("../../../../target/debug/examples/ai_sdk_scenarios", import.meta.url));

function run(args = [], input = "") {
  const { status, stdout, stderr, error } = spawnSync(binary, args, {
    input,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  assert.equal(status, 0, `${binary} ${args.join(" ")}: ${error ?? stderr}`);
  return stdout
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));
}

const scenarios = run();
const named = Object.fromEntries(scenarios.map((scenario) => [scenario.name, scenario]));
const user = { id: "m1", role: "user", parts: [{ type: "text", text: "hi" }] };

// The message without times and without what is undefined.
function plain(message) {
  return JSON.parse(
    JSON.stringify(message, (key, value) => (key === "created_at" || key === "finished_at" ? undefined : value)),
  );
}

const fails = (scenario) => scenario.name === "error";

// Reads one response on top of the message so far, as strictly as the package can.
async function read(stream, message, scenario) {
  let last = message;
  let failure;
  try {
    for await (const next of readUIMessageStream({ message, stream, terminateOnError: true })) {
      last = next;
    }
  } catch (error) {
    failure = error;
  }
  assert.equal(failure?.message, fails(scenario) ? "Too many requests." : undefined);
  await validateUIMessages({ messages: [last] });
  return last;
}

// What the client does between two responses.
async function act(chat, actions) {
  for (const action of actions) {
    if ("edit" in action) {
      chat.messages = chat.messages.map((message) => ({
        ...message,
        parts: message.parts.map((part) => (part.toolCallId === action.edit ? { ...part, input: action.input } : part)),
      }));
    } else if ("output" in action) {
      await chat.addToolOutput({
        tool: action.tool,
        toolCallId: action.call,
        output: action.output,
      });
    } else {
      await chat.addToolApprovalResponse({
        id: action.approve ?? action.deny,
        approved: "approve" in action,
        reason: action.reason,
      });
    }
  }
}

// Sends a message, and answers what each response asks.
async function talk(chat, posted, allActions, each = () => {}) {
  await chat.sendMessage({ id: user.id, role: user.role, parts: user.parts });
  each();
  for (const actions of allActions) {
    const before = posted.length;
    await validateUIMessages({ messages: chat.messages });
    assert.equal(chat.status, "ready");
    await act(chat, actions);
    await until(() => posted.length === before + 1, "the answer is sent");
    await until(() => chat.status !== "submitted", "the response has begun");
    await until(() => chat.status !== "streaming", "the response has ended");
    each();
  }
}

function chatAt(api, more = {}) {
  return new Chat({
    id: "chat-1",
    transport: new DefaultChatTransport({ api }),
    sendAutomaticallyWhen: (options) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(options) ||
      lastAssistantMessageIsCompleteWithToolCalls(options),
    ...more,
  });
}

test("every scenario of the list is there", () => {
  const names = ["plain", "thinking", "tools", "parallel", "approval", "approval with an edit"];
  names.push("denial", "error", "interruption", "data");
  for (const name of names) assert.ok(name in named, name);
});

for (const scenario of scenarios) {
  describe(scenario.name, () => {
    test("every response keeps the rules that the client does not check", () => {
      const known = new Set();
      for (const body of scenario.bodies) checkResponse(body, known);
      checkResponse(scenario.late);
    });

    // A chat goes through the responses by itself: it sends each answer once all are given, and
    // nothing after the end.
    test("a chat ends with the message", async () => {
      await serve({ posts: scenario.bodies }, async (api, posted) => {
        const handed = [];
        const chat = chatAt(api, { onToolCall: ({ toolCall }) => void handed.push(toolCall) });
        await talk(chat, posted, scenario.actions);
        assert.equal(chat.status, fails(scenario) ? "error" : "ready", String(chat.error));
        assert.equal(posted.length, scenario.bodies.length);
        assert.deepEqual(plain(chat.messages.slice(1)), [scenario.expected]);
        await validateUIMessages({ messages: chat.messages });
        // Only what the client is to execute is handed to it.
        const external = (scenario.pending[0]?.external ?? []).map((call) => call.id);
        assert.deepEqual(
          handed.map((call) => call.toolCallId),
          external,
        );

        // What the client has posted says what it has answered.
        scenario.pending.forEach((pending, at) => {
          const request = posted[at + 1];
          const line = { request, known: ["m1"], reply_id: "r1", ...pending };
          const [taken] = run(["requests"], JSON.stringify(line));
          const answers = scenario.answers[at].map(({ agent_path, parent_tool_call_id, ...rest }) => rest);
          assert.deepEqual(taken, { chat: "chat-1", new: [], answers });
        });
        const line = { request: posted[0], known: [], reply_id: "r1" };
        assert.deepEqual(run(["requests"], JSON.stringify(line)), [{ chat: "chat-1", new: ["hi"], answers: [] }]);
      });
    });

    test("a client that comes late ends with the same message", async () => {
      await serve({ resumed: scenario.late }, async (api) => {
        const transport = new DefaultChatTransport({ api });
        const stream = await transport.reconnectToStream({ chatId: "chat-1" });
        const last = await read(stream, undefined, scenario);
        assert.deepEqual(plain(last), scenario.expected);
      });
    });

    test("a client that was cut off at any event ends with the same message", async () => {
      const whole = [];
      await serve({ posts: scenario.bodies }, async (api, posted) => {
        const chat = chatAt(api);
        await talk(chat, posted, scenario.actions, () => whole.push(plain(chat.messages)));
      });
      assert.equal(whole.length, scenario.bodies.length);
      for (const { response, sent, replay } of scenario.cuts) {
        checkResponse(replay);
        const posts = [...scenario.bodies.slice(0, response), sent];
        const breaks = (body) => body === sent;
        await serve({ posts, resumed: replay, breaks }, async (api, posted) => {
          const chat = chatAt(api);
          await talk(chat, posted, scenario.actions.slice(0, response));
          assert.equal(chat.status, "error", "the connection broke");
          await chat.resumeStream();
          assert.deepEqual(plain(chat.messages), whole[response]);
          await validateUIMessages({ messages: chat.messages });
        });
      }
    });

    test("the message as history is valid, and tells the same", async () => {
      await validateUIMessages({ messages: [scenario.history] });
      // What the main message shows of its sub-agents is in messages of their own there, and there
      // is no trace of an approval. What an interruption leaves open is for the agent to close.
      const told = (parts) =>
        parts
          .filter((part) => part.type !== "data-subagent" && part.title === undefined)
          // One model call behind another without a result between them cannot be told there.
          .filter((part) => part.type !== "step-start")
          .map(({ type, text, state, toolCallId, input, url, data }) =>
            plain({ type, text, state, toolCallId, input, url, data }),
          );
      if (scenario.name !== "interruption" && scenario.name !== "error") {
        assert.deepEqual(told(scenario.history.parts), told(scenario.expected.parts));
      }
    });
  });
}

test("each response is read by the strict reader, on top of the one before", async () => {
  for (const scenario of scenarios.filter((scenario) => scenario.actions.length === 0)) {
    await serve({ posts: scenario.bodies }, async (api) => {
      const transport = new DefaultChatTransport({ api });
      const stream = await transport.sendMessages({
        chatId: "chat-1",
        messages: [user],
        trigger: "submit-message",
      });
      assert.deepEqual(plain(await read(stream, undefined, scenario)), scenario.expected);
    });
  }
});

test("a client with nothing to resume stays as it is", async () => {
  await serve({}, async (api) => {
    const transport = new DefaultChatTransport({ api });
    assert.equal(await transport.reconnectToStream({ chatId: "chat-1" }), null);
  });
});

test("a stop is told apart from a failure", async () => {
  const finished = [];
  await serve({ posts: named.interruption.bodies }, async (api) => {
    const chat = chatAt(api, { onFinish: (options) => void finished.push(options) });
    await chat.sendMessage({ id: user.id, role: user.role, parts: user.parts });
  });
  const [{ isError, finishReason }] = finished;
  assert.deepEqual({ isError, finishReason }, { isError: false, finishReason: "interrupted" });
});

test("transient data reach the application and stay out of the message", async () => {
  const seen = [];
  await serve({ posts: named.data.bodies }, async (api) => {
    const chat = chatAt(api, { onData: (part) => void seen.push(part) });
    await chat.sendMessage({ id: user.id, role: user.role, parts: user.parts });
    assert.ok(!chat.lastMessage.parts.some((part) => part.type === "data-custom"));
  });
  assert.deepEqual(seen.find((part) => part.type === "data-custom")?.data, {
    name: "progress",
    value: { done: 1 },
  });
});

test("messages of every kind are valid", async () => {
  const messages = run(["messages", "7", "400"]);
  for (const message of messages) await validateUIMessages({ messages: [message] });
});

test("the client refuses what the rules forbid", async () => {
  // The judge judges: an output for a call that nobody has begun.
  const body =
    'data: {"type":"start","messageId":"r1"}\n\n' +
    'data: {"type":"tool-output-available","toolCallId":"x","output":1}\n\ndata: [DONE]\n\n';
  await serve({ posts: [body] }, async (api) => {
    const transport = new DefaultChatTransport({ api });
    const stream = await transport.sendMessages({ chatId: "c", messages: [user], trigger: "submit-message" });
    await assert.rejects(async () => {
      for await (const _ of readUIMessageStream({ stream, terminateOnError: true }));
    }, /No tool invocation found/);
  });
});
