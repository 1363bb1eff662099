// One conversation: what can be asked of it, said to it, and seen of it.

import type { Cursor } from "./fold.js";
import type {
  ContentBlock,
  Fields,
  MsgJson,
  Payload,
  PermissionRule,
  ToolCall,
  ToolResult,
  ToolResultState,
  Usage,
} from "./generated/model.js";
import { type Http, query } from "./http.js";
import { newId } from "./id.js";
import type { Content } from "./message.js";
import { type Connect, Watch, type Watching } from "./watch.js";

export type Status = "idle" | "running" | "waiting";

/** What waits for a person or a client. */
export interface Pending {
  reply_id: string;
  agent_path?: string;
  /** Calls that wait for a yes or no. */
  confirm: ToolCall[];
  /** Calls that a client executes. */
  external: ToolCall[];
  since: string;
  expires_at: string | null;
}

/** A message that waits for its turn. */
export interface Queued {
  message_id: string;
  reply_id: string;
  content: ContentBlock[];
}

export interface SessionInfo {
  id: string;
  agent: string;
  title: string | null;
  status: Status;
  epoch: string;
  last_seq: number;
  last_event_id: string;
  pending: Pending[];
  queued: Queued[];
  usage: Usage;
  cost?: unknown;
  created_at: string;
  updated_at: string;
  metadata: Fields;
}

export interface History {
  messages: MsgJson[];
  /** What the fold of an unfinished reply needs to go on, by the message. */
  cursors: Record<string, Cursor>;
  /** Watch from here on. */
  last_event_id: string;
  status: Status;
  pending: Pending[];
  /** Whose the messages of sub-agents are, by the message; nothing where only the agent's own were asked for. */
  agents: Record<string, { agent_path?: string; parent_tool_call_id?: string }>;
  has_more: boolean;
  next_before: string | null;
}

export interface HistoryOptions {
  before?: string;
  limit?: number;
  /** `"all"`: also the messages of sub-agents. */
  agents?: "all";
  superseded?: boolean;
}

export interface Sent {
  message_id: string;
  reply_id?: string;
  last_event_id: string;
  queued?: boolean;
}

/** A call that asks, and the reply that it is in. */
export interface Asking {
  reply_id: string;
  tool_call: Pick<ToolCall, "id"> & Partial<ToolCall>;
}

export interface ApproveOptions {
  /** Another input: an object, or its JSON. */
  input?: string | Fields;
  /** Accept the rules that were suggested, so that it is not asked again; or some of them. */
  always?: boolean | PermissionRule[];
}

/** What a tool that the client runs has given. */
export interface Given {
  output: Payload;
  state?: ToolResultState;
  metadata?: Fields;
}

/** A message to send: a text, blocks, or a whole one. */
export type Sendable = Content | (Partial<MsgJson> & { content: unknown });

interface Signal {
  signal?: AbortSignal;
}

export class Session {
  readonly #path: string;

  constructor(
    readonly http: Http,
    readonly connect: Connect,
    readonly id: string,
  ) {
    this.#path = `/v1/sessions/${encodeURIComponent(id)}`;
  }

  #get<T>(path: string, { signal }: Signal = {}): Promise<T> {
    return this.http.ask("GET", this.#path + path, { signal });
  }

  #post<T>(path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
    return this.http.ask("POST", this.#path + path, { body: JSON.stringify(body), headers });
  }

  /** The session as it is now. */
  get(options?: Signal): Promise<SessionInfo> {
    return this.#get("", options);
  }

