// The package `ai` with three providers, driven line by line: tests/peers/stateless/client_ai_sdk.py sends what the user
// says, and gets back what the client ended with. Histories stay here, under a number.

import { createInterface } from "node:readline";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";

const settings = (url) => ({ baseURL: `${url}/v1`, apiKey: "none" });

/** The model of each client. */
const MODELS = {
  "ai-openai": (url, model) => createOpenAI(settings(url)).responses(model),
  "ai-openai-chat": (url, model) => createOpenAI(settings(url)).chat(model),
  "ai-openai-compatible": (url, model) =>
    createOpenAICompatible({
      name: "compatible",
      ...settings(url),
      includeUsage: true,
      supportsStructuredOutputs: true,
    })(model),
  "ai-anthropic": (url, model) => createAnthropic(settings(url))(model),
};

const object = (properties) =>
  jsonSchema({ type: "object", properties, required: Object.keys(properties), additionalProperties: false });
const ofCity = object({ city: { type: "string" } });
const city = object({ name: { type: "string" }, population: { type: "integer" } });

const TOOLS = {
  get_weather: tool({
    description: "The weather of a city.",
    inputSchema: ofCity,
    execute: async ({ city }) => `${city}: sunny`,
  }),
  get_time: tool({
    description: "The time in a city.",
    inputSchema: ofCity,
    execute: async ({ city }) => `${city}: noon`,
  }),
};

const histories = [];
let model;

/** One message of the user, up to the final answer. */
async function turn({ history, text, system, tools, options, structured, image, stream }) {
  const content = image
    ? [
        { type: "text", text },
        { type: "file", data: image, mediaType: "image/png" },
      ]
    : text;
  const messages = [...(histories[history] ?? []), { role: "user", content }];
  const request = { model, messages, maxRetries: 0, stopWhen: stepCountIs(5), ...options };
  if (system) request.instructions = system;
  if (tools) request.tools = TOOLS;
  if (structured === "native") request.output = Output.object({ schema: city, name: "City" });
  if (structured === "tool") {
    request.tools = { City: tool({ description: "A city.", inputSchema: city }) };
    request.toolChoice = { type: "tool", toolName: "City" };
  }
  const result = stream ? streamText({ ...request, onError: () => {} }) : await generateText(request);
  const steps = await result.steps;
  const made = steps.flatMap((step) => step.response.messages);
  const answer = { steps: steps.map(describeStep) };
  if (structured === "native") answer.parsed = await result.output;
  if (structured === "tool") {
    const results = steps.at(-1).toolCalls.map(({ toolCallId, toolName }) => ({
      type: "tool-result",
      toolCallId,
      toolName,
      output: { type: "text", value: "Noted." },
    }));
    made.push({ role: "tool", content: results });
  }
  histories.push([...messages, ...made]);
  return { answer, history: histories.length - 1 };
}

function describeStep({ text, reasoningText, toolCalls, finishReason, usage }) {
  return {
    text,
    thinking: reasoningText ?? null,
    calls: toolCalls.map(({ toolName, input }) => [toolName, input]),
    finish: finishReason,
    usage: [usage.inputTokens, usage.outputTokens],
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  let reply;
  try {
    if (command.connect) {
      const { client, url, model: name } = command.connect;
      model = MODELS[client](url, name);
      reply = {};
    } else {
      reply = await turn(command.turn);
    }
  } catch (error) {
    reply = { error: `${error.name}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
