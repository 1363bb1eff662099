// The requests that we write, sent to a model server: its journal shows what it understood.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { LLMock } from "@copilotkit/aimock";

const program =
  process.env.REQUESTS ?? fileURLToPath(new URL("../../../../target/debug/examples/requests", import.meta.url));
const requests = execFileSync(program, { encoding: "utf8", maxBuffer: 1 << 28 })
  .trim()
  .split("\n")
  .map((line) => JSON.parse(line));

const paths = {
  "openai-chat": "/v1/chat/completions",
  "openai-responses": "/v1/responses",
  anthropic: "/v1/messages",
  gemini: "/v1beta/models/test-model:streamGenerateContent?alt=sse",
  ollama: "/api/chat",
};

const mock = new LLMock({ port: 0, chunkSize: 7 });
let base;
before(async () => {
  mock.addFixture({ match: { predicate: () => true }, response: { content: "understood" } });
  base = await mock.start();
});
after(() => mock.stop());

async function send(request, headers = {}) {
  mock.clearRequests();
  const response = await fetch(base + paths[request.wire], {
    method: "POST",
    headers: {
      "content-type": "application/json",
      authorization: "Bearer k",
      "x-api-key": "k",
      ...headers,
    },
    body: JSON.stringify(request.body),
  });
  const answer = await response.text();
  return { status: response.status, answer, journal: mock.getRequests() };
}

function text(content) {
  if (typeof content === "string") return content;
  const isText = (part) => part.type === "text" || part.type === "input_text";
  return (content ?? [])
    .filter(isText)
    .map((part) => part.text)
    .join("\n");
}

// What the server took the messages for: who, what, which calls, and how many images. Its journal
// has images only of chats. Neighbours of one role are one: Responses has an item for each call,
// and Anthropic's users have one turn.
function understood(wire, messages) {
  const found = [];
  for (const message of messages) {
    const one = {
      role: message.role,
      text: text(message.content),
      calls: (message.tool_calls ?? []).map((call) => [call.function.name, JSON.parse(call.function.arguments)]),
      id: message.tool_call_id,
      ids: (message.tool_calls ?? []).map((call) => call.id),
      images: Array.isArray(message.content)
        ? message.content.filter((part) => part.type === "image_url").map((part) => part.image_url.url)
        : [],
    };
    const last = found.at(-1);
    if (last?.role === one.role && one.role !== "tool") {
      last.text += `\n${one.text}`;
      last.calls.push(...one.calls);
      last.ids.push(...one.ids);
      last.images.push(...one.images);
    } else {
      found.push(one);
    }
  }
  if (wire !== "anthropic") return found;
  // The server shows what the user says besides results before them; we wrote it behind them.
  for (let at = 1; at < found.length; at += 1) {
    if (found[at].role === "tool" && found[at - 1].role === "user") {
      [found[at - 1], found[at]] = [found[at], found[at - 1]];
    }
  }
  return found;
}

const user = (...texts) => ({ role: "user", texts, calls: [] });
const system = (...texts) => ({ role: "system", texts, calls: [] });
const tool = (...texts) => ({ role: "tool", texts, calls: [] });
const assistant = (texts, ...calls) => ({ role: "assistant", texts, calls });
const weather = ["get_weather", { city: "Paris" }];
const time = ["get_time", {}];
const greeted = [user("hello"), assistant(["Hi!"]), user("again")];
// A result's image, where it cannot be in the result.
const shown = (wire) => (["openai-chat", "gemini", "ollama"].includes(wire) ? [user("gave:")] : []);
const leftOut = (wire, wires, what) => (wires.includes(wire) ? [what] : []);

