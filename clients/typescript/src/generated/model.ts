// Written by `TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test typescript` from the Rust types.
// Changes belong there.

/** An object whose entries are anything. */
export type Fields = Record<string, unknown>;

/** A word that this version may not know; those that it knows are offered. */
export type Word<W extends string> = W | (string & {});

/** Who speaks. */
export type Role = "user" | "assistant" | "system" | "tool";

/** How far a tool call has come. */
export type ToolCallState = Word<"pending" | "asking" | "allowed" | "submitted" | "finished">;

/** What came of a tool call. */
export type ToolResultState = Word<"running" | "success" | "error" | "interrupted" | "denied">;

/** Why a reply, or a model call, ended. */
export type FinishedReason = Word<"completed" | "interrupted" | "exceed_max_iters" | "error" | "length" | "tool_calls" | "refusal" | "content_filter" | "truncated">;

/** What kind of error ended a reply. */
export type ErrorType = Word<"authentication" | "permission" | "rate_limit" | "invalid_request" | "upstream" | "connection" | "internal" | "setup" | "unknown">;

/** What a permission rule does. */
export type Behavior = Word<"allow" | "deny" | "ask" | "passthrough">;

/** Plain text. */
export interface TextBlock {
  type: "text";
  /** The text. */
  text: string;
  /** The block's id; empty where it has none. */
  id?: string;
  /** When it began; empty where that is not known. */
  created_at?: string;
  /** When it ended. */
  finished_at?: string | null;
}

/** The model's reasoning. What the provider adds (`signature`, `redacted_thinking_data`, …) is in `rest`. */
export interface ThinkingBlock {
  type: "thinking";
  /** The reasoning. */
  thinking: string;
  /** The block's id; empty where it has none. */
  id?: string;
  /** When it began; empty where that is not known. */
  created_at?: string;
  /** When it ended. */
  finished_at?: string | null;
  /** What the provider adds, such as `signature`. */
  [extra: string]: unknown;
}

/** Something put into the loop from outside: a trigger, a team message, a background result. */
export interface HintBlock {
  type: "hint";
  /** What it says. */
  hint: Payload;
  /** The block's id; empty where it has none. */
  id?: string;
  /** Where it comes from, often a small JSON text for the front end. */
  source?: string | null;
  /** When it came; empty where that is not known. */
  created_at?: string;
  /** When it ended. */
  finished_at?: string | null;
}

/** A call of a tool. */
export interface ToolCall {
  type: "tool_call";
  /** The call's id, which its result repeats. */
  id: string;
  /** Which tool. */
  name: string;
  /** The arguments: JSON text, as the model wrote it. */
  input: string;
  /** How far the call has come. */
  state: ToolCallState;
  /** Rules that a person may accept along with the call. */
  suggested_rules: PermissionRule[];
  /** When it began; empty where that is not known. */
  created_at?: string;
  /** When its input was complete. */
  finished_at?: string | null;
}

/** What came of a tool call. */
export interface ToolResult {
  type: "tool_result";
  /** The id of the call. */
  id: string;
  /** Which tool. */
  name: string;
  /** What it gave. */
  output: Payload;
  /** How it went. */
  state: ToolResultState;
  /** Arbitrary additions. */
  metadata: Fields;
  /** When it began; empty where that is not known. */
  created_at?: string;
  /** When it ended. */
  finished_at?: string | null;
}

/** Whether a tool may run, by its name and a pattern of its input. */
export interface PermissionRule {
  /** Which tool. */
  tool_name: string;
  /** What its input must match; what that means depends on the tool. */
  rule_content?: string | null;
  /** What the rule does. */
  behavior: Behavior;
  /** Where the rule comes from. */
  source: string;
}

/** How many tokens a reply took. */
export interface Usage {
  /** Tokens read. */
  input_tokens: number;
  /** Tokens written. */
  output_tokens: number;
  /** Tokens read from the provider's cache. */
  cache_input_tokens: number;
  /** Tokens put into the provider's cache. */
  cache_creation_input_tokens: number;
}

/** What ended a reply that failed. */
export interface ReplyError {
  /** What kind of error, for a program. */
  type: ErrorType;
  /** What happened, for a person. */
  message: string;
}

