// An agent of ours asks a model server as it would ask the providers: what it emits, and what the
// server's journal says that it was asked.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, beforeEach, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { LLMock } from "@copilotkit/aimock";

const program =
  process.env.ASK_MODEL ?? fileURLToPath(new URL("../../../../target/debug/examples/ask_model", import.meta.url));

const KEY = "sk-this-is-the-key";
const mock = new LLMock({ port: 0, chunkSize: 5 });
let base;
before(async () => {
  base = await mock.start();
});
after(() => mock.stop());
beforeEach(() => {
  mock.clearFixtures();
  mock.clearRequests();
  mock.resetMatchCounts();
});

// What the program prints: the events of a reply.
async function ask(model, question, ...options) {
  const args = [model, question, "--base-url", base, "--key-env", "ASK_MODEL_KEY", ...options];
  const child = spawn(program, args, { env: { ...process.env, ASK_MODEL_KEY: KEY } });
  let [out, problems] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text) => {
    out += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    problems += text;
  });
  const code = await new Promise((resolve) => {
    child.on("close", resolve);
  });
  assert.equal(code, 0, problems);
  assert.ok(!out.includes(KEY) && !problems.includes(KEY), "the key is shown");
  return out
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
}

const types = (events) => events.map((event) => event.type);
const joined = (events, type) =>
  events
    .filter((event) => event.type === type)
    .map((event) => event.delta)
    .join("");
const end = (events) => events.findLast((event) => event.type === "MODEL_CALL_END");
const calls = (events) =>
  events
    .filter((event) => event.type === "TOOL_CALL_START")
    .map((start) => {
      const input = events
        .filter((event) => event.type === "TOOL_CALL_DELTA" && event.tool_call_id === start.tool_call_id)
        .map((event) => event.delta)
        .join("");
      return [start.tool_call_name, JSON.parse(input)];
    });

// Everything that is opened is closed, inside the one reply.
function whole(events) {
  const names = types(events);
  assert.equal(names[0], "REPLY_START");
  assert.equal(names.at(-1), "REPLY_END");
  const open = new Map();
  for (const event of events) {
    const [, what, state] = /^(.*)_(START|END)$/.exec(event.type) ?? [];
    if (!what) continue;
    const key = `${what} ${event.block_id ?? event.tool_call_id ?? ""}`;
    open.set(key, (open.get(key) ?? 0) + (state === "START" ? 1 : -1));
  }
  assert.deepEqual(
    [...open].filter(([, count]) => count !== 0),
    [],
    names.join(" "),
  );
}

const providers = {
  "openai:gpt-4o": "/v1/chat/completions",
  "openai-responses:gpt-4o": "/v1/responses",
  "anthropic:claude-sonnet-4-5": "/v1/messages",
  "gemini:gemini-2.5-flash": "/v1beta/models/gemini-2.5-flash:streamGenerateContent",
  "ollama:qwen3": "/api/chat",
};

// What the server does not do as the provider does.
const unlike = {
  "openai-responses:gpt-4o": { length: "the server does not say why its answer is incomplete" },
  "ollama:qwen3": {
    reasoning: "the server puts reasoning where Ollama has none",
    length: "the server always says that it stopped",
  },
};

const weather = { name: "get_weather", arguments: { city: "Paris" } };
const time = { name: "get_time", arguments: { city: "Rome" } };

// The results in what the server was asked, in order.
const results = (model, request) =>
  request.body.messages
    .filter(({ role }) => role === "tool")
    .map(({ content }) => (typeof content === "string" ? content : content.map((part) => part.text).join("")))
    .map((text) => (model.startsWith("gemini:") ? JSON.parse(text).output : text));