// What every provider must have understood of a conversation, in order.
const expected = {
  plain: () => [user("hello")],
  "system and several turns": () => [system("Be brief."), user("hello"), assistant(["Hi!"]), user("and again")],
  "thinking, signed by Anthropic": () => greeted,
  "a hint in the middle": () => [
    user("hello"),
    assistant(["One."]),
    user("The build is green."),
    assistant(["Two."]),
    user("again"),
  ],
  "nothing at all": (wire) => (wire === "ollama" ? [] : [user("Begin")]),
  "only the system has spoken": (wire) => [
    system("Be brief."),
    ...(["openai-chat", "ollama"].includes(wire) ? [] : [user("Begin")]),
  ],
  "the assistant begins": () => [assistant(["Hello, I am Friday."]), user("hi")],
  "the assistant ends": () => [user("hello"), assistant(["Hi!"])],
  "two users in a row": () => [user("hello", "are you there?")],
  "two replies in a row": () => [user("weather"), assistant(["Let me look."], weather), tool("sunny")],
  "the system speaks again": (wire) =>
    ["anthropic", "gemini"].includes(wire)
      ? [system("Be brief.", "It is late."), user("hello"), assistant(["Hi!"]), user("bye")]
      : [system("Be brief."), user("hello"), assistant(["Hi!"]), system("It is late."), user("bye")],
  "nothing but space": (wire) => [...(wire === "anthropic" ? [] : [user()]), assistant(["Hi!"]), user("hello")],
  "other scripts": () => [user("你好，世界 🌍"), assistant(['Grüße \0 "\\']), user("مرحبا")],
  "a hint with an image": () => [user("hello"), assistant(["One."]), user("This is new:")],
  "thinking before a call, signed by Anthropic": () => [user("weather"), assistant([], weather), tool("sunny")],
  "thinking, redacted by Anthropic": () => greeted,
  "thinking, encrypted by OpenAI": () => greeted,
  "thinking as DeepSeek writes it": () => greeted,
  "thinking that broke off": () => [user("hello"), assistant(["Hm."]), user("again")],
  "a call, signed by Gemini": () => [user("weather"), assistant([], weather), tool("sunny")],
  "a search by Anthropic": () => greeted,
  "a search by Anthropic that broke off": () => greeted,
  "a search by OpenAI": () => greeted,
  "code run by Gemini": () => greeted,
  "an item of nobody's": () => greeted,
  "an image as bytes": () => [user("What is this?")],
  "an image elsewhere": (wire) => [user("What is this?", ...leftOut(wire, ["ollama"], "image/png was left out"))],
  sound: (wire) => [
    user("What is this?", ...leftOut(wire, ["openai-responses", "anthropic", "ollama"], "audio/wav was left out")),
  ],
  "a file": (wire) => [
    user("What is this?", ...leftOut(wire, ["ollama"], 'application/pdf "report.pdf" was left out')),
  ],
  "a text file": (wire) => [user("What is this?", ...leftOut(wire, ["openai-chat", "ollama"], "# Notes"))],
  "a film": (wire) => [
    user(
      "What is this?",
      ...leftOut(wire, ["openai-chat", "openai-responses", "anthropic", "ollama"], "video/mp4 was left out"),
    ),
  ],
  "an image in its URL": () => [user("What is this?")],
  "an older image block": () => [user("What is this?")],
  "an image without bytes": () => [user("What is this?", "image/png was left out: it has no bytes")],
  "images of all kinds": (wire) => [
    user("What is this?", ...leftOut(wire, ["gemini"], "image/gif was left out"), "image/svg+xml was left out"),
  ],
  "an image that the assistant made": (wire) => [
    user("paint"),
    assistant(["Here:", ...leftOut(wire, ["openai-chat", "openai-responses", "anthropic"], "image/png was left out")]),
    user("thanks"),
  ],
  "what no provider takes": () => [
    user("What is this?", "image/png was left out", "application/x-unheard-of was left out"),
  ],
  "tools to choose from": () => [user("weather")],
  "two calls at once": () => [
    user("weather and time"),
    assistant(["Let me look."], weather, time),
    tool("sunny"),
    tool("noon"),
    assistant(["Sunny, at noon."]),
    user("thanks"),
  ],
  "results in a message of their own": () => [user("weather"), assistant([], weather), tool("sunny")],
  "failed and denied": () => [
    user("weather and time"),
    assistant([], weather, time),
    tool("no such city"),
    tool("denied"),
  ],
  "a call without a result": () => [user("weather"), assistant([], weather), tool("interrupted"), user("still there?")],
  "an image in a result": (wire) => [user("weather"), assistant([], weather), tool("See the picture."), ...shown(wire)],
  "arguments that broke off": (wire) => {
    const input = { [wire === "anthropic" ? "raw_input" : "unparsed_input"]: '{"city": "Par' };
    return [user("weather"), assistant([], ["get_weather", input]), tool("no JSON")];
  },
  "a result that is not whole yet": () => [
    user("weather and time"),
    assistant([], weather, time),
    tool("sun", "still running"),
    tool("still running"),
  ],
  "an image in a result that failed": (wire) => [
    user("weather"),
    assistant([], weather),
    tool("Half of it:"),
    ...(wire === "anthropic" ? [user("gave:")] : shown(wire)),
  ],
  "names that nobody offered": (wire) => [
    user("weather"),
    assistant(
      [],
      [wire === "ollama" ? "functions.wetter_für" : "functions_wetter_f_r", {}],
      [wire === "ollama" ? "" : "unnamed", {}],
    ),
    tool("no such tool"),
    tool("no such tool"),
  ],
  "ids of other providers": () => [
    user("weather"),
    assistant([], time, time, time, time),
    tool("one"),
    tool("two"),
    tool("three"),
    tool("four"),
  ],
  "one id twice": () => [
    user("time"),
    assistant([], time),
    tool("noon"),
    user("and now?"),
    assistant([], time),
    tool("one"),
  ],
  "results that nobody asked for": () => [user("time")],
  "a tool that says nothing of its input": () => [user("hello")],
  "agents as a history": () => [
    system("Moderate."),
    user("<history>\nann: tea or coffee?\nA: Tea.\nB: Coffee.", "</history>"),
  ],
  "agents by name": () => [system("Moderate."), user("[ann]: tea or coffee?", "[A]: Tea.", "[B]: Coffee.")],
  "agents as a history, with a call": () => [
    user("# Conversation History", "<history>\nann: tea or coffee?\nA: Tea.\n</history>"),
    assistant([], time),
    tool("noon"),
    user("<history>\nA: It is noon.\nann: so?\n</history>"),
  ],
  "agents by name, with a call": () => [
    user("[ann]: tea or coffee?", "[A]: Tea."),
    assistant([], time),
    tool("noon"),
    user("[A]: It is noon.", "[ann]: so?"),
  ],
  "no tool": () => [user("weather")],
  "some tool": () => [user("weather")],
  "this tool": () => [user("weather")],
  "structured output": () => [user("plan")],
  "structured output that leaves room": () => [user("plan")],
  "limits and extras": () => [user("hello")],
};