/** One person's answer about one call. */
export interface ConfirmResult {
  /** Yes or no. */
  confirmed: boolean;
  /** The call, with its input as the person left it. An empty input leaves it as it was. */
  tool_call: ToolCall;
  /** Rules that the person accepted. */
  rules?: PermissionRule[] | null;
}

/** Bytes as base64. While the block is open the last one to three characters may be the beginning of a group. */
export interface Base64Source {
  type: "base64";
  data: string;
  /** What the bytes are, such as `image/png`. */
  media_type?: string;
}

/** A URL to the bytes. */
export interface UrlSource {
  type: "url";
  url: string;
  media_type?: string;
}

export type Source = Base64Source | UrlSource;

/** Bytes (an image, sound, any file), or a URL to them. */
export interface DataBlock {
  type: "data" | "image" | "audio" | "video";
  id?: string;
  source: Source;
  /** A file's name. */
  name?: string | null;
  created_at?: string;
  finished_at?: string | null;
}

/** A block inside a hint or a tool's output. */
export type Part = TextBlock | DataBlock;

/** What a hint says or a tool gives: plain text, or text and data in order. */
export type Payload = string | Part[];

/**
 * A typed part of a message. One of a type that this version does not know is kept as it came: a `switch`
 * over `type` needs a `default`.
 */
export type ContentBlock = TextBlock | ThinkingBlock | DataBlock | HintBlock | ToolCall | ToolResult;

/** A message as JSON. */
export interface MsgJson {
  name: string;
  content: ContentBlock[];
  role: Role;
  /** The id of the reply that it came from. */
  id?: string;
  metadata: Fields;
  created_at?: string;
  usage: Usage | null;
  finished_at: string | null;
  finished_reason: FinishedReason | null;
  structured_output: unknown;
  error: ReplyError | null;
}

/** What every event has. */
export interface EventBase {
  id?: string;
  created_at?: string;
  metadata?: Fields;
  /** Its place in the session's log, from 1. */
  seq?: number;
  /** The first of the places that it covers, where several events were merged into this one. */
  seq_from?: number;
  /** The agents from the outermost to this one, such as `main/researcher`. */
  agent_path?: string;
  /** The call, in the reply of the agent above, that this one works for. */
  parent_tool_call_id?: string;
}

/** A block's text goes on. */
export interface TextBlockDeltaEvent extends EventBase {
  type: "TEXT_BLOCK_DELTA";
  reply_id: string;
  /** Which block. */
  block_id: string;
  /** The text to append. */
  delta: string;
}

/** A thinking block goes on. */
export interface ThinkingBlockDeltaEvent extends EventBase {
  type: "THINKING_BLOCK_DELTA";
  reply_id: string;
  /** Which block. */
  block_id: string;
  /** The reasoning to append. */
  delta: string;
}

/** A tool call's input goes on. */
export interface ToolCallDeltaEvent extends EventBase {
  type: "TOOL_CALL_DELTA";
  reply_id: string;
  /** Which call. */
  tool_call_id: string;
  /** The JSON fragment to append. */
  delta: string;
}

/** A tool's output goes on with text. */
export interface ToolResultTextDeltaEvent extends EventBase {
  type: "TOOL_RESULT_TEXT_DELTA";
  reply_id: string;
  /** Which call's result. */
  tool_call_id: string;
  /** The text to append. */
  delta: string;
}

/** A reply begins, or goes on after a pause: then it changes nothing. */
export interface ReplyStartEvent extends EventBase {
  type: "REPLY_START";
  reply_id: string;
  /** The session. */
  session_id: string;
  /** Who replies. */
  name: string;
  /** In which role. */
  role: Role;
}

/** A reply ends. Nothing comes after it. */
export interface ReplyEndEvent extends EventBase {
  type: "REPLY_END";
  reply_id: string;
  /** The session. */
  session_id: string;
  /** Why. */
  finished_reason: FinishedReason;
  /** What went wrong, if it failed. */
  error?: ReplyError | null;
  /** Its structured output. */
  structured_output?: unknown;
  /** What becomes the message's metadata. */
  message_metadata?: Fields;
}

