// A chat as an application has it, and what it is held to.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  readUIMessageStream,
  validateUIMessages,
} from "ai";
import { serve, TIMEOUT, until } from "../harness.mjs";
import { Chat } from "./chat.mjs";
import { ours, theirs } from "./content.mjs";
import { recordingFetch } from "./recording-fetch.mjs";
import { checkResponse } from "./response-checks.mjs";
import { TurnwireTransport } from "./transport.mjs";

let count = 0;

/** A name that nobody else has. */
export const fresh = (word) => `${word}-${(count += 1)}`;

// A chat as an application has it. `seen` is what went over its connection.
export function open(server, { id = fresh("chat"), agent = "demo", cutAfter, messages, ...more } = {}) {
  const seen = recordingFetch(cutAfter);
  const transport = new TurnwireTransport({ api: `${server.url}/ai-sdk/${agent}`, fetch: seen.fetch });
  const finished = [];
  const chat = new Chat({
    id,
    transport,
    sendAutomaticallyWhen: (options) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(options) ||
      lastAssistantMessageIsCompleteWithToolCalls(options),
    onFinish: (options) => void finished.push(options),
    ...more,
  });
  if (messages) chat.messages = messages;
  return { chat, seen, transport, finished };
}

export const load = async (server, id) => (await server.ask("GET", `/v1/sessions/${id}/messages?wire=ai-sdk`)).messages;

// What an application does when it starts: the messages as they are, then whatever runs.
export async function reload(server, id, more = {}) {
  const messages = await load(server, id);
  await validateUIMessages({ messages });
  const opened = open(server, { id, messages, ...more });
  await opened.chat.resumeStream();
  return opened;
}

export const quiet = (chat) => until(() => chat.status === "ready" || chat.status === "error", "the chat is at work");

// The chat and the server have the same conversation, block by block; the client finds it valid; and
// every response that was not cut keeps the rules that the client does not check.
export async function same(server, { chat, seen }) {
  const messages = await server.messages(chat.id);
  assert.deepEqual(
    chat.messages.map((message) => message.role),
    messages.map((message) => message.role),
  );
  messages.forEach((message, at) => {
    const shown = chat.messages[at];
    assert.deepEqual(theirs(shown, message), ours(message));
    if (message.role !== "assistant") return;
    assert.equal(shown.id, message.id);
    assert.deepEqual(shown.metadata?.turnwire.usage, message.usage ?? undefined);
    assert.equal(shown.metadata?.turnwire.finished_reason, message.finished_reason ?? undefined);
    assert.deepEqual(shown.metadata?.turnwire.structured_output, message.structured_output ?? undefined);
    for (const part of shown.parts) {
      if (part.type === "text" || part.type === "reasoning") assert.equal(part.state, "done", "every text is closed");
    }
  });
  await validateUIMessages({ messages: chat.messages });
  const known = new Set();
  seen.bodies.filter((_, nth) => seen.whole[nth]).forEach((body) => checkResponse(body, known));
  return messages;
}

export const tools = (chat) => chat.lastMessage.parts.filter((part) => part.type === "dynamic-tool");
export const text = (message) =>
  message.parts
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("");

// Answers what is asked, and waits for the end of what that brings.
export async function answer(opened, approved) {
  const { chat, seen } = opened;
  const before = seen.requests.length;
  for (const part of tools(chat).filter((part) => part.state === "approval-requested")) {
    await chat.addToolApprovalResponse({ id: part.approval.id, approved });
  }
  await until(() => seen.requests.length > before, "the answer is sent");
  await quiet(chat);
}

export const rejected = async (promise, status, kind) => {
  const error = await promise.then(
    () => assert.fail("it was taken"),
    (error) => error,
  );
  assert.equal(error.statusCode, status, String(error));
  const { type, hint } = JSON.parse(error.responseBody).error;
  assert.equal(type, kind);
  assert.ok(hint, "there is a hint");
};

export const post = (transport, chatId, messages, more = {}) =>
  transport.sendMessages({ chatId, messages, trigger: "submit-message", ...more });

// The chunks of a stream, read as strictly as the package can.
export async function read(stream) {
  let last;
  for await (const next of readUIMessageStream({ stream, terminateOnError: true })) last = next;
  await validateUIMessages({ messages: [last] });
  return last;
}

export const said = (text, id = fresh("u")) => ({ id, role: "user", parts: [{ type: "text", text }] });

/** Tests that share a server: `tests(running)`, where `running.server` is it. */
export function over(name, settings, tests) {
  describe(name, { timeout: 2 * TIMEOUT }, () => {
    const hooks = [];
    const running = {};
    test.before(async () => {
      running.server = await serve({ after: (hook) => hooks.push(hook) }, settings);
    });
    test.after(async () => {
      for (const hook of hooks) await hook();
    });
    tests(running);
  });
}
