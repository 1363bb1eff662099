// assistant-ui with its AG-UI runtime.

import { HttpAgent } from "@ag-ui/client";
import { ExportedMessageRepository } from "@assistant-ui/react";
import { fromAgUiMessages, useAgUiRuntime } from "@assistant-ui/react-ag-ui";
import { query, show } from "./thread.jsx";

const { api, server, thread } = query;
const agent = new HttpAgent({ url: api, threadId: thread });

/** The thread as the server has it. A reply that runs is followed from its start: a run without anything new. */
const history = {
  async load() {
    const session = await fetch(`${server}/v1/sessions/${thread}`);
    if (!session.ok) return { messages: [] };
    const { status } = await session.json();
    const { messages } = await (await fetch(`${server}/v1/sessions/${thread}/messages?wire=ag-ui`)).json();
    const count = messages.findLastIndex(({ role }) => role === "user") + 1;
    const known = status === "running" ? messages.slice(0, count) : messages;
    return {
      ...ExportedMessageRepository.fromArray(fromAgUiMessages(known)),
      unstable_resume: status === "running",
    };
  },
  // The server has stored it.
  async append() {},
};

const adapters = server ? { history } : {};
show(() => useAgUiRuntime({ agent, adapters, onError: (error) => console.error(error) }));
