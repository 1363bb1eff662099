// The handler of the protocol's document, over a real WebSocket, against a running server.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { proxy, serve, TIMEOUT, until } from "../harness.mjs";
import { bare, Client, same, shown, View } from "./client.mjs";
import { connect } from "./connect.mjs";
import { streamProcessor } from "./handler.mjs";

const timeout = TIMEOUT;
const types = (blocks) => blocks.map(({ type }) => type);
const decide = (request, type, more = {}) => ({
  type: "approval",
  session_id: request.approval_key.replace(/_\d+$/, ""),
  approval_key: request.approval_key,
  decisions: request.actionRequests.map(({ tool_use_id }) => ({ tool_use_id, type, ...more })),
});

test("plain and thinking; a session of its own; a second turn in it", { timeout }, async (t) => {
  const server = await serve(t);
  const client = await Client.open(t, server);
  assert.deepEqual(client.answers, [{ type: "connected" }]);
  assert.deepEqual(await client.ask({ type: "auth", token: "anybody" }), { type: "auth_ok", id: 1 });
  const { session, turn, view } = await client.turn("hello");
  assert.deepEqual(types(view.blocks), ["thinking", "text"]);
  assert.equal(view.handler.isStreaming, false);
  await same(server, session, turn, view.blocks);
  const second = await client.turn("json please", { session_id: session });
  const message = await same(server, session, second.turn, view.blocks);
  const delta = view.frames.findLast(({ type }) => type === "message_delta");
  assert.equal(delta.delta.stop_reason, "end_turn");
  assert.deepEqual(delta.delta.structured_output, message.structured_output);
  assert.equal(view.frames.findLast((frame) => "is_final" in frame).is_final, true);
  assert.deepEqual([...view.turns.keys()], [turn, second.turn]);
  const messages = view.frames.filter(({ type }) => type === "message").map(({ message }) => message.content[0].text);
  assert.deepEqual(messages, ["hello", "json please"], "what the user says comes too");
});

test("a tool, and tools at once", { timeout }, async (t) => {
  const server = await serve(t);
  const client = await Client.open(t, server);
  const { session, turn, view } = await client.turn("weather");
  assert.deepEqual(types(view.blocks), ["thinking", "tool_use", "text"]);
  assert.match(view.blocks[1].toolResult, /18 °C/);
  assert.notEqual(view.blocks[1].tool_content_message, view.blocks[1].name, "it has a friendly name");
  await same(server, session, turn, view.blocks);
  const { session_id: other, message_id: parallel } = await client.done({ type: "chat", message: "parallel" });
  const both = client.view(other);
  await client.done(decide(await both.has("approval_request"), "approve"));
  await both.ended(parallel);
  assert.equal(both.blocks.filter(({ type }) => type === "tool_use").length, 2);
  await same(server, other, parallel, both.blocks);
});

test("approve, edit and reject", { timeout }, async (t) => {
  const server = await serve(t);
  const client = await Client.open(t, server);
  const cases = [
    ["approve", {}, /Bought 100 ACME/],
    ["edit", { args: { symbol: "ACME", quantity: 3 } }, /Bought 3 ACME/],
    ["reject", { message: "too dear" }, /not allow/],
  ];
  for (const [type, more, said] of cases) {
    const { session_id: session, message_id: turn } = await client.done({ type: "chat", message: "approve" });
    const view = client.view(session);
    const request = await view.has("approval_request");
    assert.equal(request.timeoutSeconds, 300);
    assert.deepEqual(request.actionRequests[0].args, view.blocks.find((block) => block.type === "tool_use").input);
    assert.equal((await client.subscribe(session)).status, "running", "it waits");
    assert.deepEqual(await client.done(decide(request, type, more)), {
      type: "accepted",
      session_id: session,
      id: client.next - 1,
    });
    await view.ended(turn);
    const result = view.blocks.find((block) => block.type === "approval_result");
    assert.equal(result.approval_key, request.approval_key);
    assert.deepEqual(result.decisions, [{ tool_use_id: request.actionRequests[0].tool_use_id, type, ...more }]);
    assert.match(view.blocks.find((block) => block.type === "tool_use").toolResult, said);
    assert.equal(view.frames.filter((frame) => frame.type === "message_start").length, 1, "one turn");
    await same(server, session, turn, view.blocks);
    assert.equal((await client.subscribe(session)).status, "completed");
  }
});

