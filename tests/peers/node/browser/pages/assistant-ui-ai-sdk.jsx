// assistant-ui with its AI SDK runtime.

import { useChat } from "@ai-sdk/react";
import {
  AssistantChatTransport,
  createResumableSessionStorage,
  useAISDKRuntime,
  useChatRuntime,
} from "@assistant-ui/react-ai-sdk";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";
import { query, show } from "./thread.jsx";

const { api, server, chat, resumable } = query;
const sendAutomaticallyWhen = (options) =>
  lastAssistantMessageIsCompleteWithApprovalResponses(options) || lastAssistantMessageIsCompleteWithToolCalls(options);

if (chat) {
  // A chat with a name: its messages are loaded, and a running reply is resumed.
  const response = await fetch(`${server}/v1/sessions/${chat}/messages?wire=ai-sdk`);
  const messages = response.ok ? (await response.json()).messages : [];
  const transport = new DefaultChatTransport({ api });
  show(() => useAISDKRuntime(useChat({ id: chat, transport, messages, resume: true, sendAutomaticallyWhen })));
} else {
  // In the middle of a reply, a reload continues it: the server sends the id of the stream.
  const storage = resumable && createResumableSessionStorage();
  const transport = new AssistantChatTransport({
    api,
    ...(storage && { resumable: { storage, resumeApi: (id) => `${api}/${encodeURIComponent(id)}/stream` } }),
  });
  show(() => useChatRuntime({ transport, sendAutomaticallyWhen }));
}
