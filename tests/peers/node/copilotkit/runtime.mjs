// CopilotKit's runtime, as an application runs it: between its page and the agents.

import { once } from "node:events";
import { createServer } from "node:http";
import { HttpAgent } from "@ag-ui/client";
import { createOpenAI } from "@ai-sdk/openai";
import { BuiltInAgent, CopilotRuntime, InMemoryAgentRunner } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";

process.env.COPILOTKIT_TELEMETRY_DISABLED = "true";

/** An agent of Turnwire. */
export const turnwire = (url) => new HttpAgent({ url });

/** CopilotKit's own agent straight at the provider, for comparison. */
export const control = (provider) =>
  new BuiltInAgent({ model: createOpenAI({ baseURL: `${provider.url}/v1`, apiKey: "none" }).chat("gpt-4o") });

/** Starts a runtime with one agent. Returns its address. */
export async function startRuntime(t, agent) {
  const runtime = new CopilotRuntime({ agents: { default: agent }, runner: new InMemoryAgentRunner() });
  const listener = createServer(createCopilotNodeListener({ runtime, basePath: "/copilotkit", cors: true }));
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  t.after(() => {
    listener.closeAllConnections();
    listener.close();
  });
  return `http://127.0.0.1:${listener.address().port}/copilotkit`;
}
