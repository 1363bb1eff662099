// Where the time went, and the tokens: the replies of a session, what each of them did and when, with those
// of sub-agents inside the calls that they work for.
import type { Event, Usage } from "turnwire/message";

/** A model call, a tool run, or waiting for a person or client. */
export type Doing = "model" | "tool" | "wait";

export interface Span {
  doing: Doing;
  /** The name of the model or tool. */
  label: string;
  from: number;
  /** `null`: not ended. */
  to: number | null;
  /** Its first event, and its last so far. */
  seq: number;
  last: number;
  /** The tool call; empty for a model. */
  call: string;
  /** When a model's first output came. */
  firstToken: number | null;
  /** Tokens and cost of a model call, as logged at its end. */
  input: number;
  output: number;
  cost: number | null;
  /** How it ended: `success`, `error`, `denied`, …; empty while it runs. */
  state: string;
}

export interface Reply {
  id: string;
  name: string;
  /** Its first event, and its last so far. */
  seq: number;
  last: number;
  from: number;
  to: number | null;
  reason: string;
  /** The cost of its own model calls, as charged; null if none was. */
  cost: number | null;
  spans: Span[];
  /** Tokens of its own model calls. */
  usage: Usage;
  /** The call of the parent reply that it works for; empty for the session's agent. */
  call: string;
  /** Replies of sub-agents that work for it. */
  children: Reply[];
}

/** A model call with its token counts. */
export interface Call {
  at: number;
  seq: number;
  input: number;
  output: number;
}

export interface Source {
  readonly events: readonly Event[];
  readonly seqs: readonly number[];
  readonly times: readonly number[];
  readonly generation: number;
}

/** Continues where it stopped when more events come. */
export class ReplyTimes {
  /** Replies of the session's agents, in order. */
  replies: Reply[] = [];
  calls: Call[] = [];
  #all = new Map<string, Reply>();
  /** The reply of each call. */
  #callers = new Map<string, Reply>();
  #generation = -1;
  #seen = 0;

  constructor(readonly source: Source) {}

  sync(): this {
    const { events, seqs, times, generation } = this.source;
    if (generation !== this.#generation) {
      this.#generation = generation;
      this.#seen = 0;
      this.replies = [];
      this.calls = [];
      this.#all.clear();
      this.#callers.clear();
    }
    // The last delta may have been merged with later ones since.
    if (events[this.#seen - 1]?.type.endsWith("_DELTA")) this.#seen -= 1;
    for (; this.#seen < events.length; this.#seen++) {
      const event = events[this.#seen];
      if (event !== undefined) this.#push(event, seqs[this.#seen] ?? 0, times[this.#seen] ?? 0);
    }
    return this;
  }

  #push(event: Event, seq: number, at: number): void {
    const { reply_id } = event as { reply_id?: string };
    if (!reply_id || event.type === "CUSTOM") return;
    if (event.type.endsWith("_DELTA")) return this.#delta(reply_id, seq, at);
    const reply = this.#reply(event, reply_id, seq, at);
    reply.last = seq;
    if (/^(?:TEXT|THINKING|DATA|TOOL_CALL)_/.test(event.type)) this.#delta(reply_id, seq, at);
    const begin = (doing: Doing, label: string, call = "") =>
      void reply.spans.push({
        doing,
        label,
        from: at,
        to: null,
        seq,
        last: seq,
        call,
        firstToken: null,
        input: 0,
        output: 0,
        cost: null,
        state: "",
      });
    const end = (doing: Doing, call = "", state = ""): Span | undefined => {
      const open = reply.spans.findLast((span) => span.to === null && span.doing === doing && span.call === call);
      if (open !== undefined) Object.assign(open, { to: at, last: seq, state });
      return open;
    };
    switch (event.type) {
      case "REPLY_START":
        reply.name ||= event.name ?? "";
        break;
      case "MODEL_CALL_START":
        // A model call that a crash interrupted is made again.
        end("model");
        begin("model", event.model_name || "model");
        break;
      case "MODEL_CALL_END": {
        const span = end("model", "", event.error ? "error" : (event.finished_reason ?? "completed"));
        const cost = event.metadata?.["cost"];
        const [input, output] = [event.input_tokens ?? 0, event.output_tokens ?? 0];
        if (span !== undefined) Object.assign(span, { input, output, cost: typeof cost === "number" ? cost : null });
        if (typeof cost === "number") reply.cost = (reply.cost ?? 0) + cost;
        for (const key of Object.keys(reply.usage) as (keyof Usage)[]) reply.usage[key] += event[key] ?? 0;
        this.calls.push({ at, seq, input, output });
        break;
      }
      case "TOOL_CALL_START":
        this.#callers.set(event.tool_call_id, reply);
        break;
      case "TOOL_RESULT_START":
        end("wait", event.tool_call_id);
        begin("tool", event.tool_call_name || "tool", event.tool_call_id);
        break;
      case "TOOL_RESULT_END":
        end("tool", event.tool_call_id, event.state ?? "");
        end("wait", event.tool_call_id);
        break;
      case "REQUIRE_USER_CONFIRM":
      case "REQUIRE_EXTERNAL_EXECUTION":
        for (const { id, name } of event.tool_calls) begin("wait", name || "a person", id);
        break;
      case "USER_CONFIRM_RESULT":
        for (const { tool_call, confirmed } of event.confirm_results)
          end("wait", tool_call.id, isTimeout(event) ? "expired" : confirmed ? "allowed" : "denied");
        break;
      case "EXTERNAL_EXECUTION_RESULT":
        for (const { id } of event.execution_results) end("wait", id);
        break;
      case "REPLY_END":
        for (const span of reply.spans)
          if (span.to === null) Object.assign(span, { to: at, last: seq, state: "stopped" });
        reply.to = at;
        reply.reason = event.finished_reason ?? "completed";
        break;
    }
  }

  /** Output of a model: the first counts. It belongs to whatever runs. */
  #delta(reply_id: string, seq: number, at: number): void {
    const reply = this.#all.get(reply_id);
    if (reply === undefined) return;
    reply.last = seq;
    const span = reply.spans.findLast(({ to }) => to === null);
    if (span === undefined) return;
    span.last = seq;
    if (span.doing === "model") span.firstToken ??= at;
  }

  #reply(event: Event, id: string, seq: number, at: number): Reply {
    let reply = this.#all.get(id);
    if (reply === undefined) {
      const usage = { input_tokens: 0, output_tokens: 0, cache_input_tokens: 0, cache_creation_input_tokens: 0 };
      reply = {
        id,
        name: "",
        seq,
        last: seq,
        cost: null,
        from: at,
        to: null,
        reason: "",
        spans: [],
        usage,
        call: event.parent_tool_call_id ?? "",
        children: [],
      };
      this.#all.set(id, reply);
      const caller = this.#callers.get(event.parent_tool_call_id ?? "");
      (caller?.children ?? this.replies).push(reply);
    }
    return reply;
  }
}

