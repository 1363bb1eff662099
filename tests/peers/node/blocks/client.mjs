// A client of the protocol: commands and their answers, several sessions, and coming back.

import assert from "node:assert/strict";
import { once } from "node:events";
import { WebSocket } from "ws";
import { until } from "../harness.mjs";
import { streamProcessor } from "./handler.mjs";

const ANSWERS = ["connected", "auth_ok", "subscribed", "accepted", "pong", "error"];

/** One session as a client has it. */
export class View {
  constructor(id) {
    this.id = id;
    this.handler = streamProcessor();
    this.rules = new Rules(id);
    this.last = undefined; // where to go on
    this.pending = []; // frames of an event that has not come whole
    this.frames = []; // all that counted
    this.turns = new Map(); // message_id → its blocks, when it has ended
    this.resets = 0;
  }

  /** An event's frames count once the last of them is here: it carries the `event_id`. */
  take(frame) {
    assert.equal(frame.session_id, this.id);
    this.pending.push(frame);
    if (frame.event_id === undefined && frame.type !== "event") return;
    for (const each of this.pending) this.apply(each);
    this.pending = [];
    this.last = frame.event_id ?? this.last;
  }

  apply(frame) {
    this.frames.push(frame);
    this.rules.take(frame);
    if (frame.type === "event" && frame.event.type === "RESET") {
      this.resets += 1;
      this.turns.clear();
      this.rules = new Rules(this.id);
    }
    this.handler.handleEvent(frame);
    if (frame.type === "message_stop") this.turns.set(frame.message_id, this.handler.blocks);
  }

  get blocks() {
    return this.handler.blocks;
  }

  /** The same client on another day: it has seen the first so many frames. */
  static after(id, frames) {
    const view = new View(id);
    for (const frame of frames) view.take(frame);
    view.pending = [];
    return view;
  }

  has(type) {
    return until(() => this.blocks.find((block) => block.type === type), `no ${type} comes`);
  }

  ended(message) {
    return until(() => this.turns.get(message), `${message} does not end`);
  }
}

/** A connection, and what it watches. */
export class Client {
  static async open(t, server, { views = new Map(), auto = true, query = "" } = {}) {
    const client = new Client();
    Object.assign(client, { t, server, views, answers: [], waiting: new Map(), next: 1, query });
    await client.connect(auto);
    t.after(() => client.cut());
    return client;
  }

  async connect(autoPong = true) {
    const url = `${this.server.url.replace("http", "ws")}/v1/ws${this.query}`;
    const socket = new WebSocket(url, { autoPong });
    this.socket = socket;
    this.closed = new Promise((resolve) => socket.on("close", (code) => resolve(code)));
    socket.on("error", () => {});
    const greeted = new Promise((resolve, reject) => {
      socket.once("close", () => reject(new Error("it does not open")));
      socket.on("message", (data, isBinary) => {
        if (this.socket !== socket) return; // it was cut
        assert.equal(isBinary, false);
        const frame = JSON.parse(data);
        if (frame.type === "connected") resolve();
        this.take(frame);
      });
    });
    await greeted;
  }

  take(frame) {
    if (!ANSWERS.includes(frame.type)) {
      this.view(frame.session_id).take(frame);
      this.onframe?.(frame);
      return;
    }
    this.answers.push(frame);
    this.waiting.get(frame.id)?.(frame);
    this.waiting.delete(frame.id);
  }

  view(session) {
    if (!this.views.has(session)) this.views.set(session, new View(session));
    return this.views.get(session);
  }

  /** Sends a command, and waits for its answer. */
  ask(command) {
    const id = this.next++;
    const answer = new Promise((resolve) => this.waiting.set(id, resolve));
    this.socket.send(JSON.stringify({ ...command, id }));
    return answer;
  }

  async done(command) {
    const answer = await this.ask(command);
    assert.notEqual(answer.type, "error", JSON.stringify(answer));
    return answer;
  }

  /** Says something, and waits for the end of the turn. */
  async turn(message, more = {}) {
    const { session_id: session, message_id: turn } = await this.done({ type: "chat", message, ...more });
    await this.view(session).ended(turn);
    return { session, turn, view: this.view(session) };
  }

  subscribe(session, last = this.view(session).last) {
    return this.done({ type: "subscribe", session_id: session, last_event_id: last });
  }

  /** What comes after this is lost, as is what is on its way. */
  cut() {
    const socket = this.socket;
    this.socket = undefined;
    for (const view of this.views.values()) view.pending = [];
    socket?.terminate();
  }

  /** Cut, and back again. The server may need a moment to be there. */
  async back() {
    this.cut();
    await until(
      () =>
        this.connect().then(
          () => true,
          () => false,
        ),
      "it cannot come back",
    );
    for (const [session, view] of this.views) await this.subscribe(session, view.last);
  }

  async pinged() {
    await once(this.socket, "ping");
  }
}

/** What the handler accepts in silence, and the protocol does not allow. */
class Rules {
  constructor(session) {
    this.session = session;
    this.turn = undefined;
    this.over = new Set();
  }

