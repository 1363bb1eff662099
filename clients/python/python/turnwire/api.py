"""The JSON of the server's responses, as dictionaries."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

from typing_extensions import NotRequired

from .types import ContentBlock, Cursor, Fields, MsgJson, PermissionRule, ToolCall, Usage

Status: TypeAlias = Literal["idle", "running", "waiting"]

# How the last reply of a session ended, unless it ended well.
Outcome: TypeAlias = Literal["failed", "stopped", "expired"]


class Pending(TypedDict):
    """Calls of a reply that wait for a person or a client."""

    reply_id: str
    agent_path: NotRequired[str]
    # Calls that wait for an approval.
    confirm: list[ToolCall]
    # Calls that the client executes.
    external: list[ToolCall]
    since: str
    expires_at: str | None


class Queued(TypedDict):
    """A queued message."""

    message_id: str
    reply_id: str
    content: list[ContentBlock]


class SessionInfo(TypedDict):
    id: str
    agent: str
    title: str | None
    status: Status
    outcome: NotRequired[Outcome]
    epoch: str
    last_seq: int
    # The resume token of the last event.
    last_event_id: str
    pending: list[Pending]
    queued: list[Queued]
    usage: Usage
    cost: NotRequired[float]
    created_at: str
    updated_at: str
    metadata: Fields


class SessionPage(TypedDict):
    sessions: list[SessionInfo]
    next_cursor: NotRequired[str | None]


class Origin(TypedDict, total=False):
    """Where the message of a sub-agent comes from."""

    agent_path: str
    parent_tool_call_id: str


class History(TypedDict):
    """A page of messages, oldest first."""

    messages: list[MsgJson]
    # The fold cursors of unfinished replies, by message.
    cursors: dict[str, Cursor]
    # The resume token to watch from.
    last_event_id: str
    status: Status
    pending: list[Pending]
    # The sub-agents' messages; missing if only the session's agent was requested.
    agents: NotRequired[dict[str, Origin]]
    has_more: bool
    next_before: NotRequired[str | None]


class Sent(TypedDict):
    message_id: str
    # Missing in a session whose agent runs elsewhere.
    reply_id: NotRequired[str | None]
    last_event_id: str
    queued: NotRequired[bool]


class Decision(TypedDict):
    """A decision about a pending call."""

    seq: int
    reply_id: str
    call_id: str
    at: str
    confirmed: bool
    # Nobody answered in time, so the server denied the call.
    expired: bool
    # Who decided, if the credentials name somebody, and with which client.
    by: NotRequired[str]
    client: NotRequired[str]
    reason: NotRequired[str]
    # The input before and after it was edited.
    input_before: NotRequired[str]
    input_after: NotRequired[str]
    rules: list[PermissionRule]


class Decisions(TypedDict):
    decisions: list[Decision]
    # The accepted rules that still apply.
    rules: list[PermissionRule]


class Hit(TypedDict):
    """A message that a search found."""

    message_id: str
    seq: int
    excerpt: str


class Asking(TypedDict):
    """A pending call and its reply: what `approve`, `deny` and `result` take."""

    reply_id: str
    tool_call: ToolCall


class Approval(Asking):
    """A pending call of a view."""

    # `confirm`: answer with `approve` or `deny`; `external`: with `result`.
    kind: Literal["confirm", "external"]
    agent_path: str | None
    since: str | None
    expires_at: str | None


class PendingOfSession(Pending):
    session_id: str
    title: str | None


class Agent(TypedDict):
    name: str
    about: str
    model: str
    default: bool
    price_per_million: NotRequired[Any]
    # With `usage=True`: the tokens and costs of all its replies.
    usage: NotRequired[Usage]
    cost: NotRequired[float]


class Agents(TypedDict):
    agents: list[Agent]
    default_agent: str
    currency: NotRequired[str]


class Me(TypedDict):
    """Who the credentials belong to, and what they allow."""

    tenant: str
    subject: str | None
    scopes: list[Literal["read", "chat", "publish", "approve", "admin"]]
    # Whether they are limited to some sessions.
    limited: bool


class Blob(TypedDict):
    id: str
    # The URL for a data block.
    url: str
    size: int
    media_type: str


class Ticket(TypedDict):
    ticket: str
    expires_in: int
