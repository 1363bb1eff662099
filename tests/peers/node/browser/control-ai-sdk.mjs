// The usual backend of an AI SDK front end, for comparison: `streamText` straight at the provider, with the same tools.

import { once } from "node:events";
import { createServer } from "node:http";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { frontendTools } from "@assistant-ui/react-ai-sdk";
import { convertToModelMessages, isStepCount, jsonSchema, streamText, tool } from "ai";

const inputSchema = jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] });
const own = {
  travel__weather: tool({
    description: "The weather of a city",
    inputSchema,
    execute: async ({ city }) => `sunny in ${city}`,
  }),
  travel__book: tool({
    description: "Books a trip to a city",
    inputSchema,
    needsApproval: true,
    execute: async ({ city }) => `booked a trip to ${city}`,
  }),
};

const ALLOWED = { "access-control-allow-origin": "*", "access-control-allow-headers": "*" };

/** Starts the backend in front of a provider. Returns the address for a transport. */
export async function startControl(t, provider) {
  const model = createOpenAICompatible({ name: "fake", baseURL: `${provider.url}/v1` })("gpt-4o");
  const listener = createServer(async (request, response) => {
    if (request.method === "OPTIONS") return response.writeHead(204, ALLOWED).end();
    let text = "";
    for await (const piece of request) text += piece;
    const { messages, tools, system } = JSON.parse(text);
    const result = streamText({
      model,
      system,
      messages: await convertToModelMessages(messages),
      tools: { ...frontendTools(tools ?? {}), ...own },
      stopWhen: isStepCount(10),
    });
    await result.pipeUIMessageStreamToResponse(response, { headers: ALLOWED, originalMessages: messages });
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  t.after(() => {
    listener.closeAllConnections();
    listener.close();
  });
  return `http://127.0.0.1:${listener.address().port}/chat`;
}
