// One session: requests, messages and events.

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

/** How the last reply of a session ended, unless it ended well. */
export type Outcome = "failed" | "stopped" | "expired";

/** A decision about a pending call. */
export interface Decision {
  seq: number;
  reply_id: string;
  call_id: string;
  at: string;
  confirmed: boolean;
  /** Nobody answered in time, so the server denied the call. */
  expired: boolean;
  /** Who decided, if the credentials name somebody. */
  by?: string;
  /** The client it was decided with, as it calls itself. */
  client?: string;
  reason?: string;
  /** The input before and after it was edited. */
  input_before?: string;
  input_after?: string;
  rules: PermissionRule[];
}

/** A message that a search found. */
export interface Hit {
  message_id: string;
  seq: number;
  excerpt: string;
}

/** Calls of a reply that wait for a person or a client. */
export interface Pending {
  reply_id: string;
  agent_path?: string;
  /** Calls that wait for an approval. */
  confirm: ToolCall[];
  /** Calls that the client executes. */
  external: ToolCall[];
  since: string;
  expires_at: string | null;
}

/** A queued message. */
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
  outcome?: Outcome;
  epoch: string;
  last_seq: number;
  last_event_id: string;
  pending: Pending[];
  queued: Queued[];
  usage: Usage;
  cost?: number;
  created_at: string;
  updated_at: string;
  metadata: Fields;
}

export interface History {
  messages: MsgJson[];
  /** The fold cursors of unfinished replies, by message. */
  cursors: Record<string, Cursor>;
  /** The resume token to follow from. */
  last_event_id: string;
  status: Status;
  pending: Pending[];
  /** The agents of sub-agents' messages, by message; missing if only the session's agent was requested. */
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

/** A pending call and its reply. */
export interface Asking {
  reply_id: string;
  tool_call: Pick<ToolCall, "id"> & Partial<ToolCall>;
}

export interface ApproveOptions {
  /** An edited input: an object, or its JSON. */
  input?: string | Fields;
  /** Accept the suggested rules, or some of them, so that similar calls are not asked again. */
  always?: boolean | PermissionRule[];
}

/** The result of a tool that the client executed. */
export interface Given {
  output: Payload;
  state?: ToolResultState;
  metadata?: Fields;
}

/** A message to send: text, blocks, or a whole message. */
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

  /** The current session. */
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

  /** Deletes the session durably; its subscribers are told. */
  delete(): Promise<void> {
    return this.http.ask("DELETE", this.#path);
  }

  /** Creates a session with the log up to `at`, or all of it. */
  fork({ at, id = newId(), title }: { at?: number; id?: string; title?: string } = {}): Promise<SessionInfo> {
    return this.#post(`/fork${query({ at })}`, { id, title });
  }

  /** The log: one event per line. */
  export({ signal }: Signal = {}): Promise<string> {
    return this.http.ask("GET", `${this.#path}/events`, { accept: "application/x-ndjson", signal }, String);
  }

  /** A page of messages, oldest first; the page before it is `before: next_before`. */
  history({ signal, ...options }: HistoryOptions & Signal = {}): Promise<History> {
    return this.#get(`/messages${query(options)}`, { signal });
  }

  /** A message, or its state at an event. */
  message(id: string, { at, signal }: { at?: number } & Signal = {}): Promise<MsgJson> {
    return this.#get(`/messages/${encodeURIComponent(id)}${query({ at })}`, { signal });
  }

  /**
   * Sends a message. Without an answer it is sent again, and counts once. While a reply runs it is refused (`busy`),
   * unless `queue`: then it is queued.
   */
  send(content: Sendable, { queue = false, key = newId() }: { queue?: boolean; key?: string } = {}): Promise<Sent> {
    const body = typeof content === "string" || Array.isArray(content) ? { content } : content;
    return this.#post(`/messages${query({ queue })}`, body, { "idempotency-key": key });
  }

  /** Removes a queued message. */
  cancel(messageId: string): Promise<void> {
    return this.http.ask("DELETE", `${this.#path}/messages/${encodeURIComponent(messageId)}`);
  }

  /** Asks for a new reply to a message, or to new content in its place; what came after it leaves the history. */
  retry(messageId: string, content?: Content): Promise<Sent> {
    const body = content && { content };
    return this.#post(`/messages/${encodeURIComponent(messageId)}/retry`, body, { "idempotency-key": newId() });
  }

  /** Allows a pending call: as it is, with an edited input, or with rules for later calls. */
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

  /** Denies a pending call, with a reason for the agent. */
  deny(asking: Asking, reason = ""): Promise<void> {
    const message = reason.trim() || undefined;
    return this.#confirm(asking.reply_id, { confirmed: false, tool_call: { id: asking.tool_call.id }, message });
  }

  #confirm(reply_id: string, result: unknown): Promise<void> {
    const client = this.http.options.name;
    const metadata = client && { client };
    return this.say({ type: "USER_CONFIRM_RESULT", reply_id, confirm_results: [result], metadata });
  }

  /** The decisions about pending calls, and the accepted rules that still apply. */
  decisions(options?: Signal): Promise<{ decisions: Decision[]; rules: PermissionRule[] }> {
    return this.#get("/decisions", options);
  }

  /** Revokes an accepted rule. */
  revoke(rule: PermissionRule): Promise<void> {
    return this.#post("/rules/revoke", { rule });
  }

  /** The latest messages that have all these words, with excerpts. */
  search(q: string, { limit, signal }: { limit?: number } & Signal = {}): Promise<{ hits: Hit[] }> {
    return this.#get(`/search${query({ q, limit })}`, { signal });
  }

  /** Sends the result of a tool that the client executed. */
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

  /** Stops the running reply. Does nothing if none runs. */
  stop(replyId = ""): Promise<void> {
    return this.say({ type: "USER_INTERRUPT", reply_id: replyId });
  }

  /** Sends an event to an open reply. Its id makes it safe to repeat. */
  async say(event: { type: string } & Fields): Promise<void> {
    const stamped = { id: newId(), created_at: new Date().toISOString(), ...event };
    await this.#post("/events", [stamped]);
  }

  /** The events after `after`, or all, and then new ones: each once and in order. */
  watch(options: Omit<Watching, "session"> = {}): Watch {
    return new Watch(this.http, this.connect, { ...options, session: this.id });
  }
}
