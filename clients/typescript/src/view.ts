// A conversation as it grows: loaded once, then folded on from the events as they come.

import type { FoldError } from "./error.js";
import type { Event, MsgJson, ToolCall } from "./generated/model.js";
import { FOREVER, within } from "./http.js";
import { Folder, Msg, snapshot } from "./message.js";
import type { History, HistoryOptions, Queued, Sendable, Sent, Session, SessionInfo, Status } from "./session.js";
import { type Connect, type Connection, keep } from "./watch.js";

/** A call that waits for a person (`approve`, `deny`), or for a client (`result`). */
export interface Approval {
  kind: "confirm" | "external";
  reply_id: string;
  tool_call: ToolCall;
  agent_path: string | null;
  /** When it was asked, and until when it can be answered, where that is known. */
  since: string | null;
  expires_at: string | null;
}

/** A sub-agent's message. */
export interface AgentMessage {
  message: MsgJson;
  /** Such as `main/researcher`; `null` for one that was loaded and not watched. */
  agent_path: string | null;
  /** The call that it works for; `null` for one that was loaded and not watched. */
  parent_tool_call_id: string | null;
}

/**
 * What there is to show. It is a value: as long as nothing happened it is the same object; what did not
 * change inside is the same, too.
 */
export interface SessionState {
  /** Whether the messages are there. */
  ready: boolean;
  messages: MsgJson[];
  /** Those of sub-agents. */
  agents: AgentMessage[];
  /** The reply that is open, which is also the last of the messages. */
  streaming: MsgJson | null;
  status: Status;
  pending: Approval[];
  /** What waits for its turn; with what was said, where it was said here. */
  queued: Queued[];
  /** Whether there are messages before these: `loadMore()`. */
  hasMore: boolean;
  /** The session as it was when something last began or ended. */
  session: SessionInfo | null;
  connection: Connection;
  /** Why it is over. */
  error: Error | null;
  /** The last event that did not fit. The others were applied. */
  problem: FoldError | null;
}

export interface ViewOptions {
  /** How many messages to load at first, and with each `loadMore()`; 50. */
  limit?: number;
  signal?: AbortSignal;
  /** Sees each event, after it was folded. */
  onevent?: (event: Event) => void;
}

interface Whose {
  agent_path: string | null;
  parent_tool_call_id: string | null;
}

/** The state before anything has come: what a server renders. */
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

/** The conversation as it grows: its messages, what waits, and how the connection is. `new SessionView(client.session(id))`. */
export class SessionView implements AsyncIterable<SessionState> {
  #state = EMPTY;
  #dirty = true;
  #folder = new Folder();
  /** Messages of pages before the first one, and where they end. */
  #older: Msg[] = [];
  #before: string | null = null;
  /** The messages of sub-agents. */
  #whose = new Map<string, Whose>();
  #asked = new Map<string, { since: string | null; expires_at: string | null }>();
  /** How often somebody asked for what is being asked for. */
  #refreshing = 0;
  #scheduled = false;
  #listeners = new Set<() => void>();
  #stop: AbortController;

  constructor(
    readonly session: Session,
    readonly options: ViewOptions = {},
  ) {
    const { signal } = (this.#stop = within(options.signal));
    const { http, id } = session;
    let loaded: string | undefined;
    const connect: Connect = async (line) => {
      if (!this.#state.ready) {
        // Requests listen for themselves.
        line.heard(FOREVER);
        loaded = await this.#load(line.signal);
        line.heard();
      }
      // Until something came, it is the token of what was loaded that counts.
      await session.connect({ ...line, after: line.after ?? loaded });
    };
    void keep(
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

  /** What there is to show now. */
  get state(): SessionState {
    if (this.#dirty) this.#state = this.#compute();
    this.#dirty = false;
    return this.#state;
  }

  /** Calls `listener` when there is something new to show, at most once a frame; returns how to stop that. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Ends it. */
  close(): void {
    this.#stop.abort();
  }

  /** The states, each time that there is something new; slow readers get the latest. */
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

  /** Says something, as `Session.send`; while a reply runs it waits for its turn. */
  async send(content: Sendable, options: { queue?: boolean; key?: string } = {}): Promise<Sent> {
    const sent = await this.session.send(content, { queue: true, ...options });
    if (sent.queued) this.#refresh();
    return sent;
  }

  /** Takes back what still waits for its turn. */
  async cancel(messageId: string): Promise<void> {
    await this.session.cancel(messageId);
    this.#refresh();
  }

  /** Loads the messages before the first one. */
  async loadMore(): Promise<void> {
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
      this.#whose.set(id, { agent_path, parent_tool_call_id });
    return page;
  }

  /** The latest messages. */
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
    this.#whose.clear();
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
    if (reply_id && isOfSubAgent && !this.#whose.get(reply_id)?.agent_path)
      this.#whose.set(reply_id, { agent_path, parent_tool_call_id });
    if (type.startsWith("REQUIRE_")) for (const { id } of tool_calls) this.#asked.set(id, { since, expires_at: null });
    if (/^(MESSAGE|REPLY_END|RESET|REQUIRE_)/.test(type)) this.#refresh();
    this.#folder.pushTolerant(event, (problem) => this.#changed({ problem }));
    this.#changed();
    this.options.onevent?.(event);
  }

  /** Asks for what no event says: the queue, until when to answer, the tokens of all. */
  async #refresh(): Promise<void> {
    if (this.#refreshing++) return;
    const session = await this.session.get({ signal: this.#stop.signal }).catch(() => null);
    const again = this.#refreshing > 1;
    this.#refreshing = 0;
    if (session) {
      for (const { confirm, external, since, expires_at } of session.pending) {
        for (const { id } of [...confirm, ...external]) this.#asked.set(id, { since, expires_at });
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
      const whose = this.#whose.get(reply_id);
      if (whose) agents.push({ message, ...whose });
      else messages.push(message);
      if (finished_at !== null) continue;
      if (!whose && role === "assistant") streaming = message;
      for (const tool_call of message.content) {
        if (tool_call.type !== "tool_call" || !/^(asking|submitted)$/.test(tool_call.state)) continue;
        const { since = null, expires_at = null } = this.#asked.get(tool_call.id) ?? {};
        const kind = tool_call.state === "asking" ? "confirm" : "external";
        pending.push({ kind, reply_id, tool_call, agent_path: whose?.agent_path ?? null, since, expires_at });
      }
    }
    return {
      ...before,
      messages: same(before.messages, messages),
      agents: same(before.agents, agents),
      streaming,
      status: pending[0] ? "waiting" : streaming ? "running" : "idle",
      pending: same(before.pending, pending),
      queued: before.session?.queued ?? before.queued,
      hasMore: !!this.#before,
    };
  }
}

/** The old list where the new one has nothing else in it. */
function same<T extends object>(before: T[], now: T[]): T[] {
  const isOld = (item: T, at: number) =>
    Object.entries(item).every(([key, value]) => before[at]![key as keyof T] === value);
  return before.length === now.length && now.every(isOld) ? before : now;
}

/** Before the next picture; where nobody looks, soon. */
function nextFrame(then: () => void): void {
  const { requestAnimationFrame: frame, document } = globalThis;
  if (frame && !document?.hidden) frame(then);
  else setTimeout(then, 16);
}
