// The least that a server of AG-UI does, for comparison: each run sends the client's thread to the provider, executes the agent's
// own tools, and leaves those of the page to the page.

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const define = (name, description) => ({ type: "function", function: { name, description, parameters } });
const own = {
  travel__weather: [define("travel__weather", "The weather of a city"), ({ city }) => `sunny in ${city}`],
  travel__book: [define("travel__book", "Books a trip to a city"), ({ city }) => `booked a trip to ${city}`],
};

const ALLOWED = { "access-control-allow-origin": "*", "access-control-allow-headers": "*" };

/** A message of AG-UI as one of Chat Completions. */
function toChat({ role, content, toolCalls, toolCallId }) {
  if (role === "tool") return { role, content, tool_call_id: toolCallId };
  return { role, content: content || null, ...(toolCalls?.length ? { tool_calls: toolCalls } : {}) };
}

/** Adjacent messages of the assistant as one: a client may keep a text and its calls apart. */
function joinAnswers(messages) {
  const joined = [];
  for (const message of messages) {
    const last = joined.at(-1);
    if (last?.role !== "assistant" || message.role !== "assistant") joined.push(message);
    else {
      const calls = [...(last.tool_calls ?? []), ...(message.tool_calls ?? [])];
      const content = [last.content, message.content].filter((text) => text).join("") || null;
      joined[joined.length - 1] = { role: "assistant", content, ...(calls.length ? { tool_calls: calls } : {}) };
    }
  }
  return joined;
}

/** The events of a run. */
async function* run(provider, { threadId, runId, messages, tools }) {
  yield { type: "RUN_STARTED", threadId, runId };
  const history = joinAnswers(messages.map(toChat));
  const offered = tools.map(({ name, description, parameters }) => ({
    type: "function",
    function: { name, description, parameters },
  }));
  for (let isOver = false; !isOver; ) {
    const body = {
      model: "gpt-4o",
      messages: history,
      tools: [...offered, ...Object.values(own).map(([tool]) => tool)],
    };
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${provider.url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
    });
    const [{ message }] = (await answer.json()).choices;
    history.push(message);
    const messageId = randomUUID();
    if (message.content) {
      yield { type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
      yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta: message.content };
      yield { type: "TEXT_MESSAGE_END", messageId };
    }
    const calls = message.tool_calls ?? [];
    for (const { id: toolCallId, function: made } of calls) {
      yield { type: "TOOL_CALL_START", toolCallId, toolCallName: made.name, parentMessageId: messageId };
      yield { type: "TOOL_CALL_ARGS", toolCallId, delta: made.arguments };
      yield { type: "TOOL_CALL_END", toolCallId };
    }
    isOver = calls.length === 0;
    for (const { id: toolCallId, function: made } of calls) {
      const input = JSON.parse(made.arguments);
      if (made.name in own) {
        const content = own[made.name][1](input);
        history.push({ role: "tool", tool_call_id: toolCallId, content });
        yield { type: "TOOL_CALL_RESULT", messageId: randomUUID(), toolCallId, content, role: "tool" };
      } else {
        isOver = true;
        // TanStack AI's client executes a tool when its server says so.
        const value = { toolCallId, toolName: made.name, input };
        yield { type: "CUSTOM", name: "tool-input-available", value };
      }
    }
  }
  yield { type: "RUN_FINISHED", threadId, runId };
}

/** Starts the server in front of a provider. Returns its address. */
export async function startControl(t, provider) {
  const listener = createServer(async (request, response) => {
    if (request.method === "OPTIONS") return response.writeHead(204, ALLOWED).end();
    let text = "";
    for await (const piece of request) text += piece;
    response.writeHead(200, { ...ALLOWED, "content-type": "text/event-stream" });
    for await (const event of run(provider, JSON.parse(text))) response.write(`data: ${JSON.stringify(event)}\n\n`);
    response.end();
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  t.after(() => {
    listener.closeAllConnections();
    listener.close();
  });
  return `http://127.0.0.1:${listener.address().port}/run`;
}
