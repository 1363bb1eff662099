import { connect, useSession } from "turnwire/react";
import { Message, Question } from "./message";
import { Page } from "./page";

/** The page's own origin: `vite.config.js` forwards the requests. With credentials: `connect({ token })`. */
export const client = connect();

export function Chat({ id }: { id: string }) {
  const { messages, pending, status, connection, error, send, approve, deny, stop } = useSession(client, id);
  return (
    <Page
      isReady={status === "idle" && connection.state === "live"}
      notice={error?.message ?? (connection.state !== "live" && "Connecting…")}
      onSend={send}
      onStop={status !== "idle" && stop}
    >
      {messages.map((message) => (
        <Message key={message.id} message={message} />
      ))}
      {pending.map((call) => (
        <Question key={call.tool_call.id} call={call} onAllow={() => approve(call)} onDeny={() => deny(call)} />
      ))}
    </Page>
  );
}
