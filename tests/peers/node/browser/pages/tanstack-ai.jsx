// TanStack AI's client: `useChat` over server-sent events.

import { toolDefinition } from "@tanstack/ai";
import { fetchServerSentEvents, useChat } from "@tanstack/ai-react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

const { api, thread, keeps } = Object.fromEntries(new URLSearchParams(location.search));

/** A tool that the page executes: it colours the page. */
const paint = toolDefinition({
  name: "paint",
  description: "Paints the page",
  inputSchema: z.object({ color: z.string() }),
  outputSchema: z.object({ painted: z.string() }),
}).client(({ color }) => {
  document.body.style.background = color;
  return { painted: color };
});

const connection = fetchServerSentEvents(api);
const tools = [paint];

/** One part of a message. */
function Part({ part }) {
  if (part.type === "text") return <p>{part.content}</p>;
  if (part.type === "tool-result") return <span>{String(part.content)} </span>;
  if (part.type !== "tool-call") return null;
  return (
    <div>
      [{part.name} {Object.values(part.input ?? {}).join(" ")}]
    </div>
  );
}

/** A question to the user. */
const Question = ({ answer }) => (
  <p>
    <button type="button" onClick={() => answer(true)}>
      Allow
    </button>
    <button type="button" onClick={() => answer(false)}>
      Deny
    </button>
  </p>
);

function App() {
  const chat = useChat({ threadId: thread, connection, tools, persistence: keeps === "server" });
  // The interrupts of other servers than TanStack's are answered like this.
  const answer = (interruptId, approved) =>
    chat.resumeInterruptsUnsafe([{ interruptId, status: "resolved", payload: { approved } }]);
  const send = (event) => {
    if (event.key !== "Enter") return;
    chat.sendMessage(event.target.value);
    event.target.value = "";
  };
  return (
    <main data-status={chat.status === "ready" && !chat.isLoading ? "ready" : chat.status}>
      {chat.messages.map(({ id, role, parts }) => (
        <article key={id} data-role={role}>
          {parts.map((part, at) => (
            <Part key={at} part={part} />
          ))}
        </article>
      ))}
      {chat.interrupts.map((interrupt) => (
        <Question key={interrupt.id} answer={(approved) => answer(interrupt.id, approved)} />
      ))}
      {chat.error && <p role="alert">{chat.error.message}</p>}
      <input aria-label="Message" onKeyDown={send} />
      <button type="button" onClick={() => chat.reload()}>
        Again
      </button>
    </main>
  );
}

createRoot(document.getElementById("root")).render(<App />);
