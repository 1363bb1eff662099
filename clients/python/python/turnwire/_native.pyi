from collections.abc import Iterable
from typing import Any, Literal, final, overload

from typing_extensions import Self

from .aliases import AnyEvent, AnyMsg, Content, Outcome
from .errors import FoldError
from .types import (
    ContentBlock,
    Cursor,
    DataBlock,
    Fields,
    HintBlock,
    MsgJson,
    ReplyError,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    Usage,
)

@final
class Msg:
    """One message. The fold (`append_event`) changes it in place; the properties are copies."""

    def __new__(cls, json: AnyMsg, cursor: Cursor | str | bytes | None = None) -> Self:
        """Reads a message: its JSON, or the dictionary of it; with its cursor, to continue its fold."""

    @staticmethod
    def user(content: Content, *, name: str = "user", id: str | None = None, metadata: Fields | None = None) -> Msg:
        """A user's message: text, or text and data blocks."""

    @staticmethod
    def assistant(
        content: Content, *, name: str = "assistant", id: str | None = None, metadata: Fields | None = None
    ) -> Msg:
        """An agent's message. It may have any block."""

    @staticmethod
    def system(content: Content, *, name: str = "system", id: str | None = None, metadata: Fields | None = None) -> Msg:
        """A system prompt."""

    @staticmethod
    def reply(id: str, name: str = "") -> Msg:
        """An empty message for the events of a reply."""

    def append_event(self, event: AnyEvent) -> Outcome:
        """Applies an event. A repeated one changes nothing; one that does not fit raises `FoldError` and changes
        nothing."""

    def append_event_tolerant(self, event: AnyEvent) -> tuple[Outcome, FoldError | None]:
        """Applies what can be applied of an event, and returns the problem."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def content(self) -> list[ContentBlock]: ...
    @property
    def metadata(self) -> Fields: ...
    @property
    def usage(self) -> Usage | None: ...
    @property
    def error(self) -> ReplyError | None: ...
    @property
    def structured_output(self) -> Any: ...
    @property
    def created_at(self) -> str: ...
    @property
    def finished_at(self) -> str | None: ...
    @property
    def finished_reason(self) -> str | None: ...
    def get_text_content(self, separator: str = "\n") -> str | None:
        """The text of all text blocks; `None` if there is none."""

    @overload
    def get_content_blocks(self, type: None = None) -> list[ContentBlock]: ...
    @overload
    def get_content_blocks(self, type: Literal["text"]) -> list[TextBlock]: ...
    @overload
    def get_content_blocks(self, type: Literal["thinking"]) -> list[ThinkingBlock]: ...
    @overload
    def get_content_blocks(self, type: Literal["data", "image", "audio", "video"]) -> list[DataBlock]: ...
    @overload
    def get_content_blocks(self, type: Literal["hint"]) -> list[HintBlock]: ...
    @overload
    def get_content_blocks(self, type: Literal["tool_call"]) -> list[ToolCall]: ...
    @overload
    def get_content_blocks(self, type: Literal["tool_result"]) -> list[ToolResult]: ...
    @overload
    def get_content_blocks(self, type: str) -> list[Any]: ...
    def has_content_blocks(self, type: str | None = None) -> bool:
        """Whether there is a block of this type, or any block."""

    def to_json(self) -> str: ...
    def to_dict(self) -> MsgJson: ...
    def cursor(self) -> Cursor:
        """The state of the fold. Store it with the JSON to continue later."""

    def __eq__(self, other: object) -> bool: ...
    def __copy__(self) -> Msg: ...
    def __deepcopy__(self, memo: Any) -> Msg: ...

@final
class Folder:
    """Folds a stream into its messages: many replies, interleaved, and whole messages between them."""

    def __new__(cls, messages: Iterable[Msg] | None = None) -> Self:
        """A folder made from messages continues them, each from its cursor."""

    @staticmethod
    def load(state: str | bytes) -> Folder:
        """Loads what `dump` returned."""

    def dump(self) -> str:
        """The state of the fold as JSON, to continue later."""

    def push(self, event: AnyEvent) -> Outcome:
        """Applies an event. One that does not fit raises `FoldError` and changes nothing."""

    def push_tolerant(self, event: AnyEvent) -> tuple[Outcome, FoldError | None]:
        """Applies what can be applied of an event, and returns the problem."""

    def feed(self, body: str | bytes, *, wire: str = "turnwire") -> int:
        """Folds a whole body: JSON lines or server-sent events, in any wire that decodes. Returns how many events were
        applied. The first problem is raised; what came before it is folded. Other threads run meanwhile."""

    def feed_tolerant(self, body: str | bytes, *, wire: str = "turnwire") -> list[FoldError]:
        """Folds what fits of a whole body; returns the first 1,000 problems."""

    def messages(self) -> list[Msg]:
        """Copies of all messages, in the order of their first events."""

    def history(self) -> list[Msg]:
        """Copies of the messages that count as history: all except superseded ones."""

    def ids(self) -> list[str]:
        """The ids of all messages."""

    def superseded(self) -> list[str]:
        """The ids of superseded messages."""

    def get(self, id: str) -> Msg | None:
        """A copy of the message with this id."""

    def __len__(self) -> int: ...

@final
class Decoder:
    def __new__(
        cls, wire: str, reply_id: str | None = None, block_prefix: str | None = None, scope: str = "reply"
    ) -> Self: ...
    def feed(self, bytes: bytes) -> tuple[bytes, list[FoldError]]: ...
    def end(self) -> tuple[bytes, list[FoldError]]: ...

@final
class Encoder:
    def __new__(
        cls, wire: str, session_id: str | None = None, model: str | None = None, id: str | None = None
    ) -> Self: ...
    def encode(self, event: AnyEvent) -> list[tuple[str, str]]: ...
    def end(self) -> list[tuple[str, str]]: ...

def list_wires() -> list[dict[str, Any]]: ...
def decode(
    wire: str,
    body: str | bytes,
    reply_id: str | None = None,
    block_prefix: str | None = None,
    scope: str = "reply",
) -> bytes: ...
def encode(
    wire: str,
    events: str | bytes,
    session_id: str | None = None,
    model: str | None = None,
    id: str | None = None,
) -> bytes: ...
def read_messages(wire: str, messages: Any) -> list[Msg]: ...
def write_messages(wire: str, messages: Iterable[Msg]) -> list[Any]: ...
