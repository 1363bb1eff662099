"""For every well-formed stream our fold gives the message that AgentScope's gives."""

import random
import typing
from collections import Counter

import pytest
from agentscope.event import AgentEvent
from agentscope.message import ContentBlock, ToolCallState, ToolResultState
from agentscope.types import ReplyFinishedReason

from conftest import Fold, Folded
from streams import Stream, stream
from their_fold import expected

STREAMS = 300


@pytest.fixture(scope="module")
def streams(seed: int) -> list[Stream]:
    return [stream(seed + number) for number in range(STREAMS)]


@pytest.fixture(scope="module")
def folded(fold: Fold, streams: list[Stream]) -> Folded:
    return fold(as_lines(streams))


def as_lines(streams: list[Stream]) -> bytes:
    return b"".join(line + b"\n" for one in streams for line in one.lines)


def assert_same(one: Folded, other: Folded) -> None:
    assert (one.status, one.problems) == (other.status, other.problems)
    for line, other_line in zip(one.lines, other.lines, strict=True):
        assert line == other_line


def test_every_reply_folds_to_the_message_that_agentscope_folds(
    streams: list[Stream], folded: Folded
) -> None:
    assert (folded.status, folded.problems) == (0, "")
    # In the order of their first events.
    order = {e.reply_id: None for one in streams for e in one.events if hasattr(e, "reply_id")}
    messages = {message["id"]: message for message in folded.messages}
    assert list(messages) == list(order)
    for one in streams:
        for reply in one.replies:
            lines = b"\n".join(one.lines).decode()
            assert messages[reply.reply_id] == expected(reply.events), (
                f"reply {reply.reply_id} of the stream with seed {one.seed}:\n{lines}"
            )


def test_the_agentscope_wire_folds_to_the_same_bytes(
    fold: Fold, streams: list[Stream], folded: Folded
) -> None:
    assert_same(fold(as_lines(streams), "--wire", "agentscope"), folded)


def test_the_tolerant_fold_gives_the_same_bytes_and_no_warning(
    fold: Fold, streams: list[Stream], folded: Folded
) -> None:
    assert_same(fold(as_lines(streams), "--tolerant"), folded)


def test_a_server_sent_body_folds_to_the_same_bytes(
    fold: Fold, streams: list[Stream], folded: Folded, seed: int
) -> None:
    rng = random.Random(seed)
    events = (server_sent(rng, line) for one in streams for line in one.lines)
    assert_same(fold(b": hello\r\n\r\n" + b"".join(events)), folded)


def server_sent(rng: random.Random, line: bytes) -> bytes:
    """One event with all that a server may put around it."""
    end = rng.choice((b"\n", b"\r\n"))
    # Data may be spread over several lines wherever JSON takes a line end.
    data = rng.choice(([line], [line], [b"{", line[1:-1], b"}"]))
    space = rng.choice((b" ", b""))
    fields = [b"data:" + space + part for part in data]
    around = (b"id: 1763.42", b": keep-alive", b"event: message", b"retry: 3000")
    fields = [field for field in around if rng.random() < 0.3] + fields
    return end.join(fields) + end + end


def test_every_event_delivered_twice_folds_to_the_same_bytes(
    fold: Fold, streams: list[Stream], folded: Folded
) -> None:
    assert_same(fold(as_lines(streams) * 2), folded)


def test_the_streams_hold_every_event_and_every_outcome(
    streams: list[Stream], folded: Folded
) -> None:
    """The other tests here are worth no more than what the streams are made of."""
    seen = Counter(type(event) for one in streams for event in one.events)
    assert set(seen) == set(typing.get_args(AgentEvent))

    messages = folded.messages
    blocks = [block for message in messages for block in message["content"]]

    def words(type: str, field: str = "state") -> set[str]:
        return {block[field] for block in blocks if block["type"] == type}

    kinds = {kind.model_fields["type"].default for kind in typing.get_args(ContentBlock)}
    assert {block["type"] for block in blocks} == kinds
    assert words("tool_call") == {state.value for state in ToolCallState}
    assert words("tool_result") == {state.value for state in ToolResultState}
    reasons = {reason.value for reason in ReplyFinishedReason}
    assert {message["finished_reason"] for message in messages} == {None, *reasons}