// Two providers want a user's turn first and last.
function wanted(request) {
  const turns = expected[request.name](request.wire);
  if (!["anthropic", "gemini"].includes(request.wire)) return turns;
  const begins = turns.find((turn) => turn.role !== "system")?.role === "assistant";
  const ends = turns.at(-1)?.role === "assistant";
  return [...(begins ? [user("begins with your words")] : []), ...turns, ...(ends ? [user("Go on")] : [])];
}

// How many images a chat must show.
const images = {
  "an image as bytes": 1,
  "an image elsewhere": 1,
  "an image in its URL": 1,
  "an older image block": 1,
  "images of all kinds": 3,
  "a hint with an image": 1,
  "an image in a result": 1,
  "an image in a result that failed": 1,
  "agents as a history": 1,
  "agents by name": 1,
};

const goal = {
  type: "object",
  properties: { goal: { type: "string" } },
  required: ["goal"],
  additionalProperties: false,
};

// What the journal must have besides messages, as far as it has it of this wire.
const settings = {
  "tools to choose from": (wire, body) => {
    assert.deepEqual(
      body.tools.map((tool) => tool.function.name),
      ["get_weather", "get_time"],
    );
    assert.equal(body.tools[0].function.description, "The weather of a city");
    // The server knows only Gemini's older field.
    if (wire === "gemini") return;
    assert.deepEqual(body.tools[0].function.parameters, {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
    });
  },
  "a tool that says nothing of its input": (wire, body) => {
    if (wire === "gemini") return;
    assert.deepEqual(body.tools[0].function.parameters, { type: "object", properties: {} });
  },
  "no tool": (wire, body) => {
    if (wire.startsWith("openai")) assert.equal(body.tool_choice, "none");
    if (wire === "ollama") assert.equal(body.tools, undefined);
  },
  "some tool": (wire, body) => {
    if (wire.startsWith("openai")) assert.equal(body.tool_choice, "required");
  },
  "this tool": (wire, body) => {
    const choices = {
      "openai-chat": { type: "function", function: { name: "get_time" } },
      "openai-responses": { type: "function", name: "get_time" },
    };
    assert.deepEqual(body.tool_choice, choices[wire]);
    if (wire === "ollama")
      assert.deepEqual(
        body.tools.map((tool) => tool.function.name),
        ["get_time"],
      );
  },
  "structured output": (wire, body) => {
    if (wire !== "openai-chat") return;
    assert.deepEqual(body.response_format, {
      type: "json_schema",
      json_schema: { name: "plan", strict: true, schema: goal },
    });
  },
  "limits and extras": (_, body) => {
    assert.equal(body.max_tokens, 99);
    assert.equal(body.temperature, 0.5);
  },
};

