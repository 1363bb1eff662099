// CopilotKit's front end without its own look: `useAgent`, a tool of the page, and a question to the user.

import { CopilotKitProvider, useAgent, useCopilotKit, useFrontendTool, useInterrupt } from "@copilotkit/react-core/v2";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

const { runtime, thread } = Object.fromEntries(new URLSearchParams(location.search));

/** The values of a call's input. While it arrives, the input is not complete JSON yet. */
function valuesOf(input) {
  try {
    return Object.values(JSON.parse(input)).join(" ");
  } catch {
    return input;
  }
}

/** A message: its text, its calls, and the result of a call. */
function Message({ message: { role, content, toolCalls = [] } }) {
  return (
    <article data-role={role}>
      {typeof content === "string" && <p>{content}</p>}
      {toolCalls.map(({ id, function: { name, arguments: input } }) => (
        <p key={id}>
          [{name} {valuesOf(input)}]
        </p>
      ))}
    </article>
  );
}

function Chat() {
  const { agent, isReady } = useAgent({ agentId: "chat", runtimeAgentId: "default", threadId: thread });
  const { copilotkit } = useCopilotKit();
  useFrontendTool({
    name: "paint",
    description: "Paints the page",
    parameters: z.object({ color: z.string() }),
    handler: async ({ color }) => {
      document.body.style.background = color;
      return { painted: color };
    },
  });
  const question = useInterrupt({
    agentId: "chat",
    renderInChat: false,
    render: ({ resolve }) => (
      <p>
        <button type="button" onClick={() => resolve({ approved: true })}>
          Allow
        </button>
        <button type="button" onClick={() => resolve({ approved: false })}>
          Deny
        </button>
      </p>
    ),
  });
  const [isConnected, setConnected] = useState(false);
  useEffect(() => {
    if (isReady) copilotkit.connectAgent({ agent }).finally(() => setConnected(true));
  }, [isReady, agent, copilotkit]);
  const [runs, setRuns] = useState(0);
  const run = async (messages) => {
    setRuns((count) => count + 1);
    agent.setMessages(messages);
    await copilotkit.runAgent({ agent });
    setRuns((count) => count - 1);
  };
  const send = (event) => {
    if (event.key !== "Enter") return;
    run([...agent.messages, { id: crypto.randomUUID(), role: "user", content: event.target.value }]);
    event.target.value = "";
  };
  /** The messages up to the last one of the user. */
  const askAgain = () => run(agent.messages.slice(0, agent.messages.findLastIndex(({ role }) => role === "user") + 1));
  return (
    <main data-status={isConnected && runs === 0 ? "ready" : "running"}>
      {agent.messages.map((message) => (
        <Message key={message.id} message={message} />
      ))}
      {question}
      <input aria-label="Message" disabled={!isConnected} onKeyDown={send} />
      <button type="button" onClick={askAgain}>
        Again
      </button>
    </main>
  );
}

createRoot(document.getElementById("root")).render(
  <CopilotKitProvider runtimeUrl={runtime} enableInspector={false}>
    <Chat />
  </CopilotKitProvider>,
);