test("an approval is answered once, from whichever wire; what does not fit is refused", { timeout }, async (t) => {
  const server = await serve(t);
  const client = await Client.open(t, server);
  const { session_id: session, message_id: turn } = await client.done({ type: "chat", message: "approve" });
  const view = client.view(session);
  const request = await view.has("approval_request");
  const approve = decide(request, "approve");
  const refused = async (command, code) => {
    const { type, code: got, command: word } = await client.ask(command);
    assert.deepEqual([type, got, word], ["error", code, command.type]);
  };
  await refused({ ...approve, approval_key: `${session}_1` }, "unknown_approval");
  await refused({ ...approve, approval_key: `${session}_99999` }, "unknown_approval");
  await refused({ ...approve, approval_key: "elsewhere_1" }, "bad_request");
  await refused({ ...approve, decisions: [{ tool_use_id: "nobody", type: "approve" }] }, "unknown_call");
  await refused({ ...approve, decisions: [...approve.decisions, ...approve.decisions] }, "unknown_call");
  await refused({ ...approve, decisions: [{ type: "perhaps" }] }, "bad_request");
  const [{ reply_id, confirm }] = (await server.session(session)).pending;
  const [{ id, name }] = confirm;
  const answer = {
    type: "USER_CONFIRM_RESULT",
    id: "a1",
    reply_id,
    confirm_results: [{ confirmed: true, tool_call: { id, name } }],
  };
  await server.ask("POST", `/v1/sessions/${session}/events`, [answer]);
  await view.ended(turn);
  assert.equal(view.blocks.find((block) => block.type === "approval_result").decisions[0].type, "approve");
  await refused(approve, "already_answered");
  await refused({ ...approve, decisions: [{ type: "approve" }] }, "already_answered");
  await same(server, session, turn, view.blocks);
  // And the other way round.
  const again = await client.done({ type: "chat", session_id: session, message: "approve" });
  const second = await until(
    () => view.blocks.find((block) => block.type === "approval_request" && block.approval_key !== request.approval_key),
    "it does not ask",
  );
  await refused(approve, "already_answered");
  await client.done(decide(second, "reject"));
  await view.ended(again.message_id);
  await assert.rejects(
    server.ask("POST", `/v1/sessions/${session}/events`, [{ ...answer, id: "a2", reply_id: again.message_id }]),
    /409|422/,
  );
  await same(server, session, again.message_id, view.blocks);
});

test("two calls in one question, and two questions at once", { timeout }, async (t) => {
  const server = await serve(t);
  await server.ask("POST", "/v1/sessions", { id: "p", agent: "external" });
  const publish = (events) =>
    server.ask(
      "POST",
      "/v1/sessions/p/events",
      events.map((event, at) => ({ reply_id: "r", id: `${event.type}${at}${event.tool_call_id ?? ""}`, ...event })),
      { "turnwire-producer": "p.1" },
    );
  const call = (id) => [
    { type: "TOOL_CALL_START", tool_call_id: id, tool_call_name: "sell" },
    { type: "TOOL_CALL_DELTA", tool_call_id: id, delta: `{"n":"${id}"}` },
    { type: "TOOL_CALL_END", tool_call_id: id },
  ];
  const ask = (...ids) => ({
    type: "REQUIRE_USER_CONFIRM",
    tool_calls: ids.map((id) => ({ type: "tool_call", id, name: "sell", input: `{"n":"${id}"}`, state: "asking" })),
  });
  const result = (id) => [
    { type: "TOOL_RESULT_START", tool_call_id: id, tool_call_name: "sell" },
    { type: "TOOL_RESULT_TEXT_DELTA", tool_call_id: id, delta: "x".repeat(600) },
    { type: "TOOL_RESULT_END", tool_call_id: id, state: "success" },
  ];
  const client = await Client.open(t, server);
  await client.subscribe("p");
  await publish([
    { type: "REPLY_START", session_id: "p", name: "seller" },
    ...call("a"),
    ...call("b"),
    ...call("c"),
    ask("a", "b"),
    ask("c"),
  ]);
  const view = client.view("p");
  const [first, second] = await until(() => {
    const found = view.blocks.filter(({ type }) => type === "approval_request");
    return found.length === 2 && found;
  }, "both are asked");
  assert.notEqual(first.approval_key, second.approval_key);
  const history = await server.ask("GET", "/v2/sessions/p/history");
  assert.equal(history.pending_approval.approval_key, first.approval_key);
  await client.done(decide(second, "approve"));
  // Without names: in the order of the question.
  await client.done({
    type: "approval",
    approval_key: first.approval_key,
    decisions: [
      { type: "edit", args: { n: 1 } },
      { type: "reject", message: "no" },
    ],
  });
  await until(() => view.blocks.filter(({ type }) => type === "approval_result").length === 2, "both are answered");
  await publish([
    ...result("a"),
    ...result("c"),
    { type: "TOOL_RESULT_START", tool_call_id: "b", tool_call_name: "sell" },
    { type: "TOOL_RESULT_END", tool_call_id: "b", state: "denied" },
    { type: "REPLY_END", session_id: "p" },
  ]);
  await view.ended("r");
  const answers = view.blocks.filter(({ type }) => type === "approval_result").map(({ decisions }) => decisions);
  assert.deepEqual(answers, [
    [{ tool_use_id: "c", type: "approve" }],
    [
      { tool_use_id: "a", type: "edit", args: { n: 1 } },
      { tool_use_id: "b", type: "reject", message: "no" },
    ],
  ]);
  await same(server, "p", "r", view.blocks);
});