/** A model is called. */
export interface ModelCallStartEvent extends EventBase {
  type: "MODEL_CALL_START";
  reply_id: string;
  /** Which model. */
  model_name: string;
}

/** A model has answered, or failed to. */
export interface ModelCallEndEvent extends EventBase {
  type: "MODEL_CALL_END";
  reply_id: string;
  input_tokens: number;
  output_tokens: number;
  cache_input_tokens: number;
  cache_creation_input_tokens: number;
  /** Why it ended. */
  finished_reason: FinishedReason;
  /** What went wrong, if it failed. */
  error?: ReplyError;
  /** Blocks to take out again, when the call is repeated after a crash. */
  discard?: string[];
}

/** A text block begins. */
export interface TextBlockStartEvent extends EventBase {
  type: "TEXT_BLOCK_START";
  reply_id: string;
  /** Its id. */
  block_id: string;
}

/** A text block ends. */
export interface TextBlockEndEvent extends EventBase {
  type: "TEXT_BLOCK_END";
  reply_id: string;
  /** Which block. */
  block_id: string;
  /** The whole text, where it is not what the deltas gave: a voice reply cut short. */
  text?: string | null;
  /** Fields for the block. */
  extra?: Fields;
}

/** A thinking block begins. */
export interface ThinkingBlockStartEvent extends EventBase {
  type: "THINKING_BLOCK_START";
  reply_id: string;
  /** Its id. */
  block_id: string;
}

/** A thinking block ends. */
export interface ThinkingBlockEndEvent extends EventBase {
  type: "THINKING_BLOCK_END";
  reply_id: string;
  /** Which block. */
  block_id: string;
  /** Fields for the block, such as its signature. */
  extra?: Fields;
}

/** A data block begins. */
export interface DataBlockStartEvent extends EventBase {
  type: "DATA_BLOCK_START";
  reply_id: string;
  /** Its id. */
  block_id: string;
  /** What the bytes are. */
  media_type?: string;
  /** A file's name. */
  name?: string | null;
}

/** A data block goes on with bytes, or is elsewhere. */
export interface DataBlockDeltaEvent extends EventBase {
  type: "DATA_BLOCK_DELTA";
  reply_id: string;
  /** Which block. */
  block_id: string;
  /** What the bytes are. */
  media_type?: string;
  /** Base64, cut anywhere. */
  data?: string | null;
  /** Where the bytes are, instead. */
  url?: string | null;
}

/** A data block ends. */
export interface DataBlockEndEvent extends EventBase {
  type: "DATA_BLOCK_END";
  reply_id: string;
  /** Which block. */
  block_id: string;
  /** Fields for the block. */
  extra?: Fields;
}

/** A hint, whole. */
export interface HintEvent extends EventBase {
  type: "HINT_BLOCK";
  reply_id: string;
  /** The block's id. */
  block_id: string;
  /** Where it comes from. */
  source?: string | null;
  /** What it says. */
  hint: Payload;
}

/** A tool call begins. */
export interface ToolCallStartEvent extends EventBase {
  type: "TOOL_CALL_START";
  reply_id: string;
  /** The call's id. */
  tool_call_id: string;
  /** Which tool. */
  tool_call_name: string;
}

/** A tool call's input is complete. */
export interface ToolCallEndEvent extends EventBase {
  type: "TOOL_CALL_END";
  reply_id: string;
  /** Which call. */
  tool_call_id: string;
  /** Fields for the block. */
  extra?: Fields;
}

/** A tool starts. */
export interface ToolResultStartEvent extends EventBase {
  type: "TOOL_RESULT_START";
  reply_id: string;
  /** For which call. */
  tool_call_id: string;
  /** Which tool. */
  tool_call_name: string;
}

/** A tool's output goes on with bytes, or with a URL. */
export interface ToolResultDataDeltaEvent extends EventBase {
  type: "TOOL_RESULT_DATA_DELTA";
  reply_id: string;
  /** Which call's result. */
  tool_call_id: string;
  /** Which data block of the output. Empty: a new one. */
  block_id: string;
  /** What the bytes are. */
  media_type?: string;
  /** Base64, cut anywhere. */
  data?: string | null;
  /** Where the bytes are, instead. */
  url?: string | null;
}

