"""The JSON of messages, blocks and events, as dictionaries.

Written by `TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test python` from the Rust types. Changes belong there.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict, Union

from typing_extensions import NotRequired

# An object with any entries.
Fields: TypeAlias = "dict[str, Any]"

# Role of a message's sender.
Role: TypeAlias = Literal["user", "assistant", "system", "tool"]

# State of a tool call.
ToolCallState: TypeAlias = Union[Literal["pending", "asking", "allowed", "submitted", "finished"], str]

# State of a tool result.
ToolResultState: TypeAlias = Union[Literal["running", "success", "error", "interrupted", "denied"], str]

# Why a reply, or a model call, ended.
FinishedReason: TypeAlias = Union[
    Literal[
        "completed",
        "interrupted",
        "exceed_max_iters",
        "error",
        "length",
        "tool_calls",
        "refusal",
        "content_filter",
        "truncated",
    ],
    str,
]

# Type of the error that ended a reply.
ErrorType: TypeAlias = Union[
    Literal[
        "authentication",
        "permission",
        "rate_limit",
        "invalid_request",
        "upstream",
        "connection",
        "internal",
        "setup",
        "unknown",
    ],
    str,
]

# Effect of a permission rule.
Behavior: TypeAlias = Union[Literal["allow", "deny", "ask", "passthrough"], str]


class TextBlock(TypedDict):
    """Plain text."""

    type: Literal["text"]
    # The text.
    text: str
    # The block's id; empty if it has none.
    id: NotRequired[str]
    # When it started; empty if not known.
    created_at: NotRequired[str]
    # When it ended.
    finished_at: NotRequired[str | None]


class ThinkingBlock(TypedDict):
    """The model's reasoning. Fields of the provider (`signature`, `redacted_thinking_data`, …) are in `rest`."""

    type: Literal["thinking"]
    # The reasoning.
    thinking: str
    # The block's id; empty if it has none.
    id: NotRequired[str]
    # When it started; empty if not known.
    created_at: NotRequired[str]
    # When it ended.
    finished_at: NotRequired[str | None]
    # Of the provider: proves that the thinking is its own.
    signature: NotRequired[str]


class HintBlock(TypedDict):
    """A note for a running reply: a trigger, a message of another agent, a background result."""

    type: Literal["hint"]
    # Content of the hint.
    hint: Payload
    # The block's id; empty if it has none.
    id: NotRequired[str]
    # Where the hint comes from, often a small JSON text for the front end.
    source: NotRequired[str | None]
    # When it was added; empty if not known.
    created_at: NotRequired[str]
    # When it ended.
    finished_at: NotRequired[str | None]


class ToolCall(TypedDict):
    """A call of a tool."""

    type: Literal["tool_call"]
    # The call's id; its result has the same.
    id: str
    # Name of the tool.
    name: str
    # The arguments as JSON text, as the model wrote it.
    input: str
    # State of the call.
    state: ToolCallState
    # Permission rules that a person may accept together with the call.
    suggested_rules: list[PermissionRule]
    # When it started; empty if not known.
    created_at: NotRequired[str]
    # When its input was complete.
    finished_at: NotRequired[str | None]


class ToolResult(TypedDict):
    """The result of a tool call."""

    type: Literal["tool_result"]
    # The id of the call.
    id: str
    # Name of the tool.
    name: str
    # Output of the tool.
    output: Payload
    # State of the result.
    state: ToolResultState
    # Metadata.
    metadata: Fields
    # When it started; empty if not known.
    created_at: NotRequired[str]
    # When it ended.
    finished_at: NotRequired[str | None]


class PermissionRule(TypedDict):
    """A permission rule: whether a tool may run, by its name and a pattern of its input."""

    # Name of the tool.
    tool_name: str
    # Pattern for the input; its meaning depends on the tool.
    rule_content: NotRequired[str | None]
    # Effect of the rule.
    behavior: Behavior
    # Where the rule comes from.
    source: str


class Usage(TypedDict):
    """Tokens that a reply used."""

    # Tokens of the input.
    input_tokens: int
    # Tokens of the output.
    output_tokens: int
    # Tokens read from the provider's cache.
    cache_input_tokens: int
    # Tokens written to the provider's cache.
    cache_creation_input_tokens: int


class ReplyError(TypedDict):
    """The error of a failed reply."""

    # Machine-readable type of the error.
    type: ErrorType
    # What happened, for people.
    message: str