test("what a model call takes back is gone, also when it had ended", { timeout }, async (t) => {
  const server = await serve(t);
  await server.ask("POST", "/v1/sessions", { id: "p", agent: "external" });
  const block = (word, id, text) => [
    { type: `${word}_BLOCK_START`, block_id: id },
    { type: `${word}_BLOCK_DELTA`, block_id: id, delta: text },
    { type: `${word}_BLOCK_END`, block_id: id },
  ];
  const call = { type: "MODEL_CALL_START", model_name: "m" };
  const events = [
    { type: "REPLY_START", session_id: "p", name: "again" },
    ...[call, ...block("THINKING", "b1", "one"), ...block("TEXT", "b2", "kept"), { type: "MODEL_CALL_END" }],
    ...[call, ...block("THINKING", "b3", "two"), ...block("TEXT", "b4", "broken").slice(0, 2)],
    ...[
      { type: "MODEL_CALL_END", discard: ["b3", "b4"] },
      call,
      ...block("THINKING", "b5", "three"),
      ...block("TEXT", "b6", "whole"),
    ],
    ...[{ type: "MODEL_CALL_END" }, { type: "REPLY_END", session_id: "p" }],
  ].map((event, at) => ({ reply_id: "r", id: `e${at}`, ...event }));
  const client = await Client.open(t, server);
  await client.subscribe("p");
  const publish = (some) => server.ask("POST", "/v1/sessions/p/events", some, { "turnwire-producer": "p.1" });
  await publish(events.slice(0, 13));
  const view = client.view("p");
  await until(() => view.blocks.some(({ thinking }) => thinking === "two"), "it is not seen");
  await publish(events.slice(13));
  await view.ended("r");
  assert.deepEqual(
    view.blocks.map(({ text, thinking }) => text ?? thinking),
    ["one", "kept", "three", "whole"],
  );
  await same(server, "p", "r", view.blocks);
  await everyCut(t, server, view);
});

test("a tool of the client's is shown, and answered elsewhere", { timeout }, async (t) => {
  const server = await serve(t);
  const client = await Client.open(t, server);
  const { session_id: session, message_id: turn } = await client.done({ type: "chat", message: "browser" });
  const view = client.view(session);
  const request = await view.has("external_execution_request");
  assert.equal((await server.ask("GET", `/v2/sessions/${session}/history`)).status, "running");
  const [{ tool_use_id: id, name }] = request.tool_calls;
  const answer = {
    type: "EXTERNAL_EXECUTION_RESULT",
    id: "x",
    reply_id: turn,
    execution_results: [{ type: "tool_result", id, name, output: "A page.", state: "success" }],
  };
  await server.ask("POST", `/v1/sessions/${session}/events`, [answer]);
  await view.ended(turn);
  assert.equal(view.blocks.find((block) => block.type === "tool_use").toolResult, "A page.");
  await same(server, session, turn, view.blocks);
});

