// What a message shows, in order: a call and its result are one thing, and the sub-agents that a call has
// set to work are inside it.
import type { AgentMessage } from "turnwire";
import type {
  ContentBlock,
  DataBlock,
  HintBlock,
  MsgJson,
  TextBlock,
  ThinkingBlock,
  ToolCall,
  ToolResult,
} from "turnwire/message";
import { sentence } from "../sentence.ts";

export type Item =
  | { kind: "text"; key: string; block: TextBlock }
  | { kind: "thinking"; key: string; block: ThinkingBlock }
  | { kind: "data"; key: string; block: DataBlock }
  | { kind: "hint"; key: string; block: HintBlock }
  | { kind: "tool"; key: string; call: ToolCall | null; result: ToolResult | null }
  | { kind: "other"; key: string; block: { type: string } };

/** The blocks of a message as items. */
export function toItems(content: readonly ContentBlock[]): Item[] {
  const results = new Map<string, ToolResult>();
  const calls = new Set<string>();
  for (const block of content) {
    if (block.type === "tool_result") results.set(block.id, block);
    if (block.type === "tool_call") calls.add(block.id);
  }
  return content.flatMap((block, at): Item[] => {
    const key = `${block.type}:${block.id ?? at}`;
    switch (block.type) {
      case "text":
        return block.text === "" ? [] : [{ kind: "text", key, block }];
      case "thinking":
        return [{ kind: "thinking", key, block }];
      case "data":
      case "image":
      case "audio":
      case "video":
        return [{ kind: "data", key, block }];
      case "hint":
        return [{ kind: "hint", key, block }];
      case "tool_call":
        return [{ kind: "tool", key, call: block, result: results.get(block.id) ?? null }];
      case "tool_result":
        return calls.has(block.id) ? [] : [{ kind: "tool", key, call: null, result: block }];
      default:
        return [{ kind: "other", key, block: block as { type: string } }];
    }
  });
}

/** The messages of sub-agents, by the tool call they work for; under `''` if that is unknown. */
export function groupBySubAgentCall(
  messages: readonly MsgJson[],
  agents: readonly AgentMessage[],
): Map<string, MsgJson[]> {
  const nested = new Map<string, MsgJson[]>();
  const all = [...messages, ...agents.map(({ message }) => message)];
  for (const { message, parent_tool_call_id } of agents) {
    const call = parent_tool_call_id ?? callRunningAt(all, message) ?? "";
    nested.set(call, [...(nested.get(call) ?? []), message]);
  }
  return nested;
}

/** The latest call that was running when this message began. */
function callRunningAt(messages: readonly MsgJson[], { id, created_at }: MsgJson): string | null {
  const at = Date.parse(created_at ?? "");
  let found: { id: string; from: number } | null = null;
  for (const message of messages) {
    if (message.id === id) continue;
    for (const block of message.content) {
      if (block.type !== "tool_result") continue;
      const from = Date.parse(block.created_at ?? "");
      const to = Date.parse(block.finished_at || message.finished_at || "") || Infinity;
      if (from <= at && at <= to && (found === null || from >= found.from)) found = { id: block.id, from };
    }
  }
  return found?.id ?? null;
}

/** Replies that a retry replaced, by the message they stood before; at the end: `''`. */
export function groupReplaced(messages: readonly MsgJson[], all: readonly MsgJson[]): Map<string, MsgJson[]> {
  const shown = new Set(messages.map(({ id }) => id));
  const found = new Map<string, MsgJson[]>();
  let waiting: MsgJson[] = [];
  for (const message of all) {
    if (!shown.has(message.id)) waiting.push(message);
    else if (waiting.length > 0) {
      found.set(message.id ?? "", waiting);
      waiting = [];
    }
  }
  if (waiting.length > 0) found.set("", waiting);
  return found;
}

/** The state of a call, as a label. An expired question is nobody's decision. */
export function stateOf(
  call: ToolCall | null,
  result: ToolResult | null,
  isExpired = false,
): { word: string; tone: "run" | "ok" | "bad" | "wait" | "idle" } {
  if (isExpired && (result === null || result.state === "denied")) return { word: "Expired", tone: "bad" };
  switch (result?.state) {
    case "success":
      return { word: "Done", tone: "ok" };
    case "error":
      return { word: "Failed", tone: "bad" };
    case "denied":
      return { word: "Denied", tone: "bad" };
    case "interrupted":
      return { word: "Interrupted", tone: "bad" };
  }
  switch (call?.state) {
    case "asking":
      return { word: "Waiting for you", tone: "wait" };
    case "submitted":
      return { word: "Waiting for a client", tone: "wait" };
    case "finished":
      return result === null ? { word: "Denied", tone: "bad" } : { word: "Running", tone: "run" };
    case "pending":
      if (result === null)
        return call.finished_at == null ? { word: "Writing its input", tone: "run" } : { word: "Called", tone: "idle" };
  }
  return result?.state === "running" || call?.state === "allowed"
    ? { word: "Running", tone: "run" }
    : { word: sentence(result?.state ?? call?.state ?? ""), tone: "idle" };
}

const FINISH_LABELS: Record<string, string> = {
  interrupted: "Stopped",
  exceed_max_iters: "Iteration limit reached",
  length: "Output limit reached",
  refusal: "Refused",
  content_filter: "Filtered",
};

/** How a reply ended, in words. */
export function finishLabel(reason: string): string {
  return FINISH_LABELS[reason] ?? sentence(reason.replaceAll("_", " "));
}

export interface Spent {
  input: number;
  output: number;
  /** As charged at the time; null if nothing was. */
  cost: number | null;
  /** How many messages of sub-agents are included. */
  agents: number;
}

/** Tokens and cost of a reply with all its sub-agents. */
export function totalSpent(message: MsgJson, nested: ReadonlyMap<string, MsgJson[]>, depth = 0): Spent {
  const { usage, metadata } = message;
  const own = metadata?.["cost"];
  const sum: Spent = {
    input: usage?.input_tokens ?? 0,
    output: usage?.output_tokens ?? 0,
    cost: typeof own === "number" ? own : null,
    agents: 0,
  };
  if (depth > 8) return sum;
  for (const block of message.content) {
    if (block.type !== "tool_call") continue;
    for (const agent of nested.get(block.id) ?? []) {
      const part = totalSpent(agent, nested, depth + 1);
      sum.input += part.input;
      sum.output += part.output;
      if (part.cost !== null) sum.cost = (sum.cost ?? 0) + part.cost;
      sum.agents += 1 + part.agents;
    }
  }
  return sum;
}
