// Written by `TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test typescript` from the Rust types.
// Changes belong there.

/** An object with any entries. */
export type Fields = Record<string, unknown>;

/** A value that may be unknown; editors offer the known ones. */
export type Word<W extends string> = W | (string & {});

/** Role of a message's sender. */
export type Role = "user" | "assistant" | "system" | "tool";

/** State of a tool call. */
export type ToolCallState = Word<"pending" | "asking" | "allowed" | "submitted" | "finished">;

/** State of a tool result. */
export type ToolResultState = Word<"running" | "success" | "error" | "interrupted" | "denied">;

/** Why a reply, or a model call, ended. */
export type FinishedReason = Word<"completed" | "interrupted" | "exceed_max_iters" | "error" | "length" | "tool_calls" | "refusal" | "content_filter" | "truncated">;

/** Type of the error that ended a reply. */
export type ErrorType = Word<"authentication" | "permission" | "rate_limit" | "invalid_request" | "upstream" | "connection" | "internal" | "setup" | "unknown">;

/** Effect of a permission rule. */
export type Behavior = Word<"allow" | "deny" | "ask" | "passthrough">;

/** Plain text. */
export interface TextBlock {
  type: "text";
  /** The text. */
  text: string;
  /** The block's id; empty if it has none. */
  id?: string;
  /** When it started; empty if not known. */
  created_at?: string;
  /** When it ended. */
  finished_at?: string | null;
}

/** The model's reasoning. Fields of the provider (`signature`, `redacted_thinking_data`, …) are in `rest`. */
export interface ThinkingBlock {
  type: "thinking";
  /** The reasoning. */
  thinking: string;
  /** The block's id; empty if it has none. */
  id?: string;
  /** When it started; empty if not known. */
  created_at?: string;
  /** When it ended. */
  finished_at?: string | null;
  /** Fields of the provider, such as `signature`. */
  [extra: string]: unknown;
}

/** A note for a running reply: a trigger, a message of another agent, a background result. */
export interface HintBlock {
  type: "hint";
  /** Content of the hint. */
  hint: Payload;
  /** The block's id; empty if it has none. */
  id?: string;
  /** Where the hint comes from, often a small JSON text for the front end. */
  source?: string | null;
  /** When it was added; empty if not known. */
  created_at?: string;
  /** When it ended. */
  finished_at?: string | null;
}

/** A call of a tool. */
export interface ToolCall {
  type: "tool_call";
  /** The call's id; its result has the same. */
  id: string;
  /** Name of the tool. */
  name: string;
  /** The arguments as JSON text, as the model wrote it. */
  input: string;
  /** State of the call. */
  state: ToolCallState;
  /** Permission rules that a person may accept together with the call. */
  suggested_rules: PermissionRule[];
  /** When it started; empty if not known. */
  created_at?: string;
  /** When its input was complete. */
  finished_at?: string | null;
}

/** The result of a tool call. */
export interface ToolResult {
  type: "tool_result";
  /** The id of the call. */
  id: string;
  /** Name of the tool. */
  name: string;
  /** Output of the tool. */
  output: Payload;
  /** State of the result. */
  state: ToolResultState;
  /** Metadata. */
  metadata: Fields;
  /** When it started; empty if not known. */
  created_at?: string;
  /** When it ended. */
  finished_at?: string | null;
}

/** A permission rule: whether a tool may run, by its name and a pattern of its input. */
export interface PermissionRule {
  /** Name of the tool. */
  tool_name: string;
  /** Pattern for the input; its meaning depends on the tool. */
  rule_content?: string | null;
  /** Effect of the rule. */
  behavior: Behavior;
  /** Where the rule comes from. */
  source: string;
}

/** Tokens that a reply used. */
export interface Usage {
  /** Tokens of the input. */
  input_tokens: number;
  /** Tokens of the output. */
  output_tokens: number;
  /** Tokens read from the provider's cache. */
  cache_input_tokens: number;
  /** Tokens written to the provider's cache. */
  cache_creation_input_tokens: number;
}

/** The error of a failed reply. */
export interface ReplyError {
  /** Machine-readable type of the error. */
  type: ErrorType;
  /** What happened, for people. */
  message: string;
}

/** A person's answer to one pending call. */
export interface ConfirmResult {
  /** Whether the call is approved. */
  confirmed: boolean;
  /** The call, with the edited input. An empty input leaves the input unchanged. */
  tool_call: ToolCall;
  /** Permission rules that the person accepted. */
  rules?: PermissionRule[] | null;
}