test("an error, a stop, an image, a sub-agent", { timeout }, async (t) => {
  const server = await serve(t, { rate: 200 });
  const client = await Client.open(t, server);
  const failed = await client.turn("fail");
  const error = failed.view.blocks.at(-1);
  const { error: told } = await same(server, failed.session, failed.turn, failed.view.blocks);
  assert.deepEqual(
    [error.type, error.extras.error_type, error.extras.details.error],
    ["terminal_error", "terminal", told.message],
  );
  assert.equal(typeof error.extras.can_retry, "boolean");
  const { session_id: session, message_id: turn } = await client.done({ type: "chat", message: "long 2000" });
  const view = client.view(session);
  await until(() => view.frames.length > 20, "it does not begin");
  await client.done({ type: "stop", session_id: session });
  await view.ended(turn);
  assert.deepEqual(types(view.blocks).slice(-2), ["text", "terminal_user_stopped"]);
  const delta = view.frames.findLast(({ type }) => type === "message_delta");
  assert.equal(delta.delta.stop_reason, "user_stopped");
  assert.equal(view.frames.findLast((frame) => "is_final" in frame).is_final, false);
  await same(server, session, turn, view.blocks);
  await client.done({ type: "stop", session_id: session });
  const history = async (id) => (await server.ask("GET", `/v2/sessions/${id}/history`)).status;
  assert.deepEqual([await history(session), await history(failed.session)], ["cancelled", "error"]);
  const image = await client.turn("image");
  assert.ok(
    image.view.blocks.some(({ type, url }) => type === "attachment" && url.startsWith("data:image/png;base64,")),
  );
  await same(server, image.session, image.turn, image.view.blocks);
  const team = await client.turn("team");
  await same(server, team.session, team.turn, team.view.blocks);
  const subs = team.view.blocks.filter(({ subagent }) => subagent);
  const parents = new Set(team.view.blocks.filter((block) => block.type === "tool_use").map(({ id }) => id));
  assert.ok(subs.length > 0 && subs.every((block) => parents.has(block.parent_tool_use_id)));
  const all = await server.messages(team.session, "&agents=all");
  const theirs = all
    .filter(({ id, role }) => role === "assistant" && id !== team.turn)
    .flatMap(({ content }) => content);
  const text = (blocks) => blocks.filter(({ type }) => type === "text").map((block) => block.text);
  assert.deepEqual(text(subs), text(theirs));
});

test("display_mode: chat hides thinking, also from who comes back and in the history", { timeout }, async (t) => {
  const server = await serve(t);
  const client = await Client.open(t, server);
  const chat = await client.turn("weather", { display_mode: "chat" });
  assert.deepEqual(types(chat.view.blocks), ["tool_use", "text"]);
  assert.equal(chat.view.frames.find(({ type }) => type === "message_start").display_mode, "chat");
  await same(server, chat.session, chat.turn, chat.view.blocks, "chat");
  const { metadata } = (await server.messages(chat.session))[0];
  assert.equal(metadata.display_mode, "chat");
  const history = await server.ask("GET", `/v2/sessions/${chat.session}/history`);
  assert.equal(history.display_mode, "chat");
  assert.ok(!JSON.stringify(history.messages).includes('"thinking"'));
  await everyCut(t, server, chat.view);
  // Done again, it is shown as it was.
  const { reply_id: again } = await server.ask("POST", `/v1/sessions/${chat.session}/messages/${chat.turn}/retry`);
  await chat.view.ended(again);
  assert.deepEqual(types(chat.view.blocks), ["tool_use", "text"]);
  await everyCut(t, server, chat.view);
  const agent = await client.turn("weather", { session_id: chat.session, display_mode: "agent" });
  assert.deepEqual(types(agent.view.blocks), ["thinking", "tool_use", "text"]);
});