/** A reply with all nested replies, and their depth. */
export function flatten(reply: Reply, depth = 0): { reply: Reply; depth: number }[] {
  return [{ reply, depth }, ...reply.children.flatMap((child) => flatten(child, depth + 1))];
}

/** One row of the trace: a reply, or a step of one. */
export interface Line {
  doing: Doing | "agent" | "reply";
  label: string;
  from: number;
  to: number | null;
  /** Its events. */
  seq: number;
  last: number;
  depth: number;
  reply: string;
  call: string;
  firstToken: number | null;
  input: number;
  output: number;
  cost: number | null;
  state: string;
  /** The reply whose time axis it shares. */
  root: Reply;
}

/** A reply with all its steps in order, those of its sub-agents below the call they work for. */
export function lines(reply: Reply, root = reply, depth = 0): Line[] {
  const { input_tokens, output_tokens } = tokens(reply);
  const head: Line = {
    doing: depth === 0 ? "reply" : "agent",
    label: reply.name || (depth === 0 ? "reply" : "sub-agent"),
    from: reply.from,
    to: reply.to,
    seq: reply.seq,
    last: reply.last,
    depth,
    reply: reply.id,
    call: "",
    firstToken: null,
    input: input_tokens,
    output: output_tokens,
    cost: costOf(reply),
    state: reply.to === null ? "" : reply.reason,
    root,
  };
  const below = (child: Reply): Line[] => lines(child, root, depth + 2);
  const ran = new Set(reply.spans.flatMap(({ doing, call }) => (doing === "tool" ? [call] : [])));
  return [
    head,
    ...reply.spans.flatMap((span) => [
      { ...span, depth: depth + 1, reply: reply.id, root },
      ...(span.doing === "tool" ? reply.children.filter((child) => child.call === span.call).flatMap(below) : []),
    ]),
    // A call that never ran has no result; but a log may contain anything.
    ...reply.children.filter(({ call }) => !ran.has(call)).flatMap(below),
  ];
}

/** The cost of a reply with its sub-agents, as charged; null if nothing was. */
export function costOf(reply: Reply): number | null {
  return reply.children.map(costOf).reduce((sum, part) => (part === null ? sum : (sum ?? 0) + part), reply.cost);
}

/** The tokens of a reply and all nested replies. */
export function tokens(reply: Reply): Usage {
  const sum = { ...reply.usage };
  for (const child of reply.children) {
    const inside = tokens(child);
    for (const key of Object.keys(sum) as (keyof Usage)[]) sum[key] += inside[key];
  }
  return sum;
}

const isTimeout = ({ metadata }: Event): boolean => metadata?.["reason"] === "timeout";

export interface Split {
  model: number;
  tool: number;
  wait: number;
  other: number;
}

/**
 * Where the time of a reply went, in milliseconds; all of it together is how long it took. Of what happens
 * at the same time a model counts before a tool, and a tool before waiting: a tool that asks a sub-agent is
 * that one's model, and who waits while a tool runs waits for nothing.
 */
export function splitTime(reply: Reply, now: number): Split {
  const found: Split = { model: 0, tool: 0, wait: 0, other: 0 };
  const end = Math.max(reply.from, reply.to ?? now);
  const inside = (at: number) => Math.min(Math.max(at, reply.from), end);
  const edges: { at: number; doing: Doing; by: 1 | -1 }[] = [];
  for (const { doing, from, to } of flatten(reply).flatMap((each) => each.reply.spans)) {
    edges.push({ at: inside(from), doing, by: 1 }, { at: inside(to ?? now), doing, by: -1 });
  }
  edges.sort((a, b) => a.at - b.at);
  const open = { model: 0, tool: 0, wait: 0 };
  let before = reply.from;
  const upTo = (at: number) => {
    found[open.model > 0 ? "model" : open.tool > 0 ? "tool" : open.wait > 0 ? "wait" : "other"] += at - before;
    before = at;
  };
  for (const { at, doing, by } of edges) {
    upTo(at);
    open[doing] += by;
  }
  upTo(end);
  return found;
}