class ConfirmResult(TypedDict):
    """A person's answer to one pending call."""

    # Whether the call is approved.
    confirmed: bool
    # The call, with the edited input. An empty input leaves the input unchanged.
    tool_call: ToolCall
    # Permission rules that the person accepted.
    rules: NotRequired[list[PermissionRule] | None]


class Base64Source(TypedDict):
    """Bytes as base64. While the block is open, the last one to three characters may be an incomplete group."""

    type: Literal["base64"]
    data: str
    # Media type, such as `image/png`.
    media_type: NotRequired[str]


class UrlSource(TypedDict):
    """A URL to the bytes."""

    type: Literal["url"]
    url: str
    media_type: NotRequired[str]


Source: TypeAlias = Union[Base64Source, UrlSource]


class DataBlock(TypedDict):
    """Bytes (an image, audio, any file), or a URL to them."""

    type: Literal["data", "image", "audio", "video"]
    id: NotRequired[str]
    source: Source
    # File name.
    name: NotRequired[str | None]
    created_at: NotRequired[str]
    finished_at: NotRequired[str | None]


# A block inside a hint or a tool result.
Part: TypeAlias = Union["TextBlock", DataBlock]

# Content of a hint or a tool result: plain text, or text and data blocks in order.
Payload: TypeAlias = Union[str, "list[Part]"]


class MsgJson(TypedDict):
    """A message as JSON."""

    name: str
    content: list[ContentBlock]
    role: Role
    # The id of the reply that the message comes from.
    id: NotRequired[str]
    metadata: Fields
    created_at: NotRequired[str]
    usage: Usage | None
    finished_at: str | None
    finished_reason: FinishedReason | None
    structured_output: Any
    error: ReplyError | None


class Cursor(TypedDict):
    """The state of a message's fold: which events were applied."""

    started: bool
    whole: NotRequired[bool]
    seq: NotRequired[int]
    ids: NotRequired[list[str]]


class EventBase(TypedDict, total=False):
    """Fields of every event."""

    id: str
    created_at: str
    metadata: Fields
    # Position in the session's log, from 1.
    seq: int
    # In an event that merges several: position of the first.
    seq_from: int
    # The agents from the outermost to this one, such as `main/researcher`.
    agent_path: str
    # The tool call, in the reply of the agent above, that this agent works for.
    parent_tool_call_id: str


# A typed part of a message. Blocks of an unknown type are kept unchanged.
ContentBlock: TypeAlias = Union[TextBlock, ThinkingBlock, HintBlock, ToolCall, ToolResult, DataBlock]


class TextBlockDeltaEvent(EventBase):
    """Appends to the text of a text block."""

    type: Literal["TEXT_BLOCK_DELTA"]
    reply_id: str
    # Id of the block.
    block_id: str
    # The text to append.
    delta: str


class ThinkingBlockDeltaEvent(EventBase):
    """Appends to the text of a thinking block."""

    type: Literal["THINKING_BLOCK_DELTA"]
    reply_id: str
    # Id of the block.
    block_id: str
    # The reasoning to append.
    delta: str


class ToolCallDeltaEvent(EventBase):
    """Appends to the input of a tool call."""

    type: Literal["TOOL_CALL_DELTA"]
    reply_id: str
    # Id of the call.
    tool_call_id: str
    # The JSON fragment to append.
    delta: str


class ToolResultTextDeltaEvent(EventBase):
    """Appends text to the output of a tool result."""

    type: Literal["TOOL_RESULT_TEXT_DELTA"]
    reply_id: str
    # Id of the call.
    tool_call_id: str
    # The text to append.
    delta: str


class ReplyStartEvent(EventBase):
    """A reply starts. Repeated when a reply is resumed; then it changes nothing."""

    type: Literal["REPLY_START"]
    reply_id: str
    # The session.
    session_id: str
    # Name of the agent.
    name: str
    # Role of the message.
    role: Role


class ReplyEndEvent(EventBase):
    """A reply ends. No event of it may follow."""

    type: Literal["REPLY_END"]
    reply_id: str
    # The session.
    session_id: str
    # Why it ended.
    finished_reason: FinishedReason
    # The error, if it failed.
    error: NotRequired[ReplyError | None]
    # Structured output of the reply.
    structured_output: NotRequired[Any]
    # Added to the message's metadata.
    message_metadata: NotRequired[Fields]


class ModelCallStartEvent(EventBase):
    """A model call starts."""

    type: Literal["MODEL_CALL_START"]
    reply_id: str
    # Name of the model.
    model_name: str


