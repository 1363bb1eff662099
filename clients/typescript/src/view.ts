// The live state of a session: loaded once, then folded from its events.

import type { FoldError } from "./error.js";
import type { Event, MsgJson, ToolCall } from "./generated/model.js";
import { FOREVER, linkedController } from "./http.js";
import { Folder, Msg, snapshot } from "./message.js";
import type { History, HistoryOptions, Queued, Sendable, Sent, Session, SessionInfo, Status } from "./session.js";
import { type Connect, type Connection, keepConnected } from "./watch.js";

/** A call that waits for a person (`approve`, `deny`) or a client (`result`). */
export interface Approval {
  kind: "confirm" | "external";
  reply_id: string;
  tool_call: ToolCall;
  agent_path: string | null;
  /** When it was requested, and until when it can be answered, if known. */
  since: string | null;
  expires_at: string | null;
}

/** A sub-agent's message. */
export interface AgentMessage {
  message: MsgJson;
  /** For example `main/researcher`; `null` if the message was loaded and not followed. */
  agent_path: string | null;
  /** The tool call it works for; `null` if the message was loaded and not followed. */
  parent_tool_call_id: string | null;
}

/**
 * The state to show. It is immutable: without changes it is the same object, and so is each unchanged part.
 */
export interface SessionState {
  /** Whether the messages are loaded. */
  ready: boolean;
  messages: MsgJson[];
  /** Messages of sub-agents. */
  agents: AgentMessage[];
  /** The open reply, which is also the last message. */
  streaming: MsgJson | null;
  status: Status;
  pending: Approval[];
  /** Queued messages, with their content if this client sent them. */
  queued: Queued[];
  /** Whether there are earlier messages: `loadMore()`. */
  hasMore: boolean;
  /** The session when a reply last started or ended. */
  session: SessionInfo | null;
  connection: Connection;
  /** Why the view ended. */
  error: Error | null;
  /** The last event that did not fit. The others were applied. */
  problem: FoldError | null;
}

export interface ViewOptions {
  /** How many messages to load at first and with each `loadMore()`. Default: 50. */
  limit?: number;
  signal?: AbortSignal;
  /** Called with each event after it was folded. */
  onevent?: (event: Event) => void;
}

interface AgentOrigin {
  agent_path: string | null;
  parent_tool_call_id: string | null;
}

/** The state before anything is loaded, for server rendering. */
export const EMPTY: Readonly<SessionState> = {
  ready: false,
  messages: [],
  agents: [],
  streaming: null,
  status: "idle",
  pending: [],
  queued: [],
  hasMore: false,
  session: null,
  connection: { state: "connecting" },
  error: null,
  problem: null,
};

/** The live state of a session: messages, pending calls and connection. `new SessionView(client.session(id))`. */
export class SessionView implements AsyncIterable<SessionState> {
  #state = EMPTY;
  #dirty = true;
  #folder = new Folder();
  /** Messages of earlier pages, and the cursor of the next page. */
  #older: Msg[] = [];
  #before: string | null = null;
  #loading: Promise<void> | undefined;
  /** The messages of sub-agents. */
  #origins = new Map<string, AgentOrigin>();
  #deadlines = new Map<string, { since: string | null; expires_at: string | null }>();
  /** How many refreshes were requested while one runs. */
  #refreshing = 0;
  #scheduled = false;
  #listeners = new Set<() => void>();
  #stop: AbortController;

