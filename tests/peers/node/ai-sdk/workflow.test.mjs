// The transport of @ai-sdk/workflow, as docs/ai-sdk.md shows it: it goes on where a response was cut.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { WorkflowChatTransport } from "@ai-sdk/workflow/client";
import { Chat } from "./chat.mjs";
import { fresh, over, quiet, same } from "./harness.mjs";
import { recordingFetch } from "./recording-fetch.mjs";

const page = readFileSync(new URL("../../../../docs/ai-sdk.md", import.meta.url), "utf8");
const [, example] = page.match(/import \{ WorkflowChatTransport \} from "@ai-sdk\/workflow\/client";\n\n([\s\S]*?)```/);
const make = new Function("WorkflowChatTransport", "server", `${example}; return transport;`);

over("a chat of the workflow transport", { rate: 200, store: "sqlite:turnwire.db" }, (running) => {
  test("a response that is cut twice goes on, and nothing is doubled", async () => {
    const seen = recordingFetch((nth) => (nth < 2 ? 9 + nth : undefined));
    const transport = make(WorkflowChatTransport, running.server.url);
    transport.fetch = seen.fetch;
    const chat = new Chat({ id: fresh("workflow"), transport });
    const { error } = console;
    // The transport reports each cut there.
    console.error = () => {};
    try {
      await chat.sendMessage({ text: "long 20" });
      await quiet(chat);
    } finally {
      console.error = error;
    }
    assert.equal(chat.status, "ready", String(chat.error));
    assert.equal(seen.cuts, 2);
    assert.deepEqual(
      seen.requests.map(({ method, url }) => `${method} ${new URL(url).search}`),
      ["POST ", "GET ?startIndex=9", "GET ?startIndex=19"],
    );
    assert.equal(chat.messages.length, 2);
    // Together the parts are one response.
    await same(running.server, { chat, seen: { ...seen, bodies: [seen.bodies.join("")], whole: [true] } });
  });
});
