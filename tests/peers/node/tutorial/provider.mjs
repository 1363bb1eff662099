// The model of the tutorial: a provider that streams OpenAI's chat completions, and knows what the page asks.

import { once } from "node:events";
import { createServer } from "node:http";

/** What the model answers to a conversation: a delta without its finish reason. */
function answerTo({ messages, tools = [] }) {
  const last = messages.at(-1);
  if (last.role === "tool") return { content: "Done: it is in your notes." };
  const said = typeof last.content === "string" ? last.content : last.content.map(({ text }) => text).join("");
  const [, note] = said.match(/^Note: (.*)/) ?? [];
  const tool = tools.find(({ function: { parameters } }) => parameters.properties?.text);
  if (note && tool) {
    const call = { name: tool.function.name, arguments: JSON.stringify({ text: note }) };
    return { tool_calls: [{ index: 0, id: `call_${crypto.randomUUID()}`, type: "function", function: call }] };
  }
  return { content: "The capital of France is Paris." };
}

/** Starts the provider, and returns its address. */
export async function startProvider(t, key, model) {
  const server = createServer(async (request, response) => {
    const parts = await request.toArray();
    const refuse = (status, message) => response.writeHead(status).end(JSON.stringify({ error: { message } }));
    if (request.url !== "/v1/chat/completions") return refuse(404, `no route ${request.url}`);
    if (request.headers.authorization !== `Bearer ${key}`) return refuse(401, "wrong API key");
    const body = JSON.parse(Buffer.concat(parts));
    if (body.model !== model) return refuse(404, `no model ${body.model}`);
    const answer = answerTo(body);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (choices, rest = {}) => {
      const chunk = { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model, choices, ...rest };
      response.write(`data: ${JSON.stringify(chunk)}\n\n`);
    };
    const words = answer.content?.match(/\S+\s*/g).map((content) => ({ content }));
    for (const delta of words ?? [answer]) send([{ index: 0, delta, finish_reason: null }]);
    send([{ index: 0, delta: {}, finish_reason: words ? "stop" : "tool_calls" }]);
    send([], { usage: { prompt_tokens: 20, completion_tokens: 7, total_tokens: 27 } });
    response.end("data: [DONE]\n\n");
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}
