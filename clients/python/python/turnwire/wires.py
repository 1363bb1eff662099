"""Every protocol that Turnwire speaks: decodes its streams into events, encodes events as its streams.

from turnwire import wires

events = wires.decode("openai-chat", body)          # a provider's stream as events
sse = wires.encode("ag-ui", events)                 # the same, as an AG-UI server sends it
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from . import _native
from ._native import Msg
from .errors import FoldError
from .types import Event

__all__ = ["Decoder", "Encoder", "Frame", "Wire", "all", "decode", "encode", "read_messages", "write_messages"]

Scope = Literal["reply", "model_call"]

# A decoder keeps so many problems.
_MAX_PROBLEMS = 1000


class Wire(NamedTuple):
    """One protocol: its name, what it can do, what it cannot hold."""

    name: str
    about: str
    decodes: bool
    encodes: bool
    messages: bool
    # The text of the last frame of a complete stream, such as `[DONE]`.
    end_marker: str | None
    stream_losses: list[str]
    message_losses: list[str]


class Frame(NamedTuple):
    """One unit of a stream. `name` is empty where the protocol does not name its frames."""

    name: str
    data: str

    def sse(self, id: str | None = None) -> bytes:
        """The frame as a server-sent event."""
        head = f"event: {self.name}\n" if self.name else ""
        head += f"id: {id}\n" if id else ""
        lines = self.data.replace("\r", "\n").replace("\n", "\ndata: ")
        return f"{head}data: {lines}\n\n".encode()


def all() -> list[Wire]:
    """All wires."""
    return [Wire(**wire) for wire in _native.list_wires()]


class Decoder:
    """Decodes the bytes of one stream, cut anywhere, into events.

    A frame that cannot be read is a problem, and decoding goes on behind it: look at `problems`.
    """

    def __init__(
        self, wire: str, *, reply_id: str | None = None, block_prefix: str | None = None, scope: Scope = "reply"
    ) -> None:
        """`reply_id` is the id of the reply that a provider's stream becomes. With the scope `model_call` the stream is
        one call of a reply that you start and end; then `block_prefix` keeps the blocks of several calls apart."""
        self._native = _native.Decoder(wire, reply_id, block_prefix, scope)
        self.problems: list[FoldError] = []

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        return _events(self.feed_json(data))

    def feed_json(self, data: bytes) -> bytes:
        """The same as JSON, one event a line: to store or send, without objects between."""
        return self._keep(*self._native.feed(data))

    def end(self) -> list[Event]:
        """Ends the stream: what is left, and a missing end."""
        return _events(self.end_json())

    def end_json(self) -> bytes:
        """The same as JSON, one event a line."""
        return self._keep(*self._native.end())

    def _keep(self, events: bytes, problems: list[FoldError]) -> bytes:
        self.problems += problems[: _MAX_PROBLEMS - len(self.problems)]
        return events


class Encoder:
    """Encodes events as the frames of a wire. Its state depends only on the events: to serve a late client, give a new
    encoder the same events and drop its frames, then send what follows. A complete stream ends with the wire's
    `end_marker`, if it has one."""

    def __init__(
        self, wire: str, *, session_id: str | None = None, model: str | None = None, id: str | None = None
    ) -> None:
        """What the events do not say: the session (AG-UI's thread), the model, the id of the response."""
        self._native = _native.Encoder(wire, session_id, model, id)

    def encode(self, event: Event | dict[str, Any] | str | bytes) -> list[Frame]:
        """The frames of an event; there may be none."""
        return [Frame(*frame) for frame in self._native.encode(event)]

    def end(self) -> list[Frame]:
        """The frames that end the stream, or pause it: a reply that waits for its client needs them, too."""
        return [Frame(*frame) for frame in self._native.end()]


def decode(
    wire: str,
    body: str | bytes,
    *,
    reply_id: str | None = None,
    block_prefix: str | None = None,
    scope: Scope = "reply",
) -> list[Event]:
    """The events of a whole body. The first problem is raised as `FoldError`."""
    return _events(_native.decode(wire, body, reply_id, block_prefix, scope))


def encode(
    wire: str,
    events: Iterable[Event | dict[str, Any]] | str | bytes,
    *,
    session_id: str | None = None,
    model: str | None = None,
    id: str | None = None,
) -> bytes:
    """Events as the body that a server of this wire sends: server-sent events."""
    if not isinstance(events, str | bytes):
        events = "\n".join(json.dumps(event) for event in events)
    return _native.encode(wire, events, session_id, model, id)


def read_messages(wire: str, messages: Any) -> list[Msg]:
    """Messages in the form of a wire: a list, one message, or the JSON of either. Several of theirs may become one."""
    return _native.read_messages(wire, messages)


def write_messages(wire: str, messages: Iterable[Msg]) -> list[Any]:
    """Messages in the form of a wire. One of ours may become several of theirs, or none."""
    return _native.write_messages(wire, messages)


def _events(lines: bytes) -> list[Event]:
    events: list[Event] = json.loads(b"[" + lines.rstrip().replace(b"\n", b",") + b"]")
    return events