test("content_urls: the files are the first block, and part of the message", { timeout }, async (t) => {
  // Where there is no internet, a link of elsewhere stays as it is.
  const server = await serve(t, { settings: '[links]\nleave = ["example.com"]\n' });
  const client = await Client.open(t, server);
  const stored = await fetch(`${server.url}/v1/blobs`, {
    method: "POST",
    body: "hello",
    headers: { "content-type": "text/plain" },
  });
  const { url, id } = await stored.json();
  const there = await client.turn("hello", {
    content_urls: [url, { url: "https://example.com/a.pdf", name: "a.pdf", mime_type: "application/pdf" }],
  });
  const [files] = there.view.blocks;
  assert.deepEqual([files.type, files.index, files.status], ["file_processing", 0, "processing"]);
  assert.deepEqual(files.files, [{ url }, { url: "https://example.com/a.pdf" }]);
  assert.deepEqual([files.processingStatus, files.processingMessage], ["completed", "Processed 2 files"]);
  await same(server, there.session, there.turn, there.view.blocks);
  const [said] = await server.messages(there.session);
  const sources = said.content
    .filter(({ type }) => type === "data")
    .map(({ name = null, source }) => [name, source.url, source.media_type]);
  assert.deepEqual(sources, [
    [null, url, "text/plain"],
    ["a.pdf", "https://example.com/a.pdf", "application/pdf"],
  ]);
  const history = await server.ask("GET", `/v2/sessions/${there.session}/history`);
  assert.deepEqual(
    history.messages[0].content.filter(({ type }) => type === "attachment").map(({ mime_type }) => mime_type),
    ["text/plain", "application/pdf"],
  );
  await everyCut(t, server, there.view);
  // Who loads the history while the turn waits gets the files with the turn.
  const { session_id: waiting } = await client.done({
    type: "chat",
    message: "approve",
    content_urls: [url],
    display_mode: "chat",
  });
  await client.view(waiting).has("approval_request");
  const late = await Client.open(t, server);
  await late.subscribe(waiting, (await server.ask("GET", `/v2/sessions/${waiting}/history`)).last_event_id);
  await late.view(waiting).has("approval_request");
  assert.deepEqual(types(late.view(waiting).blocks), ["file_processing", "tool_use", "approval_request"]);
  assert.deepEqual(bare(late.view(waiting).blocks), bare(client.view(waiting).blocks));
  const gone = `/v1/blobs/${id.replace(/^./, (digit) => (digit === "0" ? "1" : "0"))}`;
  const missing = await client.ask({ type: "chat", session_id: "never", message: "hello", content_urls: [gone] });
  assert.deepEqual([missing.type, missing.code], ["error", "link_failed"]);
  assert.match(missing.message, /names a blob that does not exist; nothing was stored/);
  const inline = await client.turn("", { content_urls: ["data:text/plain;base64,aGk="] });
  assert.deepEqual(inline.view.blocks[0].files, [{ url: "data:text/plain;base64" }]);
  const [{ content }] = await server.messages(inline.session);
  assert.equal(content[0].source.data, "aGk=");
  const bad = await client.ask({
    type: "chat",
    session_id: "never",
    message: "x",
    content_urls: ["data:text/plain;base64,%%%"],
  });
  assert.deepEqual([bad.type, bad.command], ["error", "chat"]);
  assert.equal((await client.ask({ type: "subscribe", session_id: "never" })).code, "not_found", "nothing was made");
});

/** Cut behind each frame, and back on another socket: the end is the same. */
async function everyCut(t, server, whole, step = 1) {
  const frames = whole.frames.filter(({ type }) => type !== "event");
  const last = frames.at(-1).event_id;
  const client = await Client.open(t, server);
  for (let at = 1; at < frames.length; at += step) {
    const view = View.after(whole.id, frames.slice(0, at));
    client.views.set(whole.id, view);
    await client.subscribe(whole.id, view.last);
    await until(() => view.last === last, `nothing more comes behind frame ${at}`);
    const ends = ({ turns }) => [...turns].map(([turn, blocks]) => [turn, bare(blocks)]);
    assert.deepEqual(ends(view), ends(whole), `cut behind frame ${at}`);
  }
  client.cut();
}

test("cut anywhere and back: at every tenth frame of a long reply, at every frame of the others", {
  timeout,
}, async (t) => {
  const server = await serve(t, { rate: 2000 });
  const client = await Client.open(t, server);
  const long = await client.turn("long 300");
  assert.ok(long.view.frames.length > 100, "it came in pieces");
  await everyCut(t, server, long.view, 10);
  for (const word of ["weather", "image", "team", "fail", "parallel", "approve"]) {
    const { session_id: session, message_id: turn } = await client.done({ type: "chat", message: word });
    const view = client.view(session);
    if (["parallel", "approve"].includes(word))
      await client.done(decide(await view.has("approval_request"), "approve"));
    await view.ended(turn);
    await everyCut(t, server, view);
  }
});

