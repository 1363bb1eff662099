"""Where the fold differs from AgentScope's on purpose: each test shows what both make of the same events.

`docs/events.md` has the list; every row of it has a test here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agentscope_side import EVENTS, fold_theirs
from turnwire import Folder, FoldError

Json = dict[str, Any]
Test = TypeVar("Test", bound=Callable[..., None])

PAGE = Path(__file__).parents[3] / "docs/events.md"
SHOWN: list[str] = []

START: Json = {"type": "REPLY_START", "session_id": "s", "name": "friday"}
END: Json = {"type": "REPLY_END", "session_id": "s"}
TEXT: Json = {"type": "TEXT_BLOCK_START", "block_id": "t"}
DELTA: Json = {"type": "TEXT_BLOCK_DELTA", "block_id": "t", "delta": "hi"}
TEXT_END: Json = {"type": "TEXT_BLOCK_END", "block_id": "t"}
CALL: list[Json] = [
    {"type": "TOOL_CALL_START", "tool_call_id": "c", "tool_call_name": "trade"},
    {"type": "TOOL_CALL_DELTA", "tool_call_id": "c", "delta": '{"amount": 1}'},
    {"type": "TOOL_CALL_END", "tool_call_id": "c"},
]
RESULT: Json = {"type": "TOOL_RESULT_START", "tool_call_id": "c", "tool_call_name": "trade"}
RESULT_END: Json = {"type": "TOOL_RESULT_END", "tool_call_id": "c", "state": "success"}
THE_CALL: Json = {"id": "c", "name": "trade", "input": '{"amount": 1}'}
ASK: Json = {"type": "REQUIRE_USER_CONFIRM", "tool_calls": [THE_CALL]}
SUBMIT: Json = {"type": "REQUIRE_EXTERNAL_EXECUTION", "tool_calls": [THE_CALL]}


def row(name: str) -> Callable[[Test], Test]:
    """The row of the list that a test shows."""

    def note(test: Test) -> Test:
        SHOWN.append(name)
        return test

    return note


def reply(*events: Json) -> list[Json]:
    """The events of the reply `r`: the first is `e1`, of minute 1, and so on."""
    stamps = ({"id": f"e{n}", "created_at": f"2026-01-01T00:{n:02}"} for n in range(1, 100))
    return [stamp | {"reply_id": "r"} | event for stamp, event in zip(stamps, events, strict=False)]


def fold_ours(events: list[Json]) -> Json:
    folder = Folder()
    for event in events:
        folder.push(event)
    [msg] = folder.messages()
    return dict(msg.to_dict())


def refusal(events: list[Json]) -> str:
    """Why ours refuses the last of these events. It then is as if it had not come."""
    folder = Folder()
    for event in events[:-1]:
        folder.push(event)
    with pytest.raises(FoldError) as error:
        folder.push(events[-1])
    [msg] = folder.messages()
    assert msg.to_dict() == fold_ours(events[:-1])
    return error.value.kind


def block(message: Json, kind: str) -> Json:
    [found] = [block for block in message["content"] if block["type"] == kind]
    return dict(found)


def test_every_row_of_the_list_is_shown() -> None:
    table = PAGE.read_text().split("## Where the fold differs from AgentScope's")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", table, re.M)[1:]
    assert sorted(set(SHOWN)) == sorted(rows)


@row("a block's `created_at`")
def test_a_block_was_created_when_its_start_was() -> None:
    events = reply(START, TEXT, DELTA, TEXT_END)
    assert block(fold_theirs(events), "text")["created_at"] > "2026-01-01T01"
    assert block(fold_ours(events), "text")["created_at"] == "2026-01-01T00:02"


@row("text inside a tool result")
def test_text_in_a_result_has_the_same_id_each_time() -> None:
    events = reply(START, *CALL, RESULT, {"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": "c", "delta": "18"})
    ids = [block(fold_theirs(events), "tool_result")["output"][0]["id"] for _ in range(2)]
    assert ids[0] != ids[1]
    assert block(fold_ours(events), "tool_result")["output"][0]["id"] == "c-0"


@row("a repeated event")
def test_a_repeated_event_changes_nothing() -> None:
    once = reply(START, TEXT, DELTA)
    assert block(fold_theirs([*once, once[-1]]), "text")["text"] == "hihi"
    assert fold_ours([*once, once[-1]]) == fold_ours(once)


@row("a late `REQUIRE_USER_CONFIRM` or `REQUIRE_EXTERNAL_EXECUTION` for a finished call")
@pytest.mark.parametrize(("late", "state"), [(ASK, "asking"), (SUBMIT, "submitted")])
def test_a_finished_call_stays_finished(late: Json, state: str) -> None:
    events = reply(START, *CALL, RESULT, RESULT_END, late)
    assert block(fold_theirs(events), "tool_call")["state"] == state
    assert fold_ours(events) == fold_ours(events[:-1])
    assert block(fold_ours(events), "tool_call")["state"] == "finished"


@row("a person edits a tool's input while confirming")
def test_an_edited_input_is_in_the_message() -> None:
    answer = {"confirmed": True, "tool_call": THE_CALL | {"input": '{"amount": 2}'}}
    events = reply(START, *CALL, ASK, {"type": "USER_CONFIRM_RESULT", "confirm_results": [answer]})
    assert block(fold_theirs(events), "tool_call")["input"] == '{"amount": 1}'
    assert block(fold_ours(events), "tool_call")["input"] == '{"amount": 2}'


@row("`EXTERNAL_EXECUTION_RESULT`")
@pytest.mark.parametrize("begun", [[], [RESULT]])
def test_a_result_of_the_client_finishes_its_call(begun: list[Json]) -> None:
    result = {"id": "c", "name": "trade", "output": "done", "state": "success"}
    events = reply(START, *CALL, *begun, SUBMIT, {"type": "EXTERNAL_EXECUTION_RESULT", "execution_results": [result]})
    assert block(fold_theirs(events), "tool_call")["state"] == "submitted"
    assert block(fold_ours(events), "tool_call")["state"] == "finished"


@row("`CUSTOM`")
def test_a_custom_event_changes_nothing() -> None:
    events = reply(START, TEXT, DELTA, {"type": "CUSTOM", "name": "state_updated", "value": {"tasks": 3}})
    with pytest.raises(AttributeError, match="reply_id"):
        fold_theirs(events)
    assert fold_ours(events) == fold_ours(events[:-1])


@row("data deltas")
def test_data_may_be_cut_anywhere() -> None:
    media = {"block_id": "d", "media_type": "text/plain"}
    deltas = [{"type": "DATA_BLOCK_DELTA", "data": data} | media for data in ("aGVs", "b", "G8=")]
    events = reply(START, {"type": "DATA_BLOCK_START"} | media, *deltas, {"type": "DATA_BLOCK_END", "block_id": "d"})
    with pytest.raises(ValueError, match="Invalid base64"):
        fold_theirs(events)
    assert block(fold_ours(events), "data")["source"]["data"] == "aGVsbG8="


@row("two `TOOL_RESULT_DATA_DELTA` with one `block_id`")
def test_data_of_a_result_with_one_id_is_one_part() -> None:
    media = {"tool_call_id": "c", "block_id": "d", "media_type": "text/plain"}
    deltas = [{"type": "TOOL_RESULT_DATA_DELTA", "data": data} | media for data in ("aGU=", "bGxv")]
    events = reply(START, *CALL, RESULT, *deltas, RESULT_END)

    def parts(message: Json) -> list[str]:
        return [part["source"]["data"] for part in block(message, "tool_result")["output"]]

    assert parts(fold_theirs(events)) == ["aGU=", "bGxv"]
    assert parts(fold_ours(events)) == ["aGVsbG8="]


@row("anything after `REPLY_END`")
@pytest.mark.parametrize("late", [TEXT, END | {"finished_reason": "error"}])
def test_nothing_comes_after_the_end(late: Json) -> None:
    events = reply(START, END, late)
    assert fold_theirs(events) != fold_theirs(events[:-1])
    assert refusal(events) == "AlreadyEnded"


@row("a second start of the same block")
def test_a_block_starts_once() -> None:
    events = reply(START, TEXT, TEXT)
    assert [block["id"] for block in fold_theirs(events)["content"]] == ["t", "t"]
    assert refusal(events) == "DuplicateBlock"


@row("a delta for a block that has ended")
def test_a_late_delta_is_refused_or_reported() -> None:
    events = reply(START, TEXT, TEXT_END, DELTA)
    assert block(fold_theirs(events), "text")["text"] == "hi"
    assert refusal(events) == "AlreadyEnded"
    folder = Folder()
    problems = [folder.push_tolerant(event)[1] for event in events]
    assert [problem.kind for problem in problems if problem] == ["AlreadyEnded"]
    assert folder.messages()[0].get_text_content() == "hi"


@row("structured output, thinking signatures, metadata of the reply")
def test_all_of_a_message_is_in_its_events() -> None:
    thought = {"type": "THINKING_BLOCK_START", "block_id": "h"}
    thought_end = {"type": "THINKING_BLOCK_END", "block_id": "h", "extra": {"signature": "sig"}}
    end = END | {"structured_output": {"answer": 42}, "message_metadata": {"by": "test"}}
    events = reply(START, thought, thought_end, end)
    theirs, ours = fold_theirs(events), fold_ours(events)
    assert (theirs["structured_output"], theirs["metadata"]) == (None, {})
    assert "signature" not in block(theirs, "thinking")
    assert (ours["structured_output"], ours["metadata"]) == ({"answer": 42}, {"by": "test"})
    assert block(ours, "thinking")["signature"] == "sig"


# ---- what only Turnwire has ----


def test_a_repeated_model_call_removes_the_blocks_of_the_broken_one() -> None:
    end = {"type": "MODEL_CALL_END", "input_tokens": 1, "output_tokens": 1, "discard": ["t"]}
    events = reply(START, TEXT, DELTA, end, TEXT | {"block_id": "again"})
    assert [block["id"] for block in fold_theirs(events)["content"]] == ["t", "again"]
    assert [block["id"] for block in fold_ours(events)["content"]] == ["again"]


def test_a_block_of_any_type_comes_whole() -> None:
    item = {"type": "web_search_call", "id": "w", "query": "weather"}
    assert "BLOCK" not in EVENTS
    assert fold_ours(reply(START, {"type": "BLOCK", "block": item}))["content"] == [item]


def test_a_sub_agent_has_a_message_of_its_own() -> None:
    path = {"agent_path": "main/researcher", "parent_tool_call_id": "c", "reply_id": "sub"}
    sub = [event | path | {"id": f"s{event['id']}"} for event in reply(START, TEXT, DELTA, END)]
    for event in sub:
        assert "agent_path" not in EVENTS[event["type"]].model_validate(event).model_dump()
    folder = Folder()
    for event in [*reply(START, *CALL, RESULT), *sub]:
        folder.push(event)
    assert [msg.id for msg in folder.messages()] == ["r", "sub"]