  constructor(
    readonly session: Session,
    readonly options: ViewOptions = {},
  ) {
    const { signal } = (this.#stop = linkedController(options.signal));
    const { http, id } = session;
    let loaded: string | undefined;
    const connect: Connect = async (line) => {
      if (!this.#state.ready) {
        // Requests handle the signal themselves.
        line.heard(FOREVER);
        loaded = await this.#load(line.signal);
        line.heard();
      }
      // Until an event arrives, the token of the loaded history counts.
      await session.connect({ ...line, after: line.after ?? loaded });
    };
    void keepConnected(
      http,
      connect,
      { session: id, signal },
      {
        connection: (connection) =>
          this.#changed({ connection, error: connection.state === "closed" ? connection.error : null }),
        event: (event) => this.#event(event),
      },
    );
  }

  /** The current state. */
  get state(): SessionState {
    if (this.#dirty) this.#state = this.#compute();
    this.#dirty = false;
    return this.#state;
  }

  /** Calls `listener` after changes, at most once per frame; returns a function that unsubscribes. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Closes the view. */
  close(): void {
    this.#stop.abort();
  }

  /** The states, one per change; slow readers get the latest. */
  async *[Symbol.asyncIterator](): AsyncGenerator<SessionState> {
    let wake: (() => void) | undefined;
    const leave = this.subscribe(() => wake?.());
    try {
      for (let shown: SessionState | undefined; ; ) {
        const { state } = this;
        if (state !== shown) yield (shown = state);
        else if (state.connection.state === "closed") return;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      leave();
    }
  }

  /** Sends a message, as `Session.send`; while a reply runs it is queued. */
  async send(content: Sendable, options: { queue?: boolean; key?: string } = {}): Promise<Sent> {
    const sent = await this.session.send(content, { queue: true, ...options });
    if (sent.queued) this.#refresh();
    return sent;
  }

  /** Removes a queued message. */
  async cancel(messageId: string): Promise<void> {
    await this.session.cancel(messageId);
    this.#refresh();
  }

  /** Loads earlier messages. */
  loadMore(): Promise<void> {
    // Whoever asks while a page is on its way waits for that page: twice the same would be in the list twice.
    return (this.#loading ??= this.#loadEarlier().finally(() => void (this.#loading = undefined)));
  }

  async #loadEarlier(): Promise<void> {
    if (!this.#before) return;
    const { messages } = await this.#page({ before: this.#before, signal: this.#stop.signal });
    this.#older = [...messages.map((json) => Msg.from(json)), ...this.#older];
    this.#changed();
  }

  async #page(options: HistoryOptions & { signal: AbortSignal }): Promise<History> {
    const page = await this.session.history({ limit: this.options.limit ?? 50, agents: "all", ...options });
    if (!options.before) this.#forget();
    this.#before = page.next_before;
    for (const [id, { agent_path = null, parent_tool_call_id = null }] of Object.entries(page.agents))
      this.#origins.set(id, { agent_path, parent_tool_call_id });
    return page;
  }

  /** Loads the latest messages. */
  async #load(signal: AbortSignal): Promise<string> {
    const { messages, cursors, last_event_id } = await this.#page({ signal });
    this.#folder = new Folder(messages.map((json) => Msg.from(json, cursors[json.id!])));
    this.#changed({ ready: true });
    this.#refresh();
    return last_event_id;
  }

  #forget(): void {
    this.#older = [];
    this.#before = null;
    this.#origins.clear();
  }

  #event(event: Event): void {
    const {
      type,
      reply_id,
      agent_path = null,
      parent_tool_call_id = null,
      tool_calls = [],
      created_at: since = null,
    } = event as Event & Record<string, any>;
    if (type === "RESET") this.#forget();
    const isOfSubAgent = parent_tool_call_id !== null || agent_path?.includes("/");
    if (reply_id && isOfSubAgent && !this.#origins.get(reply_id)?.agent_path)
      this.#origins.set(reply_id, { agent_path, parent_tool_call_id });
    if (type.startsWith("REQUIRE_"))
      for (const { id } of tool_calls) this.#deadlines.set(id, { since, expires_at: null });
    if (/^(MESSAGE|REPLY_END|RESET|REQUIRE_)/.test(type)) this.#refresh();
    this.#folder.pushTolerant(event, (problem) => this.#changed({ problem }));
    this.#changed();
    this.options.onevent?.(event);
  }

  /** Requests what events do not contain: queue, deadlines, total tokens. */
  async #refresh(): Promise<void> {
    if (this.#refreshing++) return;
    const session = await this.session.get({ signal: this.#stop.signal }).catch(() => null);
    const again = this.#refreshing > 1;
    this.#refreshing = 0;
    if (session) {
      for (const { confirm, external, since, expires_at } of session.pending) {
        for (const { id } of [...confirm, ...external]) this.#deadlines.set(id, { since, expires_at });
      }
      this.#changed({ session });
    }
    if (again) this.#refresh();
  }

  #changed(change?: Partial<SessionState>): void {
    this.#state = { ...this.#state, ...change };
    this.#dirty = true;
    if (this.#scheduled) return;
    this.#scheduled = true;
    nextFrame(() => {
      this.#scheduled = false;
      for (const listener of [...this.#listeners]) listener();
    });
  }

  #compute(): SessionState {
    const before = this.#state;
    const messages: MsgJson[] = [];
    const agents: AgentMessage[] = [];
    const pending: Approval[] = [];
    let streaming: MsgJson | null = null;
    for (const msg of [...this.#older, ...this.#folder.history]) {
      const { id: reply_id, role, finished_at } = msg;
      const message = snapshot(msg);
      const origin = this.#origins.get(reply_id);
      if (origin) agents.push({ message, ...origin });
      else messages.push(message);
      if (finished_at !== null) continue;
      if (!origin && role === "assistant") streaming = message;
      for (const tool_call of message.content) {
        if (tool_call.type !== "tool_call" || !/^(asking|submitted)$/.test(tool_call.state)) continue;
        const { since = null, expires_at = null } = this.#deadlines.get(tool_call.id) ?? {};
        const kind = tool_call.state === "asking" ? "confirm" : "external";
        pending.push({ kind, reply_id, tool_call, agent_path: origin?.agent_path ?? null, since, expires_at });
      }
    }
    return {
      ...before,
      messages: keepIfEqual(before.messages, messages),
      agents: keepIfEqual(before.agents, agents),
      streaming,
      status: pending[0] ? "waiting" : streaming ? "running" : "idle",
      pending: keepIfEqual(before.pending, pending),
      queued: before.session?.queued ?? before.queued,
      hasMore: !!this.#before,
    };
  }
}

/** The old list if the new one has the same items. */
function keepIfEqual<T extends object>(before: T[], now: T[]): T[] {
  const isOld = (item: T, at: number) =>
    item === before[at] || Object.entries(item).every(([key, value]) => before[at]![key as keyof T] === value);
  return before.length === now.length && now.every(isOld) ? before : now;
}

/** Before the next frame. A page that is hidden before it gets none: then soon. */
function nextFrame(then: () => void): void {
  const { requestAnimationFrame: frame, cancelAnimationFrame: cancel, document } = globalThis;
  const run = () => {
    clearTimeout(timer);
    cancel?.(asked);
    then();
  };
  const timer = setTimeout(run, !document || document.hidden ? 16 : 200);
  const asked = frame?.(run);
}