  /** Changes title or metadata. */
  update(change: { title?: string | null; metadata?: Fields }): Promise<SessionInfo> {
    return this.http.ask("PATCH", this.#path, { body: JSON.stringify(change) });
  }

  rename(title: string): Promise<SessionInfo> {
    return this.update({ title });
  }

  /** It is gone, also after a crash, and whoever watches it is told. */
  delete(): Promise<void> {
    return this.http.ask("DELETE", this.#path);
  }

  /** A new session with the log up to `at`, or all of it. */
  fork({ at, id = newId(), title }: { at?: number; id?: string; title?: string } = {}): Promise<SessionInfo> {
    return this.#post(`/fork${query({ at })}`, { id, title });
  }

  /** The log as it is: one event a line. */
  export({ signal }: Signal = {}): Promise<string> {
    return this.http.ask("GET", `${this.#path}/events`, { accept: "application/x-ndjson", signal }, String);
  }

  /** A page of messages, oldest first; the page before it is that `before: next_before`. */
  history({ signal, ...options }: HistoryOptions & Signal = {}): Promise<History> {
    return this.#get(`/messages${query(options)}`, { signal });
  }

  /** A message, or how it stood at an event. */
  message(id: string, { at, signal }: { at?: number } & Signal = {}): Promise<MsgJson> {
    return this.#get(`/messages/${encodeURIComponent(id)}${query({ at })}`, { signal });
  }

  /**
   * Says something. It is sent again when no answer comes, and counts once. While a reply runs it is refused
   * (`busy`), unless `queue`: then it waits for its turn.
   */
  send(content: Sendable, { queue = false, key = newId() }: { queue?: boolean; key?: string } = {}): Promise<Sent> {
    const body = typeof content === "string" || Array.isArray(content) ? { content } : content;
    return this.#post(`/messages${query({ queue })}`, body, { "idempotency-key": key });
  }

  /** Takes back a message that still waits in the queue. */
  cancel(messageId: string): Promise<void> {
    return this.http.ask("DELETE", `${this.#path}/messages/${encodeURIComponent(messageId)}`);
  }

  /** Answers a message again; the old reply leaves the history. */
  retry(messageId: string): Promise<Sent> {
    return this.#post(`/messages/${encodeURIComponent(messageId)}/retry`, undefined, { "idempotency-key": newId() });
  }

  /** Says yes: as it is, with another input, or once for all. */
  approve(asking: Asking, { input, always = false }: ApproveOptions = {}): Promise<void> {
    const { id, suggested_rules = [] } = asking.tool_call;
    const edited = typeof input === "object" ? JSON.stringify(input) : input;
    const rules = always === true ? suggested_rules : always || [];
    return this.#confirm(asking.reply_id, {
      confirmed: true,
      tool_call: { id, input: edited },
      ...(rules.length && { rules }),
    });
  }

  /** Says no. */
  deny(asking: Asking): Promise<void> {
    return this.#confirm(asking.reply_id, { confirmed: false, tool_call: { id: asking.tool_call.id } });
  }

  #confirm(reply_id: string, result: unknown): Promise<void> {
    return this.say({ type: "USER_CONFIRM_RESULT", reply_id, confirm_results: [result] });
  }

  /** Gives what a tool that the client runs has given. */
  result({ reply_id, tool_call }: Asking, given: Given | string): Promise<void> {
    const { output, state = "success", metadata = {} } = typeof given === "string" ? { output: given } : given;
    const result: ToolResult = {
      type: "tool_result",
      id: tool_call.id,
      name: tool_call.name ?? "",
      output,
      state,
      metadata,
    };
    return this.say({ type: "EXTERNAL_EXECUTION_RESULT", reply_id, execution_results: [result] });
  }

  /** Stops what runs. Where nothing does, nothing happens. */
  stop(replyId = ""): Promise<void> {
    return this.say({ type: "USER_INTERRUPT", reply_id: replyId });
  }

  /** Says something to an open reply. Its id makes it safe to be sent again. */
  async say(event: { type: string } & Fields): Promise<void> {
    const stamped = { id: newId(), created_at: new Date().toISOString(), ...event };
    await this.#post("/events", [stamped]);
  }

  /** The events, each once and in order: those behind `after`, or all, and then those that come. */
  watch(options: Omit<Watching, "session"> = {}): Watch {
    return new Watch(this.http, this.connect, { ...options, session: this.id });
  }
}