  take(frame) {
    const { type, message_id: id, index } = frame;
    if (["message", "event", "custom"].includes(type)) return;
    assert.ok(typeof id === "string" && id, `${type} has a message_id`);
    assert.ok(!this.over.has(id), `${type} after the message_stop of its turn`);
    if (frame.again) return this.again(frame);
    if (type === "message_start") {
      assert.equal(this.turn, undefined, "a turn begins inside another");
      assert.equal(typeof frame.timestamp, "number");
      assert.ok(["agent", "chat"].includes(frame.display_mode));
      assert.equal(frame.is_new_session_from_share, false);
      this.turn = { id, mode: frame.display_mode, next: 0, open: new Set(), files: 0, stop: undefined };
      return;
    }
    const turn = this.turn;
    assert.ok(turn?.id === id, `${type} outside its turn`);
    assert.equal(turn.stop, type === "message_stop" ? turn.stop : undefined, `${type} after message_delta`);
    switch (type) {
      case "content_block_start":
        assert.equal(index, turn.next, "blocks are counted from 0 without a gap");
        turn.next += 1;
        turn.open.add(index);
        this.block(turn, index, frame.content_block);
        break;
      case "content_block_delta":
        assert.ok(turn.open.has(index), "a delta of a block that is not open");
        break;
      case "content_block_stop":
        assert.ok(turn.open.delete(index), "the stop of a block that is not open");
        break;
      case "content_block_discard":
        turn.open.delete(index);
        break;
      case "message_delta":
        assert.equal(typeof frame.delta.stop_reason, "string");
        turn.stop = frame.delta;
        break;
      case "message_stop":
        assert.ok(turn.stop, "message_stop without message_delta");
        assert.equal(turn.open.size, 0, "a block never ends");
        assert.ok(frame.duration_ms >= 0);
        this.over.add(id);
        this.turn = undefined;
        break;
      default:
        assert.fail(`a frame ${type}`);
    }
  }

  /** The turn is written anew: what it says was there before, and nothing else is. */
  again({ type, message_id: id, index }) {
    assert.equal(this.turn?.id, id);
    if (type === "message_start") this.turn.open.clear();
    else assert.ok(index < this.turn.next, "only what was there is written again");
    if (type === "content_block_start") this.turn.open.add(index);
    if (type === "content_block_stop") this.turn.open.delete(index);
  }

  block(turn, index, block) {
    const has = (...keys) => keys.forEach((key) => assert.ok(key in block, `${block.type} has no ${key}`));
    switch (block.type) {
      case "thinking":
        assert.equal(turn.mode, "agent", "thinking is shown in the mode agent only");
        has("thinking", "subagent", "parent_tool_use_id");
        break;
      case "text":
        assert.equal(block.text, "");
        break;
      case "tool_use":
        has("id", "name", "tool_use_id", "tool_content_message", "subagent", "parent_tool_use_id");
        assert.equal(typeof block.input, "object");
        break;
      case "tool_result":
        has("tool_use_id", "name", "artifact");
        assert.ok(["success", "error"].includes(block.status));
        assert.ok([...block.content].length <= 500);
        break;
      case "approval_request":
        assert.match(block.approval_key, new RegExp(`^${this.session}_\\d+$`));
        break;
      case "file_processing":
        assert.equal(index, 0);
        break;
    }
  }
}

/** Blocks without what only says in how many pieces they came. */
export const bare = (blocks) => blocks.map(({ _parts, ...block }) => block);

/** What a person sees of a turn, of the message's own blocks. */
export function shown(blocks) {
  const edits = new Map();
  for (const { type, decisions } of blocks) {
    if (type !== "approval_result") continue;
    for (const { tool_use_id: id, type: verdict, args } of decisions) if (verdict === "edit") edits.set(id, args);
  }
  return blocks.flatMap((block) => {
    if (block.subagent) return [];
    switch (block.type) {
      case "text":
        return [{ type: "text", text: block.text }];
      case "thinking":
        return [{ type: "thinking", thinking: block.thinking }];
      case "attachment":
        return [{ type: "attachment", url: block.url, mime_type: block.mime_type }];
      case "tool_use": {
        const { id, name, toolResult, toolResultError } = block;
        const input = edits.get(id) ?? block.input;
        return [{ type: "tool_use", id, name, title: block.tool_content_message, input, toolResult, toolResultError }];
      }
      default:
        return [];
    }
  });
}

/** The same of the server's own message. */
export function expected(message, mode = "agent") {
  const results = new Map();
  for (const block of message.content) if (block.type === "tool_result") results.set(block.id, block);
  return message.content.flatMap((block) => {
    switch (block.type) {
      case "text":
        return [{ type: "text", text: block.text }];
      case "thinking":
        return mode === "agent" ? [{ type: "thinking", thinking: block.thinking }] : [];
      case "data": {
        const { type, url, data, media_type: mime } = block.source;
        return [{ type: "attachment", url: type === "base64" ? `data:${mime};base64,${data}` : url, mime_type: mime }];
      }
      case "tool_call": {
        const result = results.get(block.id);
        const output =
          result &&
          (typeof result.output === "string" ? result.output : result.output.map((o) => o.text ?? "").join(""));
        return [
          {
            type: "tool_use",
            id: block.id,
            name: block.name,
            title: block.title ?? block.name,
            input: JSON.parse(block.input || "{}"),
            toolResult: result && [...output].slice(0, 500).join(""),
            toolResultError: result && result.state !== "success",
          },
        ];
      }
      default:
        return [];
    }
  });
}

/** The blocks of a turn are those of the server's message. */
export async function same(server, session, turn, blocks, mode) {
  const message = (await server.messages(session)).find((each) => each.id === turn);
  assert.ok(message, `the server has no ${turn}`);
  const own = expected(message, mode);
  assert.deepEqual(shown(blocks), own);
  return message;
}