for (const [model, path] of Object.entries(providers)) {
  describe(model, () => {
    test("text", async () => {
      mock.on({ userMessage: "hello" }, { content: "Grüße, 你好 🌍, and a good day!" });
      const events = await ask(model, "hello");
      whole(events);
      assert.equal(joined(events, "TEXT_BLOCK_DELTA"), "Grüße, 你好 🌍, and a good day!");
      assert.equal(events.at(-1).finished_reason, "completed");
      assert.equal(end(events).finished_reason, "completed");
      const [request, ...more] = mock.getRequests();
      assert.deepEqual(more, []);
      assert.equal(new URL(request.path, base).pathname, path);
      assert.equal(request.body.model, model.split(":")[1]);
      assert.deepEqual(
        request.body.messages.map(({ role }) => role),
        ["system", "user"],
      );
      assert.deepEqual(
        request.body.tools.map((tool) => tool.function.name),
        ["get_weather", "get_time"],
      );
    });

    test("reasoning", { skip: unlike[model]?.reasoning }, async () => {
      mock.on({ userMessage: "think" }, { content: "Four.", reasoning: "Two and two are four." });
      const events = await ask(model, "think");
      whole(events);
      assert.equal(joined(events, "THINKING_BLOCK_DELTA"), "Two and two are four.");
      assert.equal(joined(events, "TEXT_BLOCK_DELTA"), "Four.");
      const names = types(events);
      assert.ok(names.indexOf("THINKING_BLOCK_END") < names.indexOf("TEXT_BLOCK_START"));
    });

    test("a tool, and its result in the next request", async () => {
      mock.on({ userMessage: "weather", hasToolResult: false }, { toolCalls: [weather] });
      mock.on({ userMessage: "weather", hasToolResult: true }, { content: "It is sunny." });
      const events = await ask(model, "the weather, please");
      whole(events);
      assert.deepEqual(calls(events), [["get_weather", { city: "Paris" }]]);
      assert.equal(joined(events, "TOOL_RESULT_TEXT_DELTA"), "Paris: sunny, 18 °C");
      assert.equal(joined(events, "TEXT_BLOCK_DELTA"), "It is sunny.");
      const ends = events.filter((event) => event.type === "MODEL_CALL_END");
      assert.deepEqual(
        ends.map((event) => event.finished_reason),
        ["tool_calls", "completed"],
      );
      const [, second, ...more] = mock.getRequests();
      assert.deepEqual(more, []);
      const roles = second.body.messages.map(({ role }) => role);
      assert.deepEqual(roles, ["system", "user", "assistant", "tool"]);
      assert.deepEqual(results(model, second), ["Paris: sunny, 18 °C"]);
    });

    test("two tools at once, and both results in the next request", async () => {
      mock.on({ userMessage: "both", hasToolResult: false }, { toolCalls: [weather, time] });
      mock.on({ userMessage: "both", hasToolResult: true }, { content: "Sunny, at noon." });
      const events = await ask(model, "both, please");
      whole(events);
      assert.deepEqual(calls(events), [
        ["get_weather", { city: "Paris" }],
        ["get_time", { city: "Rome" }],
      ]);
      assert.equal(joined(events, "TEXT_BLOCK_DELTA"), "Sunny, at noon.");
      const [, second] = mock.getRequests();
      assert.deepEqual(results(model, second), ["Paris: sunny, 18 °C", "Rome: noon"]);
      const called = second.body.messages
        .filter(({ role }) => role === "assistant")
        .flatMap((message) => message.tool_calls ?? []);
      assert.deepEqual(
        called.map((call) => [call.function.name, JSON.parse(call.function.arguments)]),
        [
          ["get_weather", { city: "Paris" }],
          ["get_time", { city: "Rome" }],
        ],
      );
    });

    for (const status of [429, 500, 503]) {
      test(`a ${status}, and then an answer`, async () => {
        mock.on(
          { userMessage: "hello", sequenceIndex: 0 },
          { error: { message: "not now", type: "server_error" }, status, retryAfter: 0 },
        );
        mock.on({ userMessage: "hello", sequenceIndex: 1 }, { content: "Here I am." });
        const events = await ask(model, "hello");
        whole(events);
        assert.equal(joined(events, "TEXT_BLOCK_DELTA"), "Here I am.");
        assert.equal(types(events).filter((type) => type === "MODEL_CALL_START").length, 1);
        const requests = mock.getRequests();
        assert.deepEqual(
          requests.map(({ response }) => response.status),
          [status, 200],
        );
        assert.deepEqual(requests[1].body, requests[0].body);
      });
    }

    test("a 401 is said once, with where the key comes from", async () => {
      const error = { message: `no such key: ${KEY}`, type: "authentication_error" };
      mock.on({ userMessage: "hello" }, { error, status: 401 });
      const events = await ask(model, "hello");
      whole(events);
      const { type, message } = events.at(-1).error;
      assert.equal(type, "authentication");
      assert.match(message, /401.*no such key: \[key\].*ASK_MODEL_KEY/);
      assert.equal(mock.getRequests().length, 1);
    });

    test("a 400 is not tried again", async () => {
      mock.on({ userMessage: "hello" }, { error: { message: "too odd" }, status: 400 });
      const events = await ask(model, "hello");
      whole(events);
      assert.equal(events.at(-1).error.type, "invalid_request");
      assert.match(events.at(-1).error.message, /too odd/);
      assert.equal(mock.getRequests().length, 1);
    });

    test("an answer at its limit", { skip: unlike[model]?.length }, async () => {
      mock.on({ userMessage: "hello" }, { content: "And then", finishReason: "length" });
      const events = await ask(model, "hello");
      whole(events);
      assert.equal(end(events).finished_reason, "length");
    });

    test("an answer that is cut off is truncated, and not asked for again", async () => {
      const content = "one two three four five six seven eight nine ten";
      mock.addFixture({
        match: { userMessage: "hello" },
        response: { content },
        latency: 5,
        truncateAfterChunks: 7,
      });
      const events = await ask(model, "hello");
      whole(events);
      const text = joined(events, "TEXT_BLOCK_DELTA");
      assert.ok(text.length > 0 && content.startsWith(text) && text !== content, text);
      assert.equal(end(events).finished_reason, "truncated");
      assert.equal(events.at(-1).finished_reason, "truncated");
      assert.equal(mock.getRequests().length, 1);
    });

    test("a server that goes away before it has said anything is asked again", async () => {
      const match = { userMessage: "hello" };
      mock.addFixture({
        match: { ...match, sequenceIndex: 0 },
        response: { content: "lost" },
        latency: 60_000,
        disconnectAfterMs: 50,
      });
      mock.addFixture({ match: { ...match, sequenceIndex: 1 }, response: { content: "Here I am." } });
      const events = await ask(model, "hello");
      whole(events);
      assert.equal(joined(events, "TEXT_BLOCK_DELTA"), "Here I am.");
      assert.equal(mock.getRequests().length, 2);
    });
  });
}

test("the fallback answers in its own protocol", async () => {
  mock.on({ model: "gpt-4o" }, { error: { message: "closed today" }, status: 503 });
  mock.on({ model: "claude-sonnet-4-5" }, { content: "I am the spare." });
  const events = await ask("openai:gpt-4o", "hello", "--fallback", "anthropic:claude-sonnet-4-5", "--retries", "1");
  whole(events);
  assert.equal(joined(events, "TEXT_BLOCK_DELTA"), "I am the spare.");
  assert.deepEqual(
    mock.getRequests().map(({ path }) => path),
    ["/v1/chat/completions", "/v1/chat/completions", "/v1/messages"],
  );
});