test("cut in the middle of what goes on, again and again", { timeout }, async (t) => {
  const server = await serve(t, { rate: 600 });
  let left = 0;
  const cutting = await proxy(t, server, () => (left-- > 0 ? 2500 : undefined));
  const client = await Client.open(t, server);
  const { session_id: session, message_id: turn } = await client.done({ type: "chat", message: "long 1200" });
  client.server = { url: cutting.url };
  left = 6;
  const view = client.view(session);
  await client.back();
  let back = 1;
  while (!view.turns.has(turn)) {
    const code = await Promise.race([client.closed, view.ended(turn).then(() => undefined)]);
    if (code === undefined) break;
    back += 1;
    await client.back();
  }
  assert.ok(back > 3, `${back} times are too few to show anything`);
  await same(server, session, turn, view.blocks);
});

test("cut inside an approval, and the server killed there: the question stays", { timeout }, async (t) => {
  const server = await serve(t, { store: "sqlite:turnwire.db" });
  const client = await Client.open(t, server);
  const { session_id: session, message_id: turn } = await client.done({ type: "chat", message: "approve" });
  const view = client.view(session);
  const request = await view.has("approval_request");
  await client.back();
  await server.crash();
  await client.back();
  assert.equal(view.frames.filter(({ type }) => type === "message_start").length, 1);
  // Somebody else comes in now, and finds the same question.
  const other = await Client.open(t, server);
  const history = await server.ask("GET", `/v2/sessions/${session}/history`);
  assert.deepEqual(
    [history.status, history.agent_status, history.pending_approval.approval_key],
    ["waiting_approval", "waiting", request.approval_key],
  );
  assert.deepEqual(history.pending_approval.action_requests, request.actionRequests);
  assert.equal(history.pending_approval.timeout_seconds, request.timeoutSeconds);
  await other.subscribe(session, history.last_event_id);
  assert.equal((await other.view(session).has("approval_request")).approval_key, request.approval_key);
  await client.done(decide(request, "edit", { args: { symbol: "ACME", quantity: 7 } }));
  await view.ended(turn);
  await other.view(session).ended(turn);
  await same(server, session, turn, view.blocks);
  assert.deepEqual(bare(other.view(session).blocks), bare(view.blocks));
});

test("the server is killed in the middle of a reply", { timeout }, async (t) => {
  const server = await serve(t, { store: "sqlite:turnwire.db", rate: 100 });
  const client = await Client.open(t, server);
  const { session_id: session, message_id: turn } = await client.done({ type: "chat", message: "long 250" });
  const view = client.view(session);
  for (const some of [20, 60]) {
    await until(() => view.frames.length > some, "it does not go on");
    assert.ok(!view.turns.has(turn), "it has ended already");
    await server.crash();
    await client.back();
  }
  await view.ended(turn);
  await same(server, session, turn, view.blocks);
});

test("the history, then the stream: in the middle of a turn, too", { timeout }, async (t) => {
  const server = await serve(t, { rate: 200 });
  const client = await Client.open(t, server);
  const first = await client.turn("weather", { session_id: "h" });
  await server.ask("PATCH", "/v1/sessions/h", { metadata: { workspace: { folder: "a" } } });
  const { message_id: turn } = await client.done({ type: "chat", session_id: "h", message: "long 400" });
  await until(() => client.view("h").frames.at(-1).message_id === turn, "it does not begin");
  const history = await server.ask("GET", "/v2/sessions/h/history");
  const { messages, last_event_id: last, ...rest } = history;
  assert.deepEqual(rest, {
    session_id: "h",
    message_count: messages.length,
    status: "running",
    pending_approval: null,
    display_mode: "agent",
    workspace: { folder: "a" },
    agent_status: "running",
  });
  assert.deepEqual(
    messages.map(({ role }) => role),
    ["user", "assistant", "tool", "assistant", "user"],
  );
  assert.ok(
    messages.every(({ id }) => id !== turn),
    "the open turn comes with the stream",
  );
  assert.equal(
    messages[1].tool_calls[0].tool_content_message,
    first.view.turns.get(first.turn)[1].tool_content_message,
  );
  const late = await Client.open(t, server);
  assert.equal((await late.subscribe("h", last)).status, "running");
  const view = late.view("h");
  await view.ended(turn);
  assert.deepEqual([...view.turns.keys()], [turn], "no gap, and nothing twice");
  assert.equal(view.frames[0].type, "message_start");
  await same(server, "h", turn, view.blocks);
  const end = await server.ask("GET", "/v2/sessions/h/history");
  assert.deepEqual([end.status, end.agent_status, end.messages.at(-1).id], ["completed", "idle", turn]);
  assert.equal(end.last_event_id, view.last);
  await late.subscribe("h", end.last_event_id);
  const next = await late.turn("hello", { session_id: "h" });
  assert.deepEqual([...view.turns.keys()], [turn, next.turn]);
});

