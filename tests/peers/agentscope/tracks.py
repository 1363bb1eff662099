"""The events of one block, from its start to its end, and how several blocks mix."""

import random
from collections.abc import Iterator
from typing import Any, TypeVar

from agentscope.event import (
    DataBlockDeltaEvent,
    DataBlockEndEvent,
    DataBlockStartEvent,
    EventBase,
    HintBlockEvent,
    TextBlockDeltaEvent,
    TextBlockEndEvent,
    TextBlockStartEvent,
    ThinkingBlockDeltaEvent,
    ThinkingBlockEndEvent,
    ThinkingBlockStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from agentscope.message import ToolCallBlock

import blocks
import values
from blocks import Stamp

Step = tuple[type[EventBase], dict[str, Any]]
"""An event that is still to be written: its class, and the fields that are its own."""

Track = list[Step]
"""Steps whose order is fixed; several tracks run at the same time."""

T = TypeVar("T")


def interleaved(rng: random.Random, tracks: list[list[T]]) -> Iterator[T]:
    """All items of all tracks; each track keeps its order."""
    left = [iter(track) for track in tracks]
    # Now and then one track after the other, as a model mostly writes.
    in_order = rng.random() < 0.3
    while left:
        track = left[0] if in_order else rng.choice(left)
        try:
            yield next(track)
        except StopIteration:
            left.remove(track)


def some_texts(stamp: Stamp) -> list[str]:
    return [values.text(stamp.rng) for _ in range(stamp.rng.randint(0, 5))]


def text(stamp: Stamp, block_id: str) -> Track:
    block = {"block_id": block_id}
    # A voice reply that was cut short says at its end what was heard.
    heard = stamp.rng.choice((None, None, None, "", values.text(stamp.rng)))
    return [
        (TextBlockStartEvent, block),
        *((TextBlockDeltaEvent, block | {"delta": delta}) for delta in some_texts(stamp)),
        (TextBlockEndEvent, block if heard is None else block | {"text": heard}),
    ]


def thinking(stamp: Stamp, block_id: str) -> Track:
    block = {"block_id": block_id}
    return [
        (ThinkingBlockStartEvent, block),
        *((ThinkingBlockDeltaEvent, block | {"delta": delta}) for delta in some_texts(stamp)),
        (ThinkingBlockEndEvent, block),
    ]


def data(stamp: Stamp, block_id: str) -> Track:
    rng = stamp.rng
    block = {"block_id": block_id}
    media = block | {"media_type": rng.choice(values.MEDIA)}
    chunks = [{"data": values.chunk(rng)} for _ in range(rng.randint(0, 6))]
    if rng.random() < 0.25:
        chunks = [{"url": rng.choice(values.URLS)}]
    return [
        (DataBlockStartEvent, media | rng.choice(({}, {"name": "a.png"}))),
        *((DataBlockDeltaEvent, media | chunk) for chunk in chunks),
        (DataBlockEndEvent, block),
    ]


def call(stamp: Stamp, block: ToolCallBlock) -> Track:
    call_id = {"tool_call_id": block.id}
    pieces = cut(stamp.rng, block.input)
    return [
        (ToolCallStartEvent, call_id | {"tool_call_name": block.name}),
        *((ToolCallDeltaEvent, call_id | {"delta": piece}) for piece in pieces),
        (ToolCallEndEvent, call_id),
    ]


def cut(rng: random.Random, text: str) -> Iterator[str]:
    while text:
        length = rng.randint(0, 5)
        yield text[:length]
        text = text[length:]


def hint(stamp: Stamp) -> Track:
    block = blocks.hint_block(stamp)
    return [(HintBlockEvent, {"block_id": block.id, "source": block.source, "hint": block.hint})]
