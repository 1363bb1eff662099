// The real client in front of a running server, and what the server has, to compare.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { HttpAgent } from "@ag-ui/client";

/** The client only warns about what it does not know: nothing here may make it warn. */
export const warnings = [];
console.warn = (...words) => warnings.push(words.join(" "));

/** It also says aloud which runs it lost; those are rejections, and looked at as such. */
console.error = () => {};

const YES = { status: "resolved", payload: { approved: true } };

/** A client of one thread. With no messages it is one that was just reloaded. */
export class Client {
  constructor(server, thread, { agent = "demo", messages = [] } = {}) {
    this.server = server;
    this.cutAfter = undefined;
    this.agent = new HttpAgent({
      url: `${server.url}/ag-ui/${agent}`,
      threadId: thread,
      initialMessages: messages,
      fetch: (url, init) => cutting(url, init, this.cutAfter),
    });
    this.thread = thread;
    this.runs = [];
  }

  get messages() {
    return this.agent.messages;
  }

  /** Says something; the run ends when the reply does, or waits. */
  say(content, options) {
    this.agent.addMessage({ id: randomUUID(), role: "user", content });
    return this.run(options);
  }

  /** Answers every interrupt: yes, or what `answers` has for it. */
  resume(answers = {}) {
    const resume = this.agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, ...(answers[id] ?? YES) }));
    return this.run({ resume });
  }

  /** Gives the result of a call that this client executes. */
  give(toolCallId, content) {
    this.agent.addMessage({ id: randomUUID(), role: "tool", toolCallId, content });
    return this.run();
  }

  /** A run, with everything checked that the client itself accepts in silence. */
  async run({ on = () => {}, ...options } = {}) {
    const runId = randomUUID();
    const events = [];
    const run = { runId, events };
    await this.agent.runAgent(
      { runId, ...options },
      {
        onEvent: ({ event }) => {
          events.push(event);
          on(event);
        },
        onRunFinishedEvent: (end) => {
          run.outcome = end.outcome;
          run.pending = end.pendingToolCallIds ?? [];
          run.result = end.result;
        },
        onRunErrorEvent: ({ event }) => {
          run.outcome = "error";
          run.error = event;
        },
      },
    );
    const types = events.map(({ type }) => type);
    assert.equal(types[0], "RUN_STARTED");
    assert.deepEqual([events[0].runId, events[0].threadId], [runId, this.thread], "it is the run that was asked for");
    const ends = events.filter(({ type }) => type === "RUN_FINISHED" || type === "RUN_ERROR");
    assert.equal(ends.length, 1, "one end");
    assert.equal(events.at(-1), ends[0], "and nothing behind it");
    if (ends[0].type === "RUN_FINISHED") assert.equal(ends[0].runId, runId);
    run.interrupts = this.agent.pendingInterrupts.map(({ id }) => id);
    run.types = types;
    this.runs.push(run);
    return run;
  }

  /** A run that is cut off after so many frames. Whether it was: it may have ended before. */
  async cut(after, { say } = {}) {
    this.cutAfter = after;
    if (say) this.agent.addMessage({ id: randomUUID(), role: "user", content: say });
    try {
      await this.agent.runAgent({ runId: randomUUID() });
      return false;
    } catch (error) {
      assert.equal(error.message, CUT, error.stack);
      return true;
    } finally {
      this.cutAfter = undefined;
    }
  }
}

const CUT = "the connection is cut";

/**
 * A connection that ends in the middle, behind so many frames. When one breaks, the client calls
 * `cancel` on what it was reading and looks away from the rejection: so it gets a reader that has none.
 */
async function cutting(url, init, after = Infinity) {
  const connection = new AbortController();
  const { signal } = connection;
  const response = await fetch(url, { ...init, signal: AbortSignal.any([signal, init.signal]) });
  const { ok, status, headers } = response;
  if (!ok) return response;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let left = after;
  const read = async () => {
    while (true) {
      const end = text.indexOf("\n\n");
      if (end >= 0) {
        if (left === 0) {
          connection.abort();
          throw new Error(CUT);
        }
        left -= 1;
        const value = new TextEncoder().encode(text.slice(0, end + 2));
        text = text.slice(end + 2);
        return { done: false, value };
      }
      const { done, value } = await reader.read();
      if (done) return { done };
      text += decoder.decode(value, { stream: true });
    }
  };
  const cancel = async () => connection.abort();
  return { ok, status, headers, body: { getReader: () => ({ read, cancel }) } };
}