test("subscribe: from the start, from a token that leads nowhere, to what is gone", { timeout }, async (t) => {
  const server = await serve(t);
  const client = await Client.open(t, server);
  const { session, turn, view } = await client.turn("weather", { session_id: "s" });
  const other = await Client.open(t, server);
  assert.equal((await other.subscribe(session, undefined)).status, "completed");
  assert.deepEqual(bare(await other.view(session).ended(turn)), bare(view.blocks));
  for (const token of ["x.1", "nonsense", `${view.last.split(".")[0]}.9999`]) {
    const before = other.view(session).resets;
    await other.subscribe(session, token);
    await until(
      () => other.view(session).resets === before + 1 && other.view(session).turns.has(turn),
      "it starts over",
    );
    const at = other.view(session).frames.findLastIndex(({ type }) => type === "event");
    assert.equal(other.view(session).frames[at].event.type, "RESET");
    assert.deepEqual(shown(other.view(session).blocks), shown(view.blocks));
  }
  await server.ask("DELETE", `/v1/sessions/${session}`);
  const gone = await until(() => other.answers.find(({ type }) => type === "error"), "it is not told");
  assert.deepEqual([gone.code, gone.command, gone.session_id], ["not_found", "subscribe", session]);
});

test("several sessions on one socket, and one session on several", { timeout }, async (t) => {
  const server = await serve(t, { rate: 500 });
  const [one, two] = [await Client.open(t, server), await Client.open(t, server)];
  const said = await Promise.all(
    ["a", "b", "c"].map((id) => one.done({ type: "chat", session_id: id, message: `long 40 ${id}` })),
  );
  await two.subscribe("b", undefined);
  for (const { session_id: id, message_id: turn } of said) {
    await one.view(id).ended(turn);
    await same(server, id, turn, one.view(id).blocks);
  }
  const [, { message_id: turn }] = said;
  assert.deepEqual(bare(await two.view("b").ended(turn)), bare(one.view("b").blocks));
  assert.deepEqual([...two.views.keys()], ["b"], "nothing of the others");
  // What is said elsewhere comes to all who watch.
  const { reply_id: reply } = await server.say("b", "weather");
  assert.deepEqual(bare(await two.view("b").ended(reply)), bare(await one.view("b").ended(reply)));
});

