// A conversation as it grows: loaded once, then folded on from the events as they come.

import type { FoldError } from "./error.js";
import type { Event, MsgJson, ToolCall } from "./generated/model.js";
import { Folder, Msg, snapshot } from "./message.js";
import type { Queued, Sendable, Sent, Session, SessionInfo, Status } from "./session.js";
import { within } from "./http.js";
import { keep, type Connection } from "./watch.js";

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
  queued: (Queued & { content?: Sendable })[];
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

const START: SessionState = {
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

/** The state before anything has come: what a server renders. */
export const EMPTY: Readonly<SessionState> = START;

/** The conversation as it grows: its messages, what waits, and how the connection is. `new SessionView(client.session(id))`. */
export class SessionView implements AsyncIterable<SessionState> {
  #state: SessionState = START;
  #folder = new Folder();
  /** Messages of pages before the first one. */
  #older: Msg[] = [];
  #before: string | null = null;
  /** The messages of sub-agents. */
  #whose = new Map<string, Whose>();
  #asked = new Map<string, { since: string | null; expires_at: string | null }>();
  #said = new Map<string, Sendable>();
  #dirty = true;
  #scheduled = false;
  #listeners = new Set<() => void>();
  #stop: AbortController;
  #refreshing: "no" | "yes" | "again" = "no";
  #limit: number;

  constructor(
    readonly session: Session,
    readonly options: ViewOptions = {},
  ) {
    this.#limit = options.limit ?? 50;
    this.#stop = within(options.signal);
    void this.#run();
  }

  /** What there is to show now. */
  get state(): SessionState {
    if (this.#dirty) {
      this.#dirty = false;
      this.#state = this.#compute();
    }
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
  async send(content: Sendable, { queue = true, key }: { queue?: boolean; key?: string } = {}): Promise<Sent> {
    const sent = await this.session.send(content, { queue, ...(key && { key }) });
    if (sent.queued) {
      this.#said.set(sent.message_id, content);
      this.#refresh();
    }
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
    const page = await this.session.history({ before: this.#before, limit: this.#limit, signal: this.#stop.signal });
    this.#older = [...page.messages.map((json) => Msg.from(json)), ...this.#older];
    this.#before = page.has_more ? page.next_before : null;
    this.#changed({ hasMore: !!this.#before });
  }

  async #run(): Promise<void> {
    const { session } = this;
    let after: string | undefined;
    await keep(
      session.http,
      async (line) => {
        // Until something came, it is the token of what was loaded that counts.
        if (!this.#state.ready) after = await this.#load(line.signal);
        await session.connect({ ...line, after: line.after ?? after });
      },
      { session: session.id, signal: this.#stop.signal },
      {
        connection: (connection) => this.#changed({ connection, ...(connection.state === "closed" && { error: connection.error }) }),
        event: (event) => this.#event(event),
      },
    );
  }

  /** The latest messages. Those of sub-agents are the ones that are only there when asked for. */
  async #load(signal: AbortSignal): Promise<string> {
    const limit = this.#limit;
    const all = await this.session.history({ limit, agents: "all", signal });
    const own = await this.session.history({ limit, signal });
    const ids = new Set(own.messages.map(({ id }) => id));
    this.#folder = new Folder(all.messages.map((json) => Msg.from(json, all.cursors[json.id ?? ""])));
    this.#older = [];
    this.#whose.clear();
    for (const { id = "" } of all.messages) {
      if (!ids.has(id)) this.#whose.set(id, { agent_path: null, parent_tool_call_id: null });
    }
    this.#before = all.has_more ? all.next_before : null;
    this.#changed({ ready: true, hasMore: !!this.#before });
    this.#refresh();
    return all.last_event_id;
  }

  #event(event: Event): void {
    if (event.type === "RESET") {
      this.#older = [];
      this.#before = null;
      this.#whose.clear();
      this.#changed({ hasMore: false });
    }
    const { reply_id, agent_path, parent_tool_call_id } = event as Event & { reply_id?: string };
    if (reply_id && (parent_tool_call_id != null || agent_path?.includes("/"))) {
      if (!this.#whose.get(reply_id)?.agent_path) {
        this.#whose.set(reply_id, { agent_path: agent_path ?? null, parent_tool_call_id: parent_tool_call_id ?? null });
      }
    }
    if (event.type === "REQUIRE_USER_CONFIRM" || event.type === "REQUIRE_EXTERNAL_EXECUTION") {
      for (const { id } of event.tool_calls) this.#asked.set(id, { since: event.created_at ?? null, expires_at: null });
    }
    if (/^(?:MESSAGE|REPLY_END|RESET|REQUIRE_)/.test(event.type)) this.#refresh();
    this.#folder.pushTolerant(event, (problem) => this.#changed({ problem }));
    this.#changed({});
    this.options.onevent?.(event);
  }

  /** Asks for what no event says: the queue, until when to answer, the tokens of all. */
  #refresh(): void {
    if (this.#refreshing !== "no") {
      this.#refreshing = "again";
      return;
    }
    this.#refreshing = "yes";
    const done = (session: SessionInfo | undefined) => {
      const again = this.#refreshing === "again";
      this.#refreshing = "no";
      if (session) {
        for (const { confirm, external, since, expires_at } of session.pending) {
          for (const { id } of [...confirm, ...external]) this.#asked.set(id, { since, expires_at });
        }
        const waits = new Set(session.queued.map(({ message_id }) => message_id));
        for (const id of this.#said.keys()) if (!waits.has(id)) this.#said.delete(id);
        this.#changed({ session });
      }
      if (again) this.#refresh();
    };
    this.session.get({ signal: this.#stop.signal }).then(done, () => done(undefined));
  }

  #changed(change: Partial<SessionState>): void {
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
    const history = [...this.#older, ...this.#folder.history];
    const own = history.filter(({ id }) => !this.#whose.has(id));
    const open = own.filter((msg) => msg.role === "assistant" && msg.finished_at === null);
    const last = open.at(-1);
    const pending: Approval[] = [];
    for (const msg of history) {
      if (msg.finished_at !== null) continue;
      for (const { state, id, ...rest } of msg.getContentBlocks("tool_call")) {
        if (state !== "asking" && state !== "submitted") continue;
        const { since = null, expires_at = null } = this.#asked.get(id) ?? {};
        pending.push({
          kind: state === "asking" ? "confirm" : "external",
          reply_id: msg.id,
          tool_call: { ...rest, id, state },
          agent_path: this.#whose.get(msg.id)?.agent_path ?? null,
          since,
          expires_at,
        });
      }
    }
    const messages = same(before.messages, own.map((msg) => snapshot(msg)));
    const agents = history.flatMap((msg) => {
      const whose = this.#whose.get(msg.id);
      return whose ? [{ message: snapshot(msg), ...whose }] : [];
    });
    const queued = (before.session?.queued ?? []).map((waits): SessionState["queued"][number] => {
      const content = this.#said.get(waits.message_id);
      return content === undefined ? waits : { ...waits, content };
    });
    return {
      ...before,
      messages,
      agents: same(before.agents, agents, (a, b) => a.message === b.message && a.agent_path === b.agent_path),
      streaming: last ? snapshot(last) : null,
      status: pending.length ? "waiting" : open.length ? "running" : "idle",
      pending: same(before.pending, pending, (a, b) => JSON.stringify(a) === JSON.stringify(b)),
      queued: same(before.queued, queued, (a, b) => a.message_id === b.message_id && a.content === b.content),
    };
  }
}

/** The old list where the new one has nothing else in it. */
function same<T>(before: T[], now: T[], equal: (a: T, b: T) => boolean = Object.is): T[] {
  return before.length === now.length && before.every((item, at) => equal(item, now[at]!)) ? before : now;
}

/** Before the next picture; where nobody looks, soon. */
function nextFrame(then: () => void): void {
  const { requestAnimationFrame: frame, document } = globalThis;
  if (frame && !document?.hidden) frame(then);
  else setTimeout(then, 16);
}