/** A tool is done. The event's metadata becomes the result's. */
export interface ToolResultEndEvent extends EventBase {
  type: "TOOL_RESULT_END";
  reply_id: string;
  /** For which call. */
  tool_call_id: string;
  /** How it went. */
  state: ToolResultState;
}

/** The agent has gone round as often as it may. Deprecated, still sent. */
export interface ExceedMaxItersEvent extends EventBase {
  type: "EXCEED_MAX_ITERS";
  reply_id: string;
  /** Which agent. */
  name: string;
}

/** Calls that wait for a person. */
export interface RequireUserConfirmEvent extends EventBase {
  type: "REQUIRE_USER_CONFIRM";
  reply_id: string;
  /** Which calls. */
  tool_calls: ToolCall[];
}

/** Calls that someone outside executes. */
export interface RequireExternalExecutionEvent extends EventBase {
  type: "REQUIRE_EXTERNAL_EXECUTION";
  reply_id: string;
  /** Which calls. */
  tool_calls: ToolCall[];
}

/** What a person answered. */
export interface UserConfirmResultEvent extends EventBase {
  type: "USER_CONFIRM_RESULT";
  reply_id: string;
  /** One answer per call. */
  confirm_results: ConfirmResult[];
}

/** What came of the calls executed outside. */
export interface ExternalExecutionResultEvent extends EventBase {
  type: "EXTERNAL_EXECUTION_RESULT";
  reply_id: string;
  /** The results. */
  execution_results: ToolResult[];
}

/** A person stops the reply. */
export interface UserInterruptEvent extends EventBase {
  type: "USER_INTERRUPT";
  reply_id: string;
}

/** Anything else that an application wants to tell its front end. */
export interface CustomEvent extends EventBase {
  type: "CUSTOM";
  reply_id?: string;
  /** What it is about. */
  name: string;
  /** The rest of it. */
  value: unknown;
}

/** A block that no other event can build, whole. */
export interface BlockEvent extends EventBase {
  type: "BLOCK";
  reply_id: string;
  /** The block. */
  block: ContentBlock;
}

/** A whole message that is no reply: a user's, or one whose events are gone. */
export interface MessageEvent extends EventBase {
  type: "MESSAGE";
  /** The message. */
  message: MsgJson;
}

/** Messages that no longer count as history; the log keeps them. */
export interface SupersedeEvent extends EventBase {
  type: "SUPERSEDE";
  /** Their ids. */
  message_ids: string[];
}

/** The client's token leads nowhere: empty everything, it all comes again. */
export interface ResetEvent extends EventBase {
  type: "RESET";
  /** The session's epoch. */
  epoch: string;
  /** Why. */
  reason: string;
}

/** Java: a middleware or a tool wants the reply to stop early. */
export interface RequestStopEvent extends EventBase {
  type: "REQUEST_STOP";
  reply_id?: string;
  /** Why, for a person. */
  reason?: string;
  /** Why, as Java names it. */
  generate_reason?: string;
}

/** Java: every call of a round was denied. */
export interface AllToolsDeniedEvent extends EventBase {
  type: "ALL_TOOLS_DENIED";
  reply_id?: string;
  /** The calls. */
  denied_tool_calls: ToolCall[];
}

/** Java: a sub-agent can be talked to. */
export interface SubagentExposedEvent extends EventBase {
  type: "SUBAGENT_EXPOSED";
  reply_id?: string;
  /** The session that it has. */
  session_id: string;
  /** The sub-agent. */
  subagent_id: string;
  /** The agent it is. */
  agent_id: string;
  /** Its name for people. */
  label?: string;
}

