// The thread of assistant-ui as an application builds it from its primitives, and a tool that the page executes.

import {
  ActionBarPrimitive,
  AssistantRuntimeProvider,
  ComposerPrimitive,
  MessagePrimitive,
  makeAssistantTool,
  ThreadPrimitive,
  useAuiState,
} from "@assistant-ui/react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

/** What the page was asked to do. */
export const query = Object.fromEntries(new URLSearchParams(location.search));

/** A tool that the page executes: it colours the page. */
const Paint = makeAssistantTool({
  toolName: "paint",
  description: "Paints the page",
  parameters: z.object({ color: z.string() }),
  execute: async ({ color }) => {
    document.body.style.background = color;
    return { painted: color };
  },
});

const Text = ({ text }) => <p>{text}</p>;

/** Any tool call: its name, what it asks for, and its result. */
function Call({ toolName, args, result, approval, respondToApproval }) {
  const is_asking = approval && approval.approved === undefined;
  return (
    <div>
      [{toolName} {Object.values(args ?? {}).join(" ")}]{" "}
      {result !== undefined && <span>{typeof result === "string" ? result : JSON.stringify(result)}</span>}
      {is_asking && (
        <>
          <button type="button" onClick={() => respondToApproval({ approved: true })}>
            Allow
          </button>
          <button type="button" onClick={() => respondToApproval({ approved: false })}>
            Deny
          </button>
        </>
      )}
    </div>
  );
}

const Parts = () => <MessagePrimitive.Parts components={{ Text, Reasoning: () => null, tools: { Fallback: Call } }} />;

const UserMessage = () => (
  <MessagePrimitive.Root asChild>
    <article data-role="user">
      <Parts />
      <ActionBarPrimitive.Root hideWhenRunning>
        <ActionBarPrimitive.Edit aria-label="Edit" />
      </ActionBarPrimitive.Root>
    </article>
  </MessagePrimitive.Root>
);

const EditComposer = () => (
  <article data-role="editing">
    <ComposerPrimitive.Root>
      <ComposerPrimitive.Input aria-label="Edited message" />
      <ComposerPrimitive.Send aria-label="Save" />
    </ComposerPrimitive.Root>
  </article>
);

const AssistantMessage = () => (
  <MessagePrimitive.Root asChild>
    <article data-role="assistant">
      <Parts />
      <ActionBarPrimitive.Root hideWhenRunning>
        <ActionBarPrimitive.Reload aria-label="Again" />
      </ActionBarPrimitive.Root>
    </article>
  </MessagePrimitive.Root>
);

/** The messages, and where the user writes. */
export function Thread() {
  const is_running = useAuiState((state) => state.thread.isRunning);
  return (
    <ThreadPrimitive.Root data-status={is_running ? "running" : "ready"}>
      <ThreadPrimitive.Messages components={{ UserMessage, EditComposer, AssistantMessage }} />
      <ComposerPrimitive.Root>
        <ComposerPrimitive.Input aria-label="Message" />
        <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        <ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel>
      </ComposerPrimitive.Root>
    </ThreadPrimitive.Root>
  );
}

/** Shows the thread of a runtime. */
export function show(useRuntime) {
  function App() {
    return (
      <AssistantRuntimeProvider runtime={useRuntime()}>
        <Paint />
        <Thread />
      </AssistantRuntimeProvider>
    );
  }
  createRoot(document.getElementById("root")).render(<App />);
}