class ModelCallEndEvent(EventBase):
    """A model call ends."""

    type: Literal["MODEL_CALL_END"]
    reply_id: str
    input_tokens: int
    output_tokens: int
    cache_input_tokens: int
    cache_creation_input_tokens: int
    # Why it ended.
    finished_reason: FinishedReason
    # The error, if it failed.
    error: NotRequired[ReplyError]
    # Ids of blocks to remove, because the call is repeated after a crash.
    discard: NotRequired[list[str]]


class TextBlockStartEvent(EventBase):
    """A text block starts."""

    type: Literal["TEXT_BLOCK_START"]
    reply_id: str
    # Id of the block.
    block_id: str


class TextBlockEndEvent(EventBase):
    """A text block ends."""

    type: Literal["TEXT_BLOCK_END"]
    reply_id: str
    # Id of the block.
    block_id: str
    # Replaces the text of the deltas, for example if a voice reply was cut short.
    text: NotRequired[str | None]
    # Further fields for the block.
    extra: NotRequired[Fields]


class ThinkingBlockStartEvent(EventBase):
    """A thinking block starts."""

    type: Literal["THINKING_BLOCK_START"]
    reply_id: str
    # Id of the block.
    block_id: str


class ThinkingBlockEndEvent(EventBase):
    """A thinking block ends."""

    type: Literal["THINKING_BLOCK_END"]
    reply_id: str
    # Id of the block.
    block_id: str
    # Further fields for the block, such as `signature`.
    extra: NotRequired[Fields]


class DataBlockStartEvent(EventBase):
    """A data block starts."""

    type: Literal["DATA_BLOCK_START"]
    reply_id: str
    # Id of the block.
    block_id: str
    # Media type, such as `image/png`.
    media_type: NotRequired[str]
    # File name.
    name: NotRequired[str | None]


class DataBlockDeltaEvent(EventBase):
    """Appends bytes to a data block, or sets its URL."""

    type: Literal["DATA_BLOCK_DELTA"]
    reply_id: str
    # Id of the block.
    block_id: str
    # Media type, such as `image/png`.
    media_type: NotRequired[str]
    # Base64, cut anywhere.
    data: NotRequired[str | None]
    # URL of the bytes, instead.
    url: NotRequired[str | None]


class DataBlockEndEvent(EventBase):
    """A data block ends."""

    type: Literal["DATA_BLOCK_END"]
    reply_id: str
    # Id of the block.
    block_id: str
    # Further fields for the block.
    extra: NotRequired[Fields]


class HintEvent(EventBase):
    """A complete hint."""

    type: Literal["HINT_BLOCK"]
    reply_id: str
    # Id of the block.
    block_id: str
    # Where the hint comes from.
    source: NotRequired[str | None]
    # Content of the hint.
    hint: Payload


class ToolCallStartEvent(EventBase):
    """A tool call starts."""

    type: Literal["TOOL_CALL_START"]
    reply_id: str
    # Id of the call.
    tool_call_id: str
    # Name of the tool.
    tool_call_name: str


class ToolCallEndEvent(EventBase):
    """The input of a tool call is complete."""

    type: Literal["TOOL_CALL_END"]
    reply_id: str
    # Id of the call.
    tool_call_id: str
    # Further fields for the block.
    extra: NotRequired[Fields]


class ToolResultStartEvent(EventBase):
    """A tool starts to run."""

    type: Literal["TOOL_RESULT_START"]
    reply_id: str
    # Id of the call.
    tool_call_id: str
    # Name of the tool.
    tool_call_name: str


class ToolResultDataDeltaEvent(EventBase):
    """Appends bytes or a URL to the output of a tool result."""

    type: Literal["TOOL_RESULT_DATA_DELTA"]
    reply_id: str
    # Id of the call.
    tool_call_id: str
    # Id of the data block inside the output. Empty: a new one.
    block_id: str
    # Media type, such as `image/png`.
    media_type: NotRequired[str]
    # Base64, cut anywhere.
    data: NotRequired[str | None]
    # URL of the bytes, instead.
    url: NotRequired[str | None]


class ToolResultEndEvent(EventBase):
    """A tool has ended. The event's metadata becomes that of the result."""

    type: Literal["TOOL_RESULT_END"]
    reply_id: str
    # Id of the call.
    tool_call_id: str
    # State of the result.
    state: ToolResultState


class ExceedMaxItersEvent(EventBase):
    """The agent has reached its maximum number of iterations. Deprecated, still sent."""

    type: Literal["EXCEED_MAX_ITERS"]
    reply_id: str
    # Name of the agent.
    name: str