/** Bytes as base64. While the block is open, the last one to three characters may be an incomplete group. */
export interface Base64Source {
  type: "base64";
  data: string;
  /** Media type, such as `image/png`. */
  media_type?: string;
}

/** A URL to the bytes. */
export interface UrlSource {
  type: "url";
  url: string;
  media_type?: string;
}

export type Source = Base64Source | UrlSource;

/** Bytes (an image, audio, any file), or a URL to them. */
export interface DataBlock {
  type: "data" | "image" | "audio" | "video";
  id?: string;
  source: Source;
  /** File name. */
  name?: string | null;
  created_at?: string;
  finished_at?: string | null;
}

/** A block inside a hint or a tool result. */
export type Part = TextBlock | DataBlock;

/** Content of a hint or a tool result: plain text, or text and data blocks in order. */
export type Payload = string | Part[];

/** A message as JSON. */
export interface MsgJson {
  name: string;
  content: ContentBlock[];
  role: Role;
  /** The id of the reply that the message comes from. */
  id?: string;
  metadata: Fields;
  created_at?: string;
  usage: Usage | null;
  finished_at: string | null;
  finished_reason: FinishedReason | null;
  structured_output: unknown;
  error: ReplyError | null;
}

/** Fields of every event. */
export interface EventBase {
  id?: string;
  created_at?: string;
  metadata?: Fields;
  /** Position in the session's log, from 1. */
  seq?: number;
  /** In an event that merges several: position of the first. */
  seq_from?: number;
  /** The agents from the outermost to this one, such as `main/researcher`. */
  agent_path?: string;
  /** The tool call, in the reply of the agent above, that this agent works for. */
  parent_tool_call_id?: string;
}

/**
 * A typed part of a message. Blocks of an unknown type are kept unchanged: a `switch` over `type` needs a
 * `default`.
 */
export type ContentBlock = TextBlock | ThinkingBlock | HintBlock | ToolCall | ToolResult | DataBlock;

/** Appends to the text of a text block. */
export interface TextBlockDeltaEvent extends EventBase {
  type: "TEXT_BLOCK_DELTA";
  reply_id: string;
  /** Id of the block. */
  block_id: string;
  /** The text to append. */
  delta: string;
}

/** Appends to the text of a thinking block. */
export interface ThinkingBlockDeltaEvent extends EventBase {
  type: "THINKING_BLOCK_DELTA";
  reply_id: string;
  /** Id of the block. */
  block_id: string;
  /** The reasoning to append. */
  delta: string;
}

/** Appends to the input of a tool call. */
export interface ToolCallDeltaEvent extends EventBase {
  type: "TOOL_CALL_DELTA";
  reply_id: string;
  /** Id of the call. */
  tool_call_id: string;
  /** The JSON fragment to append. */
  delta: string;
}

/** Appends text to the output of a tool result. */
export interface ToolResultTextDeltaEvent extends EventBase {
  type: "TOOL_RESULT_TEXT_DELTA";
  reply_id: string;
  /** Id of the call. */
  tool_call_id: string;
  /** The text to append. */
  delta: string;
}

/** A reply starts. Repeated when a reply is resumed; then it changes nothing. */
export interface ReplyStartEvent extends EventBase {
  type: "REPLY_START";
  reply_id: string;
  /** The session. */
  session_id: string;
  /** Name of the agent. */
  name: string;
  /** Role of the message. */
  role: Role;
}

/** A reply ends. No event of it may follow. */
export interface ReplyEndEvent extends EventBase {
  type: "REPLY_END";
  reply_id: string;
  /** The session. */
  session_id: string;
  /** Why it ended. */
  finished_reason: FinishedReason;
  /** The error, if it failed. */
  error?: ReplyError | null;
  /** Structured output of the reply. */
  structured_output?: unknown;
  /** Added to the message's metadata. */
  message_metadata?: Fields;
}

/** A model call starts. */
export interface ModelCallStartEvent extends EventBase {
  type: "MODEL_CALL_START";
  reply_id: string;
  /** Name of the model. */
  model_name: string;
}

/** A model call ends. */
export interface ModelCallEndEvent extends EventBase {
  type: "MODEL_CALL_END";
  reply_id: string;
  input_tokens: number;
  output_tokens: number;
  cache_input_tokens: number;
  cache_creation_input_tokens: number;
  /** Why it ended. */
  finished_reason: FinishedReason;
  /** The error, if it failed. */
  error?: ReplyError;
  /** Ids of blocks to remove, because the call is repeated after a crash. */
  discard?: string[];
}

/** A text block starts. */
export interface TextBlockStartEvent extends EventBase {
  type: "TEXT_BLOCK_START";
  reply_id: string;
  /** Id of the block. */
  block_id: string;
}