/** One increment of a reply, or an input to it. One of a type that this version does not know is handed on, too. */
export type Event =
  | TextBlockDeltaEvent
  | ThinkingBlockDeltaEvent
  | ToolCallDeltaEvent
  | ToolResultTextDeltaEvent
  | ReplyStartEvent
  | ReplyEndEvent
  | ModelCallStartEvent
  | ModelCallEndEvent
  | TextBlockStartEvent
  | TextBlockEndEvent
  | ThinkingBlockStartEvent
  | ThinkingBlockEndEvent
  | DataBlockStartEvent
  | DataBlockDeltaEvent
  | DataBlockEndEvent
  | HintEvent
  | ToolCallStartEvent
  | ToolCallEndEvent
  | ToolResultStartEvent
  | ToolResultDataDeltaEvent
  | ToolResultEndEvent
  | ExceedMaxItersEvent
  | RequireUserConfirmEvent
  | RequireExternalExecutionEvent
  | UserConfirmResultEvent
  | ExternalExecutionResultEvent
  | UserInterruptEvent
  | CustomEvent
  | BlockEvent
  | MessageEvent
  | SupersedeEvent
  | ResetEvent
  | RequestStopEvent
  | AllToolsDeniedEvent
  | SubagentExposedEvent;

/** The types of events. */
export const EventType = /* @__PURE__ */ Object.freeze({
  TEXT_BLOCK_DELTA: "TEXT_BLOCK_DELTA",
  THINKING_BLOCK_DELTA: "THINKING_BLOCK_DELTA",
  TOOL_CALL_DELTA: "TOOL_CALL_DELTA",
  TOOL_RESULT_TEXT_DELTA: "TOOL_RESULT_TEXT_DELTA",
  REPLY_START: "REPLY_START",
  REPLY_END: "REPLY_END",
  MODEL_CALL_START: "MODEL_CALL_START",
  MODEL_CALL_END: "MODEL_CALL_END",
  TEXT_BLOCK_START: "TEXT_BLOCK_START",
  TEXT_BLOCK_END: "TEXT_BLOCK_END",
  THINKING_BLOCK_START: "THINKING_BLOCK_START",
  THINKING_BLOCK_END: "THINKING_BLOCK_END",
  DATA_BLOCK_START: "DATA_BLOCK_START",
  DATA_BLOCK_DELTA: "DATA_BLOCK_DELTA",
  DATA_BLOCK_END: "DATA_BLOCK_END",
  HINT_BLOCK: "HINT_BLOCK",
  TOOL_CALL_START: "TOOL_CALL_START",
  TOOL_CALL_END: "TOOL_CALL_END",
  TOOL_RESULT_START: "TOOL_RESULT_START",
  TOOL_RESULT_DATA_DELTA: "TOOL_RESULT_DATA_DELTA",
  TOOL_RESULT_END: "TOOL_RESULT_END",
  EXCEED_MAX_ITERS: "EXCEED_MAX_ITERS",
  REQUIRE_USER_CONFIRM: "REQUIRE_USER_CONFIRM",
  REQUIRE_EXTERNAL_EXECUTION: "REQUIRE_EXTERNAL_EXECUTION",
  USER_CONFIRM_RESULT: "USER_CONFIRM_RESULT",
  EXTERNAL_EXECUTION_RESULT: "EXTERNAL_EXECUTION_RESULT",
  USER_INTERRUPT: "USER_INTERRUPT",
  CUSTOM: "CUSTOM",
  BLOCK: "BLOCK",
  MESSAGE: "MESSAGE",
  SUPERSEDE: "SUPERSEDE",
  RESET: "RESET",
  REQUEST_STOP: "REQUEST_STOP",
  ALL_TOOLS_DENIED: "ALL_TOOLS_DENIED",
  SUBAGENT_EXPOSED: "SUBAGENT_EXPOSED",
});
export type EventType = Event["type"];

/**
 * How a field is read: whether it has to be there (`!` needed, `=` has a default, `?` is null without,
 * `-` is left out without, `~` the same and also when it is empty), what it is (`s` text, `n` number, `b`
 * yes or no, `r` role, `o` object, `j` anything, `S` texts, `p` payload, `O` an object
 * of a shape, `L` several), and its default or shape.
 */
export type Shape = Record<string, string>;

