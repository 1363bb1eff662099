import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses as isAnswered,
  isToolUIPart,
  type UIMessage,
} from "ai";
import { useEffect } from "react";
import { isLost, load } from "./load";
import { Message } from "./message";
import { Page } from "./page";

/** Your agent's name instead of `demo`. `vite.config.js` forwards the requests to Turnwire. */
const api = "/ai-sdk/demo";
const transport = new DefaultChatTransport({ api });

export function Chat({ id, stored }: { id: string; stored: UIMessage[] }) {
  const chat = useChat({ id, transport, messages: stored, resume: true, sendAutomaticallyWhen: isAnswered });
  const isAsked = chat.messages.at(-1)?.parts.some((part) => isToolUIPart(part) && part.state === "approval-requested");
  const isIdle = chat.status !== "submitted" && chat.status !== "streaming" && !isAsked;

  // A lost connection does not stop the reply. A message that Turnwire did not get is sent again.
  const reconnect = async () => {
    const known = await load(id);
    const last = chat.messages.at(-1);
    const isUnsent = last?.role === "user" && known.every((message) => message.id !== last.id);
    chat.setMessages(isUnsent ? [...known, last] : known);
    await (isUnsent ? chat.sendMessage() : chat.resumeStream());
  };
  useEffect(() => {
    if (isLost(chat.error)) void reconnect();
  }, [chat.error]);

  return (
    <Page
      isReady={isIdle && !isLost(chat.error)}
      notice={isLost(chat.error) ? "Connecting…" : chat.error?.message}
      onSend={(text) => chat.sendMessage({ text })}
      onStop={!isIdle && (() => fetch(`${api}/${id}/stop`, { method: "POST" }))}
    >
      {chat.messages.map((message) => (
        <Message key={message.id} message={message} answer={chat.addToolApprovalResponse} />
      ))}
    </Page>
  );
}
