// The kind of an event, and a one-line summary.
import { type Event, textOf } from "turnwire/message";

export const KINDS = ["text", "tool", "human", "model", "reply", "other"] as const;
export type Kind = (typeof KINDS)[number];

export const ABOUT: Record<Kind, string> = {
  text: "Text, thinking, data and hints",
  tool: "Tool calls and results",
  human: "Messages, approvals and decisions",
  model: "Model calls",
  reply: "Start and end of replies",
  other: "Everything else",
};

/** What the kinds are called on the page. */
export const KIND_LABELS: Record<Kind, string> = {
  text: "Text",
  tool: "Tools",
  human: "People",
  model: "Models",
  reply: "Replies",
  other: "Other",
};

export function kindOf(type: string): Kind {
  if (/^(?:MESSAGE|USER_|REQUIRE_|EXTERNAL_)/.test(type)) return "human";
  if (/^TOOL_/.test(type)) return "tool";
  if (/^(?:TEXT_|THINKING_|DATA_|HINT_|BLOCK$)/.test(type)) return "text";
  if (/^MODEL_/.test(type)) return "model";
  if (/^(?:REPLY_|EXCEED_|REQUEST_STOP)/.test(type)) return "reply";
  return "other";
}

/** Longer than a row. */
const LONG = 120;

/** One line that summarises a group of events by its content. */
export function summarizeEvents(events: readonly Event[], from: number, to: number): string {
  const event = events[from];
  if (event === undefined) return "";
  let text = "";
  if (isDelta(event.type)) {
    for (let at = from; at < to && text.length < LONG; at++) text += deltaOf(events[at]);
  } else {
    text = summarize(event) ?? "";
  }
  const line = text.slice(0, LONG).replace(/\s+/g, " ");
  return line.length < LONG ? line : `${line}…`;
}

export const isDelta = (type: string): boolean => type.endsWith("_DELTA");

function deltaOf(event: Event | undefined): string {
  const { delta, url, data } = (event ?? {}) as { delta?: unknown; url?: unknown; data?: unknown };
  if (typeof delta === "string") return delta;
  if (typeof url === "string") return url;
  return typeof data === "string" ? `${Math.floor((data.length * 3) / 4)} bytes ` : "";
}

/** Fields that an external agent left out are undefined. */
function summarize(event: Event): string | undefined {
  switch (event.type) {
    case "MESSAGE": {
      const { role, content } = event.message;
      const text = textOf(event.message) ?? content.map(({ type }) => type).join(", ");
      return `${role}: ${text}`;
    }
    case "REPLY_START":
      return event.name;
    case "REPLY_END":
      return event.error ? `${event.finished_reason}: ${event.error.message}` : (event.finished_reason ?? "completed");
    case "MODEL_CALL_START":
      return event.model_name;
    case "MODEL_CALL_END":
      return event.error
        ? `${event.finished_reason}: ${event.error.message}`
        : `${event.input_tokens ?? 0} in, ${event.output_tokens ?? 0} out, ${event.finished_reason ?? "completed"}`;
    case "TOOL_CALL_START":
    case "TOOL_RESULT_START":
      return event.tool_call_name;
    case "TOOL_RESULT_END":
      return event.state;
    case "DATA_BLOCK_START":
      return [event.media_type, event.name].filter(Boolean).join(" ");
    case "HINT_BLOCK":
      return typeof event.hint === "string" ? event.hint : (event.source ?? "");
    case "BLOCK":
      return event.block.type;
    case "REQUIRE_USER_CONFIRM":
    case "REQUIRE_EXTERNAL_EXECUTION":
      return event.tool_calls.map(({ name, input }) => `${name ?? ""} ${input ?? ""}`).join(", ");
    case "USER_CONFIRM_RESULT":
      return event.confirm_results
        .map(({ confirmed, tool_call }) => `${confirmed ? "allowed" : "denied"} ${tool_call.input ?? ""}`)
        .join(", ");
    case "EXTERNAL_EXECUTION_RESULT":
      return event.execution_results.map(({ name, state }) => `${name ?? ""} ${state ?? ""}`).join(", ");
    case "CUSTOM":
      return event.name;
    case "SUPERSEDE":
      return event.message_ids.join(", ");
    default:
      return "";
  }
}