export const OBJECTS: Record<string, Shape> = {
  TextBlock: { text: "!s", id: "~s", created_at: "~s", finished_at: "?s" },
  ThinkingBlock: { thinking: "!s", id: "~s", created_at: "~s", finished_at: "?s" },
  HintBlock: { hint: "!p", id: "~s", source: "?s", created_at: "~s", finished_at: "?s" },
  ToolCall: { id: "!s", name: "=s", input: "=s", state: "=spending", suggested_rules: "=LPermissionRule", created_at: "~s", finished_at: "?s" },
  ToolResult: { id: "!s", name: "=s", output: "=p", state: "=srunning", metadata: "=o", created_at: "~s", finished_at: "?s" },
  PermissionRule: { tool_name: "!s", rule_content: "?s", behavior: "=sask", source: "=s" },
  Usage: { input_tokens: "=n", output_tokens: "=n", cache_input_tokens: "=n", cache_creation_input_tokens: "=n" },
  ReplyError: { type: "=sunknown", message: "=s" },
  ConfirmResult: { confirmed: "!b", tool_call: "!OToolCall", rules: "?LPermissionRule" },
};

export const EVENTS: Record<string, Shape> = {
  TEXT_BLOCK_DELTA: { block_id: "!s", delta: "!s" },
  THINKING_BLOCK_DELTA: { block_id: "!s", delta: "!s" },
  TOOL_CALL_DELTA: { tool_call_id: "!s", delta: "!s" },
  TOOL_RESULT_TEXT_DELTA: { tool_call_id: "!s", delta: "!s" },
  REPLY_START: { session_id: "=s", name: "=s", role: "=rassistant" },
  REPLY_END: { session_id: "=s", finished_reason: "=scompleted", error: "?OReplyError", structured_output: "-j", message_metadata: "-o" },
  MODEL_CALL_START: { model_name: "=s" },
  MODEL_CALL_END: { input_tokens: "=n", output_tokens: "=n", cache_input_tokens: "=n", cache_creation_input_tokens: "=n", finished_reason: "=scompleted", error: "-OReplyError", discard: "-S" },
  TEXT_BLOCK_START: { block_id: "!s" },
  TEXT_BLOCK_END: { block_id: "!s", text: "?s", extra: "-o" },
  THINKING_BLOCK_START: { block_id: "!s" },
  THINKING_BLOCK_END: { block_id: "!s", extra: "-o" },
  DATA_BLOCK_START: { block_id: "!s", media_type: "-s", name: "?s" },
  DATA_BLOCK_DELTA: { block_id: "!s", media_type: "-s", data: "-s", url: "-s" },
  DATA_BLOCK_END: { block_id: "!s", extra: "-o" },
  HINT_BLOCK: { block_id: "!s", source: "?s", hint: "!p" },
  TOOL_CALL_START: { tool_call_id: "!s", tool_call_name: "=s" },
  TOOL_CALL_END: { tool_call_id: "!s", extra: "-o" },
  TOOL_RESULT_START: { tool_call_id: "!s", tool_call_name: "=s" },
  TOOL_RESULT_DATA_DELTA: { tool_call_id: "!s", block_id: "=s", media_type: "-s", data: "-s", url: "-s" },
  TOOL_RESULT_END: { tool_call_id: "!s", state: "!srunning" },
  EXCEED_MAX_ITERS: { name: "=s" },
  REQUIRE_USER_CONFIRM: { tool_calls: "!LToolCall" },
  REQUIRE_EXTERNAL_EXECUTION: { tool_calls: "!LToolCall" },
  USER_CONFIRM_RESULT: { confirm_results: "!LConfirmResult" },
  EXTERNAL_EXECUTION_RESULT: { execution_results: "!LToolResult" },
  USER_INTERRUPT: {},
  CUSTOM: { name: "!s", value: "=j" },
  BLOCK: { block: "!OContentBlock" },
  MESSAGE: { message: "!OMsg" },
  SUPERSEDE: { message_ids: "!S" },
  RESET: { epoch: "=s", reason: "=s" },
  REQUEST_STOP: { reason: "-s", generate_reason: "-s" },
  ALL_TOOLS_DENIED: { denied_tool_calls: "=LToolCall" },
  SUBAGENT_EXPOSED: { session_id: "=s", subagent_id: "=s", agent_id: "=s", label: "-s" },
};