/** What a client has, by what it is about: of each reply each block, in order. */
export function blocksOf(messages) {
  const replies = {};
  for (const message of messages) {
    if (message.role === "user") {
      replies[message.id] = [["user", message.content]];
      continue;
    }
    const calls = message.toolCalls ?? [];
    const marked = message.metadata?.turnwire ?? calls[0]?.metadata?.turnwire;
    const result =
      message.role === "tool" &&
      messages.find(({ toolCalls }) => toolCalls?.some(({ id }) => id === message.toolCallId));
    // A result that this client gave is a part of the reply whose call it answers.
    const reply = marked?.reply ?? result?.toolCalls[0].metadata.turnwire.reply;
    const blocks = (replies[reply] ??= []);
    if (message.role === "reasoning") blocks.push(["thinking", message.id, message.content]);
    else if (message.role === "tool") {
      blocks.push(["result", message.toolCallId, message.content, marked?.state ?? "success"]);
    } else if (message.role === "activity") {
      if (message.activityType !== "discarded") blocks.push([message.activityType, message.id, message.content.source]);
    } else {
      if (message.content !== undefined) blocks.push(["text", message.id, message.content]);
      for (const { id, function: made } of calls) blocks.push(["call", id, made.name, made.arguments]);
    }
  }
  return replies;
}

const plain = (output) => (typeof output === "string" ? output : output.map((part) => part.text ?? "").join(""));

/** The same of what the server has. */
export function blocksOfOurs(messages) {
  const replies = {};
  for (const { id, role, content } of messages) {
    if (role === "user") {
      replies[id] = [["user", content.map(({ text }) => text).join("")]];
      continue;
    }
    const blocks = content
      .filter(({ type }) => type !== "tool_result")
      .flatMap((block) => {
        switch (block.type) {
          case "text":
            return [["text", block.id, block.text]];
          case "thinking":
            return [["thinking", block.id, block.thinking]];
          case "data":
            return [["data", block.id, block.source]];
          case "tool_call": {
            const made = [["call", block.id, block.name, block.input]];
            // In their list a result stands behind its call, when it is whole.
            const result = content.find(({ type, id }) => type === "tool_result" && id === block.id);
            if (result && result.state !== "running")
              made.push(["result", result.id, plain(result.output), result.state]);
            return made;
          }
          default:
            return [[block.type, block.id]];
        }
      });
    if (blocks.length > 0) replies[id] = blocks;
  }
  return replies;
}

/** The client has what the server has: every message, every block, to the last letter. */
export async function same(client) {
  const ours = blocksOfOurs(await client.server.messages(client.thread, "&agents=all"));
  const theirs = blocksOf(client.messages);
  assert.deepEqual(theirs, ours);
  assert.deepEqual(warnings, []);
  const ids = client.messages.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, "no message is there twice");
  for (const { toolCalls } of client.messages) {
    for (const { function: made } of toolCalls ?? []) JSON.parse(made.arguments);
  }
  return ours;
}

/** A client that knows nothing gets what the other has. */
export async function reloaded(client, options) {
  const fresh = new Client(client.server, client.thread, options);
  const run = await fresh.run();
  // Of its own messages a client does not know what was noted about them here.
  const bare = ({ role, name, metadata, ...rest }) =>
    ["user", "tool"].includes(role) ? { role, ...rest } : { role, name, metadata, ...rest };
  assert.deepEqual(fresh.messages.map(bare), client.messages.map(bare));
  assert.deepEqual(fresh.agent.pendingInterrupts, client.agent.pendingInterrupts);
  assert.deepEqual(warnings, []);
  return { fresh, run };
}
