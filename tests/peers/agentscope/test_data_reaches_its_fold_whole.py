"""Base64 that is cut anywhere reaches AgentScope's fold, which decodes every delta on its own, in whole
groups.

The samples are lines of `{"stream": [events], "block": base64, "result": base64}`, written by
`cargo run -p turnwire-wires --example agentscope_samples -- SEED COUNT data`.
"""

import base64
import json
import typing
from collections.abc import Callable
from typing import Any

import pytest
from agentscope.event import AgentEvent, ReplyStartEvent
from agentscope.message import DataBlock, Msg, ToolResultBlock

from conftest import Fold

SAMPLES = 400

MODELS = {event.model_fields["type"].default: event for event in typing.get_args(AgentEvent)}

Json = dict[str, Any]


@pytest.fixture(scope="module")
def replies(samples: Callable[..., list[str]], seed: int) -> list[Json]:
    lines = samples(seed, SAMPLES, "data")
    assert len(lines) == SAMPLES
    return [json.loads(line) for line in lines]


def theirs(reply: Json) -> Msg:
    """What AgentScope folds the events to."""
    start, *rest = (MODELS[event["type"]].model_validate(event) for event in reply["stream"])
    assert isinstance(start, ReplyStartEvent)
    msg = Msg(name=start.name, content=[], role=start.role, id=start.reply_id)
    for event in rest:
        msg.append_event(event)
    return msg


def test_a_data_block_folds_to_its_bytes(replies: list[Json]) -> None:
    for reply in replies:
        [block] = theirs(reply).get_content_blocks("data")
        assert isinstance(block, DataBlock)
        assert block.source.data == reply["block"], json.dumps(reply)


def test_the_data_of_a_result_is_its_bytes_piece_by_piece(replies: list[Json]) -> None:
    """Each delta is a block of its own there; every one of them can be decoded."""
    for reply in replies:
        [result] = theirs(reply).get_content_blocks("tool_result")
        assert isinstance(result, ToolResultBlock)
        pieces = [base64.b64decode(part.source.data, validate=True) for part in result.output]
        assert b"".join(pieces) == base64.b64decode(reply["result"]), json.dumps(reply)


def test_ours_reads_the_deltas_as_they_were(replies: list[Json], fold: Fold) -> None:
    for reply in replies[:40]:
        body = b"".join(json.dumps(event).encode() + b"\n" for event in reply["stream"])
        folded = fold(body, "--wire", "agentscope")
        assert (folded.status, folded.problems) == (0, "")
        [message] = folded.messages
        [block, result] = message["content"]
        assert block["source"]["data"] == reply["block"]
        assert "".join(part["source"]["data"] for part in result["output"]) == reply["result"]


def test_the_samples_are_cut_inside_groups(replies: list[Json]) -> None:
    """The other tests here are worth no more than the samples."""
    events = [event for reply in replies for event in reply["stream"]]
    originals = [event["turnwire"] for event in events if "turnwire" in event]
    cut = [event for event in originals if event and len(event["data"]) % 4]
    assert cut
    assert any(event is None for event in originals)
