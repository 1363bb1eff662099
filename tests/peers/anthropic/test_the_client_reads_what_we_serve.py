"""The real client on an agent's reply: what it puts together, and what it would have let pass."""

from typing import Any

import anthropic
import pytest
from conftest import Json, Scenario

ASKED = {
    "model": "friday-1",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Hi!"}],
}


def plain(value: Any) -> Any:
    """A block without the fields that the client adds where the wire has nothing."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if inner is not None}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def test_the_helper_puts_the_message_together(
    client: anthropic.Anthropic, scenario: Scenario
) -> None:
    expected = scenario.expected
    if "error" in expected:
        with pytest.raises(anthropic.APIStatusError) as raised:
            with client.messages.stream(**ASKED) as stream:
                stream.until_done()
        assert raised.value.body == {"type": "error", "error": expected["error"]}
        return
    with client.messages.stream(**ASKED) as stream:
        got = stream.get_final_message().to_dict()
    assert [plain(block) for block in got["content"]] == expected["content"]
    assert got["stop_reason"] == expected["stop_reason"]
    usage = {key: got["usage"][key] for key in ("input_tokens", "output_tokens")}
    assert usage == expected["usage"]
    assert (got["id"], got["model"], got["role"]) == ("reply-1", "friday-1", "assistant")


def test_the_raw_stream_is_in_order(client: anthropic.Anthropic, scenario: Scenario) -> None:
    """The client appends blocks as they come and never looks for an end: so we do."""
    events: list[Json] = []
    try:
        for event in client.messages.create(stream=True, **ASKED):
            events.append(event.to_dict())
    except anthropic.APIStatusError:
        assert "error" in scenario.expected
    assert events[0]["type"] == "message_start"
    open_block, count = None, 0
    for event in events[1:]:
        kind = event["type"]
        if kind == "content_block_start":
            assert (open_block, event["index"]) == (None, count)
            open_block = count
        elif kind == "content_block_delta":
            assert event["index"] == open_block
        elif kind == "content_block_stop":
            assert event["index"] == open_block
            open_block, count = None, count + 1
        else:
            assert open_block is None, kind
    kinds = [event["type"] for event in events]
    assert kinds.count("message_start") == kinds.count("message_delta") == 1
    if "error" in scenario.expected:
        assert "message_stop" not in kinds
        return
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("message_stop") == 1
    assert events[-2]["delta"]["stop_reason"] == scenario.expected["stop_reason"]
    assert count == len(scenario.expected["content"])


def test_the_names_of_the_frames_are_their_types(scenario: Scenario) -> None:
    """The client passes over a frame without a name."""
    frames = [frame for frame in scenario.body.split("\n\n") if frame and frame[0] != ":"]
    for frame in frames:
        name, data = frame.split("\n")
        kind = name.removeprefix("event: ")
        assert data.startswith(f'data: {{"type":"{kind}"'), frame