class RequireUserConfirmEvent(EventBase):
    """Tool calls wait for a person's approval."""

    type: Literal["REQUIRE_USER_CONFIRM"]
    reply_id: str
    # The calls.
    tool_calls: list[ToolCall]


class RequireExternalExecutionEvent(EventBase):
    """Tool calls wait for a result from outside."""

    type: Literal["REQUIRE_EXTERNAL_EXECUTION"]
    reply_id: str
    # The calls.
    tool_calls: list[ToolCall]


class UserConfirmResultEvent(EventBase):
    """A person's answers to pending calls."""

    type: Literal["USER_CONFIRM_RESULT"]
    reply_id: str
    # One answer per call.
    confirm_results: list[ConfirmResult]


class ExternalExecutionResultEvent(EventBase):
    """Results of tool calls that were executed outside."""

    type: Literal["EXTERNAL_EXECUTION_RESULT"]
    reply_id: str
    # The results.
    execution_results: list[ToolResult]


class UserInterruptEvent(EventBase):
    """A person stops the reply."""

    type: Literal["USER_INTERRUPT"]
    reply_id: str


class CustomEvent(EventBase):
    """Anything else that an application sends to its front end."""

    type: Literal["CUSTOM"]
    reply_id: NotRequired[str]
    # Name of the custom event.
    name: str
    # Payload.
    value: Any


class BlockEvent(EventBase):
    """A complete block that no other event can build."""

    type: Literal["BLOCK"]
    reply_id: str
    # The block.
    block: ContentBlock


class MessageEvent(EventBase):
    """A complete message that is not a reply: a user's, or one whose events were deleted."""

    type: Literal["MESSAGE"]
    # The message.
    message: MsgJson


class SupersedeEvent(EventBase):
    """These messages no longer count as history. The log keeps them."""

    type: Literal["SUPERSEDE"]
    # Ids of the messages.
    message_ids: list[str]


class ResetEvent(EventBase):
    """The client's resume token is no longer valid: discard everything, all events follow again."""

    type: Literal["RESET"]
    # The session's epoch.
    epoch: str
    # Why the token is not valid.
    reason: str


class RequestStopEvent(EventBase):
    """Java: a middleware or a tool requests that the reply stops early."""

    type: Literal["REQUEST_STOP"]
    reply_id: NotRequired[str]
    # Reason for people.
    reason: NotRequired[str]
    # Java's `GenerateReason`.
    generate_reason: NotRequired[str]


class AllToolsDeniedEvent(EventBase):
    """Java: all tool calls of a model call were denied."""

    type: Literal["ALL_TOOLS_DENIED"]
    reply_id: NotRequired[str]
    # The calls.
    denied_tool_calls: list[ToolCall]


class SubagentExposedEvent(EventBase):
    """Java: a client can talk to a sub-agent directly."""

    type: Literal["SUBAGENT_EXPOSED"]
    reply_id: NotRequired[str]
    # Session of the sub-agent.
    session_id: str
    # Id of the sub-agent.
    subagent_id: str
    # Id of its agent.
    agent_id: str
    # Display name.
    label: NotRequired[str]


# One increment of a reply, or an input to it. Events of an unknown type are delivered, too.
Event: TypeAlias = Union[
    TextBlockDeltaEvent,
    ThinkingBlockDeltaEvent,
    ToolCallDeltaEvent,
    ToolResultTextDeltaEvent,
    ReplyStartEvent,
    ReplyEndEvent,
    ModelCallStartEvent,
    ModelCallEndEvent,
    TextBlockStartEvent,
    TextBlockEndEvent,
    ThinkingBlockStartEvent,
    ThinkingBlockEndEvent,
    DataBlockStartEvent,
    DataBlockDeltaEvent,
    DataBlockEndEvent,
    HintEvent,
    ToolCallStartEvent,
    ToolCallEndEvent,
    ToolResultStartEvent,
    ToolResultDataDeltaEvent,
    ToolResultEndEvent,
    ExceedMaxItersEvent,
    RequireUserConfirmEvent,
    RequireExternalExecutionEvent,
    UserConfirmResultEvent,
    ExternalExecutionResultEvent,
    UserInterruptEvent,
    CustomEvent,
    BlockEvent,
    MessageEvent,
    SupersedeEvent,
    ResetEvent,
    RequestStopEvent,
    AllToolsDeniedEvent,
    SubagentExposedEvent,
]