test("errors name their command and repeat its id; the socket stays open", { timeout }, async (t) => {
  const server = await serve(t, { rate: 100 });
  const client = await Client.open(t, server);
  const told = async (text) => {
    const before = client.answers.length;
    client.socket.send(text);
    return until(() => client.answers[before], "no answer");
  };
  for (const [text, wanted] of [
    ['{"type":"shout","id":"x"}', { command: "shout", code: "bad_request", id: "x" }],
    ['{"type":"subscribe","id":7}', { command: "subscribe", code: "bad_request", id: 7 }],
    ['{"type":"subscribe","session_id":"nobody"}', { command: "subscribe", code: "not_found" }],
    ['{"type":"subscribe","session_id":"../x"}', { command: "subscribe", code: "bad_request" }],
    ['{"type":"chat","message":"  "}', { command: "chat", code: "bad_request" }],
    ['{"type":"chat","message":7}', { command: "chat", code: "bad_request" }],
    ['{"type":"chat","message":"x","display_mode":"loud"}', { command: "chat", code: "bad_request" }],
    ['{"type":"chat","message":"x","content_urls":[7]}', { command: "chat", code: "bad_request" }],
    ['{"type":"chat","message":"x","session_id":"a b"}', { command: "chat", code: "bad_request" }],
    ['{"type":"stop","session_id":"nobody"}', { command: "stop", code: "not_found" }],
    [
      '{"type":"approval","approval_key":"nobody_1","decisions":[{"type":"approve"}]}',
      { command: "approval", code: "not_found" },
    ],
    ['{"type":"approval","approval_key":"x"}', { command: "approval", code: "bad_request" }],
    ["[]", { code: "bad_request" }],
    ["{", { code: "bad_request" }],
    ["7", { code: "bad_request" }],
  ]) {
    const { type, message, hint, ...rest } = await told(text);
    assert.equal(type, "error");
    assert.ok(message);
    assert.deepEqual(rest, wanted, text);
  }
  const binary = client.answers.length;
  client.socket.send(Buffer.from("{}"));
  assert.equal((await until(() => client.answers[binary], "no answer")).code, "bad_request");
  const { sessions } = await server.ask("GET", "/v1/sessions");
  assert.deepEqual(sessions, [], "nothing was stored");
  const { session_id: session, message_id: turn } = await client.done({ type: "chat", message: "long 500" });
  const busy = await client.ask({ type: "chat", session_id: session, message: "and?" });
  assert.deepEqual([busy.type, busy.command, busy.code], ["error", "chat", "busy"]);
  await client.done({ type: "stop", session_id: session });
  await client.view(session).ended(turn);
  assert.deepEqual(await client.ask({ type: "ping" }), { type: "pong", id: client.next - 1 });
});

test("who says nothing is closed with 4008, comes back and misses nothing; a ping is enough", {
  timeout,
}, async (t) => {
  const server = await serve(t, { settings: '[limits]\nheartbeat = "500ms"\n' });
  const client = await Client.open(t, server, { auto: false });
  const { session, view } = await client.turn("hello");
  assert.equal(await client.closed, 4008);
  const { reply_id: turn } = await server.say(session, "weather");
  await client.back();
  await view.ended(turn);
  await same(server, session, turn, view.blocks);
  const alive = await Client.open(t, server, { auto: false });
  for (let beats = 0; beats < 5; beats += 1) {
    await alive.pinged();
    assert.equal((await alive.ask({ type: "ping" })).type, "pong");
  }
});

test("a question that nobody answers in time counts as a no", { timeout }, async (t) => {
  const server = await serve(t, { settings: '[agents.demo]\nmodel = "demo"\napproval_timeout = "1200ms"\n' });
  const client = await Client.open(t, server);
  const { session_id: session, message_id: turn } = await client.done({ type: "chat", message: "approve" });
  const view = client.view(session);
  const request = await view.has("approval_request");
  assert.equal(request.timeoutSeconds, 2, "whole seconds, rounded up");
  await view.ended(turn);
  const result = view.blocks.find((block) => block.type === "approval_result");
  assert.deepEqual(
    result.decisions.map(({ type }) => type),
    ["reject"],
  );
  assert.equal((await client.ask(decide(request, "approve"))).code, "already_answered");
  await same(server, session, turn, view.blocks);
});

test("the lines of the documentation: they come back by themselves", { timeout }, async (t) => {
  const code = readFileSync(new URL("connect.mjs", import.meta.url), "utf8");
  const page = readFileSync(new URL("../../../../docs/blocks.md", import.meta.url), "utf8");
  assert.ok(page.includes(code), "docs/blocks.md shows connect.mjs as it is");
  const server = await serve(t, { rate: 100 });
  const handler = streamProcessor();
  let frames = 0;
  const handleEvent = (frame) => {
    frames += 1;
    handler.handleEvent(frame);
  };
  const client = { handleEvent };
  connect(server.url.replace("http", "ws"), client);
  await until(() => client.socket.readyState === 1, "it does not open");
  client.send({ type: "chat", message: "long 200" });
  await until(() => frames > 20, "nothing comes");
  const cut = client.socket;
  cut.terminate();
  await until(() => !handler.isStreaming, "it does not come back");
  assert.notEqual(client.socket, cut);
  const { id } = (await server.messages(client.session)).at(-1);
  await same(server, client.session, id, handler.blocks);
  client.socket.onclose = null;
  client.socket.terminate();
});