/** A text block ends. */
export interface TextBlockEndEvent extends EventBase {
  type: "TEXT_BLOCK_END";
  reply_id: string;
  /** Id of the block. */
  block_id: string;
  /** Replaces the text of the deltas, for example if a voice reply was cut short. */
  text?: string | null;
  /** Further fields for the block. */
  extra?: Fields;
}

/** A thinking block starts. */
export interface ThinkingBlockStartEvent extends EventBase {
  type: "THINKING_BLOCK_START";
  reply_id: string;
  /** Id of the block. */
  block_id: string;
}

/** A thinking block ends. */
export interface ThinkingBlockEndEvent extends EventBase {
  type: "THINKING_BLOCK_END";
  reply_id: string;
  /** Id of the block. */
  block_id: string;
  /** Further fields for the block, such as `signature`. */
  extra?: Fields;
}

/** A data block starts. */
export interface DataBlockStartEvent extends EventBase {
  type: "DATA_BLOCK_START";
  reply_id: string;
  /** Id of the block. */
  block_id: string;
  /** Media type, such as `image/png`. */
  media_type?: string;
  /** File name. */
  name?: string | null;
}

/** Appends bytes to a data block, or sets its URL. */
export interface DataBlockDeltaEvent extends EventBase {
  type: "DATA_BLOCK_DELTA";
  reply_id: string;
  /** Id of the block. */
  block_id: string;
  /** Media type, such as `image/png`. */
  media_type?: string;
  /** Base64, cut anywhere. */
  data?: string | null;
  /** URL of the bytes, instead. */
  url?: string | null;
}

/** A data block ends. */
export interface DataBlockEndEvent extends EventBase {
  type: "DATA_BLOCK_END";
  reply_id: string;
  /** Id of the block. */
  block_id: string;
  /** Further fields for the block. */
  extra?: Fields;
}

/** A complete hint. */
export interface HintEvent extends EventBase {
  type: "HINT_BLOCK";
  reply_id: string;
  /** Id of the block. */
  block_id: string;
  /** Where the hint comes from. */
  source?: string | null;
  /** Content of the hint. */
  hint: Payload;
}

/** A tool call starts. */
export interface ToolCallStartEvent extends EventBase {
  type: "TOOL_CALL_START";
  reply_id: string;
  /** Id of the call. */
  tool_call_id: string;
  /** Name of the tool. */
  tool_call_name: string;
}

/** The input of a tool call is complete. */
export interface ToolCallEndEvent extends EventBase {
  type: "TOOL_CALL_END";
  reply_id: string;
  /** Id of the call. */
  tool_call_id: string;
  /** Further fields for the block. */
  extra?: Fields;
}

/** A tool starts to run. */
export interface ToolResultStartEvent extends EventBase {
  type: "TOOL_RESULT_START";
  reply_id: string;
  /** Id of the call. */
  tool_call_id: string;
  /** Name of the tool. */
  tool_call_name: string;
}

/** Appends bytes or a URL to the output of a tool result. */
export interface ToolResultDataDeltaEvent extends EventBase {
  type: "TOOL_RESULT_DATA_DELTA";
  reply_id: string;
  /** Id of the call. */
  tool_call_id: string;
  /** Id of the data block inside the output. Empty: a new one. */
  block_id: string;
  /** Media type, such as `image/png`. */
  media_type?: string;
  /** Base64, cut anywhere. */
  data?: string | null;
  /** URL of the bytes, instead. */
  url?: string | null;
}

/** A tool has ended. The event's metadata becomes that of the result. */
export interface ToolResultEndEvent extends EventBase {
  type: "TOOL_RESULT_END";
  reply_id: string;
  /** Id of the call. */
  tool_call_id: string;
  /** State of the result. */
  state: ToolResultState;
}

/** The agent has reached its maximum number of iterations. Deprecated, still sent. */
export interface ExceedMaxItersEvent extends EventBase {
  type: "EXCEED_MAX_ITERS";
  reply_id: string;
  /** Name of the agent. */
  name: string;
}

/** Tool calls wait for a person's approval. */
export interface RequireUserConfirmEvent extends EventBase {
  type: "REQUIRE_USER_CONFIRM";
  reply_id: string;
  /** The calls. */
  tool_calls: ToolCall[];
}

/** Tool calls wait for a result from outside. */
export interface RequireExternalExecutionEvent extends EventBase {
  type: "REQUIRE_EXTERNAL_EXECUTION";
  reply_id: string;
  /** The calls. */
  tool_calls: ToolCall[];
}