for (const request of requests.filter((request) => paths[request.wire])) {
  test(`${request.wire}: ${request.name}`, async () => {
    const { status, answer, journal } = await send(request);
    assert.equal(status, 200, answer);
    // The answer comes in pieces of seven letters.
    assert.match(answer, /underst/);
    assert.equal(journal.length, 1);
    const { body } = journal[0];
    assert.equal(body.model, "test-model");
    if (request.wire !== "gemini") assert.equal(body.stream, true);

    const found = understood(request.wire, body.messages);
    const turns = wanted(request);
    assert.deepEqual(
      found.map(({ role, calls }) => ({ role, calls })),
      turns.map(({ role, calls }) => ({ role, calls })),
      JSON.stringify(found),
    );
    turns.forEach(({ texts }, at) => {
      let from = 0;
      for (const part of texts) {
        const place = found[at].text.indexOf(part, from);
        assert.notEqual(place, -1, `${found[at].text} has no ${part}`);
        from = place + part.length;
      }
    });

    // Each call has exactly one result, in the order of the calls, and no id is there twice. The
    // server makes up ids of its own for Ollama, and for the results of Gemini.
    if (!["ollama", "gemini"].includes(request.wire)) {
      const ids = found.flatMap((message) => message.ids);
      assert.deepEqual(
        found.filter(({ role }) => role === "tool").map(({ id }) => id),
        ids,
      );
      assert.equal(new Set(ids).size, ids.length, ids.join());
    }
    if (request.wire === "openai-chat") {
      const urls = found.flatMap((message) => message.images);
      assert.equal(urls.length, images[request.name] ?? 0);
      assert.ok(urls.every((url) => url.startsWith("data:image/") || url === "https://example.com/a.png"));
    }
    settings[request.name]?.(request.wire, body);
  });
}

test("anthropic: thinking before a call holds where thinking is on", async () => {
  const name = "thinking before a call, signed by Anthropic";
  const request = requests.find((request) => request.wire === "anthropic" && request.name === name);
  const thinking = { type: "enabled", budget_tokens: 1024 };
  const strict = { "x-aimock-strict": "true" };
  const { status, answer } = await send({ ...request, body: { ...request.body, thinking } }, strict);
  assert.equal(status, 200, answer);
});

test("every conversation was sent on every wire that the server speaks", () => {
  const names = new Set(requests.map((request) => request.name));
  assert.deepEqual([...names].sort(), Object.keys(expected).sort());
  for (const wire of Object.keys(paths)) {
    assert.equal(requests.filter((request) => request.wire === wire).length, names.size, wire);
  }
});
