// The conversation as it stood at any event, folded here. Dragging back and forth starts from the nearest
// point that was kept, never from the beginning.
import { useRef } from "react";
import type { AgentMessage } from "turnwire";
import { type Cursor, type Event, Folder, Msg, type MsgJson, snapshot } from "turnwire/message";
import { retry, useLog } from "./log.ts";

/** A snapshot is kept after every so many events. */
const SNAPSHOT_INTERVAL = 1024;

interface Point {
  /** A finished message never changes and is shared; an open one is copied. */
  messages: (Msg | { json: MsgJson; cursor: Cursor })[];
  superseded: string[];
}

type SubAgentOrigin = Pick<AgentMessage, "agent_path" | "parent_tool_call_id">;

/** The conversation at a point, in the shape of `SessionState`. */
export interface StateAt {
  messages: MsgJson[];
  agents: AgentMessage[];
}

export class Replay {
  #folder = new Folder();
  #origins = new Map<string, SubAgentOrigin>();
  /** How many events the folder has folded. */
  #seen = 0;
  #points: Point[] = [{ messages: [], superseded: [] }];

  constructor(
    readonly events: readonly Event[],
    readonly every = SNAPSHOT_INTERVAL,
  ) {}

  /** The state after the first `count` events. */
  after(count: number): StateAt {
    const point = Math.min(Math.floor(count / this.every), this.#points.length - 1);
    if (count < this.#seen || point * this.every > this.#seen) this.#restore(point);
    while (this.#seen < count && this.#seen < this.events.length) this.#push(this.events[this.#seen]);
    const history = this.#folder.history;
    const messages: MsgJson[] = [];
    const agents: AgentMessage[] = [];
    for (const msg of history) {
      const origin = this.#origins.get(msg.id);
      if (origin === undefined) messages.push(snapshot(msg));
      else agents.push({ message: snapshot(msg), ...origin });
    }
    return { messages, agents };
  }

  #push(event: Event | undefined): void {
    if (event === undefined) return;
    this.#folder.pushTolerant(event);
    this.#seen += 1;
    const { reply_id, agent_path, parent_tool_call_id } = event as Event & { reply_id?: string };
    // Valid at every point: a reply never changes its agent.
    if (
      reply_id !== undefined &&
      (parent_tool_call_id !== undefined || agent_path?.includes("/")) &&
      !this.#origins.has(reply_id)
    ) {
      this.#origins.set(reply_id, { agent_path: agent_path ?? null, parent_tool_call_id: parent_tool_call_id ?? null });
    }
    if (this.#seen % this.every === 0 && this.#seen / this.every === this.#points.length)
      this.#points.push(this.#point());
  }

  #point(): Point {
    const messages = this.#folder.messages.map((msg) => {
      const cursor = msg.cursor();
      return msg.finished_at !== null || cursor.whole ? msg : { json: snapshot(msg), cursor };
    });
    return { messages, superseded: [...this.#folder.superseded] };
  }

  #restore(at: number): void {
    const { messages, superseded } = this.#points[at] ?? { messages: [], superseded: [] };
    this.#folder = new Folder(messages.map((kept) => (kept instanceof Msg ? kept : Msg.from(kept.json, kept.cursor))));
    if (superseded.length > 0) this.#folder.pushTolerant({ type: "SUPERSEDE", message_ids: superseded } as Event);
    this.#seen = at * this.every;
  }
}

export interface PastState {
  /** `null` while the event is not loaded. */
  state: StateAt | null;
  /** The last event, once all are loaded. */
  last: number | null;
  /** Why the log cannot be read. */
  error: Error | null;
  retry: () => void;
}

/** The conversation at an event. */
export function useStateAt(session: string, at: number): PastState {
  const log = useLog(session);
  const kept = useRef<{
    log: typeof log;
    generation: number;
    replay: Replay;
    count: number;
    state: StateAt | null;
  } | null>(null);
  const last = log.ready ? log.last : null;
  const retryLog = () => retry(session, log);
  if (log.last < at) return { state: null, last, error: log.error, retry: retryLog };
  let cached = kept.current;
  if (cached?.log !== log || cached.generation !== log.generation) {
    kept.current = cached = { log, generation: log.generation, replay: new Replay(log.events), count: -1, state: null };
  }
  const count = log.indexOf(at) + 1;
  if (cached.state === null || cached.count !== count) {
    cached.count = count;
    cached.state = cached.replay.after(count);
  }
  return { state: cached.state, last, error: null, retry: retryLog };
}