/** A person's answers to pending calls. */
export interface UserConfirmResultEvent extends EventBase {
  type: "USER_CONFIRM_RESULT";
  reply_id: string;
  /** One answer per call. */
  confirm_results: ConfirmResult[];
}

/** Results of tool calls that were executed outside. */
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

/** Anything else that an application sends to its front end. */
export interface CustomEvent extends EventBase {
  type: "CUSTOM";
  reply_id?: string;
  /** Name of the custom event. */
  name: string;
  /** Payload. */
  value: unknown;
}

/** A complete block that no other event can build. */
export interface BlockEvent extends EventBase {
  type: "BLOCK";
  reply_id: string;
  /** The block. */
  block: ContentBlock;
}

/** A complete message that is not a reply: a user's, or one whose events were deleted. */
export interface MessageEvent extends EventBase {
  type: "MESSAGE";
  /** The message. */
  message: MsgJson;
}

/** These messages no longer count as history. The log keeps them. */
export interface SupersedeEvent extends EventBase {
  type: "SUPERSEDE";
  /** Ids of the messages. */
  message_ids: string[];
}

/** The client's resume token is no longer valid: discard everything, all events follow again. */
export interface ResetEvent extends EventBase {
  type: "RESET";
  /** The session's epoch. */
  epoch: string;
  /** Why the token is not valid. */
  reason: string;
}

/** Java: a middleware or a tool requests that the reply stops early. */
export interface RequestStopEvent extends EventBase {
  type: "REQUEST_STOP";
  reply_id?: string;
  /** Reason for people. */
  reason?: string;
  /** Java's `GenerateReason`. */
  generate_reason?: string;
}

/** Java: all tool calls of a model call were denied. */
export interface AllToolsDeniedEvent extends EventBase {
  type: "ALL_TOOLS_DENIED";
  reply_id?: string;
  /** The calls. */
  denied_tool_calls: ToolCall[];
}

/** Java: a client can talk to a sub-agent directly. */
export interface SubagentExposedEvent extends EventBase {
  type: "SUBAGENT_EXPOSED";
  reply_id?: string;
  /** Session of the sub-agent. */
  session_id: string;
  /** Id of the sub-agent. */
  subagent_id: string;
  /** Id of its agent. */
  agent_id: string;
  /** Display name. */
  label?: string;
}

/** One increment of a reply, or an input to it. Events of an unknown type are delivered, too. */
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
export const EventType = /* @__PURE__ */ Object.fromEntries(
  (
      "TEXT_BLOCK_DELTA THINKING_BLOCK_DELTA TOOL_CALL_DELTA TOOL_RESULT_TEXT_DELTA "
    + "REPLY_START REPLY_END MODEL_CALL_START MODEL_CALL_END "
    + "TEXT_BLOCK_START TEXT_BLOCK_END THINKING_BLOCK_START THINKING_BLOCK_END "
    + "DATA_BLOCK_START DATA_BLOCK_DELTA DATA_BLOCK_END HINT_BLOCK "
    + "TOOL_CALL_START TOOL_CALL_END TOOL_RESULT_START TOOL_RESULT_DATA_DELTA "
    + "TOOL_RESULT_END EXCEED_MAX_ITERS REQUIRE_USER_CONFIRM REQUIRE_EXTERNAL_EXECUTION "
    + "USER_CONFIRM_RESULT EXTERNAL_EXECUTION_RESULT USER_INTERRUPT CUSTOM "
    + "BLOCK MESSAGE SUPERSEDE RESET "
    + "REQUEST_STOP ALL_TOOLS_DENIED SUBAGENT_EXPOSED "
  )
    .trim()
    .split(" ")
    .map((type) => [type, type]),
) as { readonly [T in Event["type"]]: T };
export type EventType = Event["type"];

/** The default of each field if it is missing or null; `undefined`: the field is required. */
export type Shape = Record<string, unknown>;

/** The blocks by type. */
export const BLOCKS: Record<string, Shape> = {
  text: { text: undefined, finished_at: null },
  thinking: { thinking: undefined, finished_at: null },
  hint: { hint: undefined, source: null, finished_at: null },
  tool_call: { id: undefined, name: "", input: "", state: "pending", suggested_rules: [], finished_at: null },
  tool_result: { id: undefined, name: "", output: [], state: "running", metadata: {}, finished_at: null },
};
export const PERMISSIONRULE: Shape = { tool_name: undefined, rule_content: null, behavior: "ask", source: "" };
export const USAGE: Shape = { input_tokens: 0, output_tokens: 0, cache_input_tokens: 0, cache_creation_input_tokens: 0 };
export const REPLYERROR: Shape = { type: "unknown", message: "" };
