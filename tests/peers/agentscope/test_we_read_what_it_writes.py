"""Every event and every message that AgentScope can write is one to us, and comes back the same."""

import json
import random
import typing
from collections.abc import Callable
from typing import Literal

from agentscope.event import AgentEvent, EventBase
from agentscope.message import ContentBlock, Msg, Usage
from agentscope.types import ErrorInfo, ErrorType, ReplyFinishedReason

import blocks
import values
from blocks import Stamp
from conftest import Fold
from examples import instances

EVENTS: tuple[type[EventBase], ...] = typing.get_args(AgentEvent)

TYPES = {
    "REPLY_START", "REPLY_END", "MODEL_CALL_START", "MODEL_CALL_END",
    "TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END",
    "THINKING_BLOCK_START", "THINKING_BLOCK_DELTA", "THINKING_BLOCK_END",
    "DATA_BLOCK_START", "DATA_BLOCK_DELTA", "DATA_BLOCK_END", "HINT_BLOCK",
    "TOOL_CALL_START", "TOOL_CALL_DELTA", "TOOL_CALL_END",
    "TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_DATA_DELTA", "TOOL_RESULT_END",
    "REQUIRE_USER_CONFIRM", "USER_CONFIRM_RESULT",
    "REQUIRE_EXTERNAL_EXECUTION", "EXTERNAL_EXECUTION_RESULT",
    "USER_INTERRUPT", "EXCEED_MAX_ITERS", "CUSTOM",
}  # fmt: skip


def test_agentscope_has_the_events_that_we_know_and_no_others() -> None:
    assert {event.model_fields["type"].default for event in EVENTS} == TYPES


def test_agentscope_has_the_blocks_that_we_know_and_no_others() -> None:
    assert set(typing.get_args(ContentBlock)) == set(blocks.MAKERS)


def test_every_event_is_read(fold: Fold) -> None:
    body = "\n".join(e.model_dump_json() for event in EVENTS for e in instances(event)).encode()
    for wire in ("turnwire", "agentscope"):
        folded = fold(body, "--tolerant", "--wire", wire)
        # Most of them do not fit together; a line that is no event at all would be an error.
        errors = [line for line in folded.problems.splitlines() if line.startswith("error")]
        assert (folded.status, errors) == (0, [])


def test_every_event_is_known_by_its_type(fold: Fold) -> None:
    """Any type is read; only one that we know has to name its reply."""
    events = [instances(event)[0] for event in EVENTS]
    events = [event for event in events if "reply_id" in type(event).model_fields]
    body = "\n".join(event.model_dump_json(exclude={"reply_id"}) for event in events).encode()
    problems = fold(body).problems.splitlines()
    assert problems == [
        f"error: line {line}: NotAnEvent: {event.type} has no `reply_id`"
        for line, event in enumerate(events, 1)
    ]


def test_every_message_comes_back_byte_for_byte(fold: Fold) -> None:
    assert_come_back(fold, list(instances(Msg)))


def test_any_message_comes_back_byte_for_byte(fold: Fold, seed: int) -> None:
    stamp = Stamp(random.Random(seed))
    assert_come_back(fold, [message(stamp) for _ in range(500)])


def assert_come_back(fold: Fold, messages: list[Msg]) -> None:
    messages = [msg.model_copy(update={"id": f"{n:032x}"}) for n, msg in enumerate(messages)]
    folded = fold(b"".join(map(as_pydantic_writes, messages)))
    assert (folded.status, folded.problems) == (0, "")
    for line, msg in zip(folded.lines, messages, strict=True):
        assert line.decode() == msg.model_dump_json()

    # As AgentScope's service writes it, its metadata is in ASCII and stays so: the same value.
    folded = fold(b"".join(map(as_the_service_writes, messages)))
    assert (folded.status, folded.problems) == (0, "")
    for read, msg in zip(folded.messages, messages, strict=True):
        assert read == msg.model_dump(mode="json")


def as_pydantic_writes(msg: Msg) -> bytes:
    return f'{{"type":"MESSAGE","id":"e{msg.id}","message":{msg.model_dump_json()}}}\n'.encode()


def as_the_service_writes(msg: Msg) -> bytes:
    event = {"type": "MESSAGE", "id": f"e{msg.id}", "message": msg.model_dump(mode="json")}
    return json.dumps(event).encode() + b"\n"


Role = Literal["user", "assistant", "system"]

HOLDS: dict[Role, list[Callable[[Stamp], blocks.Block]]] = {
    "user": [blocks.text_block, blocks.data_block],
    "assistant": list(blocks.MAKERS.values()),
    "system": [blocks.text_block],
}


def message(stamp: Stamp) -> Msg:
    rng = stamp.rng
    role = rng.choice(list(HOLDS))
    counts = [rng.choice((0, 5, 2**53 + 1)) for _ in range(4)]
    return Msg(
        name=values.text(rng),
        content=[make(stamp) for make in rng.choices(HOLDS[role], k=rng.randint(0, 12))],
        role=role,
        id=stamp.id(),
        metadata=values.json_object(rng, depth=3),
        created_at=stamp.now(),
        usage=rng.choice((None, Usage(**dict(zip(Usage.model_fields, counts, strict=True))))),
        finished_at=stamp.maybe_now(),
        finished_reason=rng.choice((None, *ReplyFinishedReason)),
        structured_output=rng.choice((None, values.json_object(rng, depth=3))),
        error=rng.choice((None, ErrorInfo(type=rng.choice(list(ErrorType)), message="no"))),
    )
