"""A program of a user. `mypy --strict` and `pyright` find nothing in it; `tests/test_typing.py` runs both,
and checks that they find the mistakes of `mistakes.py`."""

from __future__ import annotations

from typing_extensions import assert_type

from turnwire import Folder, FoldError, Msg, wires
from turnwire.types import Event, TextBlock


def fold(events: list[Event]) -> str | None:
    folder = Folder()
    for event in events:
        if event["type"] == "TEXT_BLOCK_DELTA":
            assert_type(event["delta"], str)
        elif event["type"] == "REQUIRE_USER_CONFIRM":
            assert_type(event["tool_calls"][0]["name"], str)
        outcome, problem = folder.push_tolerant(event)
        assert_type(problem, FoldError | None)
        if outcome == "skipped":
            return None
    message = folder.history()[-1]
    assert_type(message.get_content_blocks("text"), list[TextBlock])
    return message.get_text_content()


def convert(body: bytes) -> bytes:
    decoder = wires.Decoder("openai-chat", scope="reply")
    return wires.encode("ag-ui", decoder.feed(body) + decoder.end())


def greet() -> list[Msg]:
    return [Msg.system("Be kind."), Msg.user([{"type": "text", "text": "hi"}], name="alice")]
