"""Where our fold differs from AgentScope's on purpose: one test per row of the table in
`docs/events.md`. Each shows what AgentScope does, by running it, and what Turnwire does.
"""

import json
import typing
from collections.abc import Callable
from typing import Any

import pytest
from agentscope.event import AgentEvent, ReplyStartEvent
from agentscope.message import Msg
from pydantic import ValidationError

from conftest import Fold, Folded

Json = dict[str, Any]

MODELS = {event.model_fields["type"].default: event for event in typing.get_args(AgentEvent)}

START = {"type": "REPLY_START", "session_id": "s", "name": "friday"}
END = {"type": "REPLY_END", "session_id": "s"}
CALL = [
    {"type": "TOOL_CALL_START", "tool_call_id": "c", "tool_call_name": "trade"},
    {"type": "TOOL_CALL_DELTA", "tool_call_id": "c", "delta": '{"amount": 1}'},
    {"type": "TOOL_CALL_END", "tool_call_id": "c"},
]
RESULT_START = {"type": "TOOL_RESULT_START", "tool_call_id": "c", "tool_call_name": "trade"}
RESULT_END = {"type": "TOOL_RESULT_END", "tool_call_id": "c", "state": "success"}
THE_CALL = {"id": "c", "name": "trade", "input": '{"amount": 1}'}
ASK = {"type": "REQUIRE_USER_CONFIRM", "tool_calls": [THE_CALL]}
SUBMIT = {"type": "REQUIRE_EXTERNAL_EXECUTION", "tool_calls": [THE_CALL]}


def numbered(*events: Json) -> list[Json]:
    """The events of the reply `r`: the first is `e1`, made in minute 01, and so on."""
    return [
        {"id": f"e{n}", "created_at": f"2026-01-01T00:{n:02}", "reply_id": "r"} | event
        for n, event in enumerate(events, 1)
    ]


def text(block_id: str, *deltas: str) -> list[Json]:
    block = {"block_id": block_id}
    return [
        {"type": "TEXT_BLOCK_START"} | block,
        *({"type": "TEXT_BLOCK_DELTA", "delta": delta} | block for delta in deltas),
        {"type": "TEXT_BLOCK_END"} | block,
    ]


def as_lines(events: list[Json]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def theirs(events: list[Json]) -> Json:
    """What AgentScope folds the events to."""
    start, *rest = (MODELS[event["type"]].model_validate(event) for event in events)
    assert isinstance(start, ReplyStartEvent)
    msg = Msg(name=start.name, content=[], role=start.role, id=start.reply_id)
    for event in rest:
        msg.append_event(event)
    return msg.model_dump(mode="json")


Ours = Callable[[list[Json]], Json]


@pytest.fixture
def fold_events(fold: Fold) -> Callable[[list[Json]], Folded]:
    return lambda events: fold(as_lines(events))


@pytest.fixture
def ours(fold_events: Callable[[list[Json]], Folded]) -> Ours:
    """What Turnwire folds the events to, without a problem."""

    def run(events: list[Json]) -> Json:
        folded = fold_events(events)
        assert (folded.status, folded.problems) == (0, "")
        [message] = folded.messages
        return message

    return run


@pytest.fixture
def refusal(fold_events: Callable[[list[Json]], Folded]) -> Callable[[list[Json]], str]:
    """Why Turnwire refuses the events."""

    def run(events: list[Json]) -> str:
        folded = fold_events(events)
        assert (folded.status, folded.lines) == (1, [])
        [problem] = folded.problems.splitlines()
        return problem

    return run


Refusal = Callable[[list[Json]], str]


def block(message: Json, type: str) -> Json:
    """The only block of this type."""
    [found] = [block for block in message["content"] if block["type"] == type]
    return found


def test_a_block_is_created_when_its_start_event_was(ours: Ours) -> None:
    events = numbered(START, *text("t", "hi"))
    # The clock of the machine that folds, which is later.
    assert block(theirs(events), "text")["created_at"] > "2026-01-01T01"
    assert block(ours(events), "text")["created_at"] == "2026-01-01T00:02"
    assert ours(events)["created_at"] == "2026-01-01T00:01"


def test_text_in_a_tool_result_has_an_id_made_of_the_call_and_the_position(ours: Ours) -> None:
    data = {"type": "TOOL_RESULT_DATA_DELTA", "tool_call_id": "c", "block_id": "d"}
    data |= {"media_type": "image/png", "data": "aGk="}
    words = {"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": "c", "delta": "and"}
    events = numbered(START, RESULT_START, data, words, RESULT_END)

    def ids(message: Json) -> list[str]:
        return [part["id"] for part in block(message, "tool_result")["output"]]

    assert ids(theirs(events)) != ids(theirs(events))
    assert ids(ours(events)) == ["d", "c-1"]


def test_a_repeated_event_is_ignored(ours: Ours) -> None:
    start, delta, end = text("t", "hi")
    once = numbered(START, start, delta, end)
    twice = [*once[:3], once[2], once[3]]
    assert block(theirs(twice), "text")["text"] == "hihi"
    assert ours(twice) == ours(once)


def test_a_late_question_does_not_reopen_a_finished_call(ours: Ours) -> None:
    events = numbered(START, *CALL, RESULT_START, RESULT_END, ASK)
    assert block(theirs(events), "tool_call")["state"] == "asking"
    assert ours(events) == ours(events[:-1])
    assert block(ours(events), "tool_call")["state"] == "finished"


def test_an_input_that_the_user_edits_is_applied(ours: Ours) -> None:
    edited = THE_CALL | {"input": '{"amount": 2}'}
    answer = {"confirmed": True, "tool_call": edited}
    result = {"type": "USER_CONFIRM_RESULT", "confirm_results": [answer]}
    events = numbered(START, *CALL, ASK, result)
    assert block(theirs(events), "tool_call")["input"] == '{"amount": 1}'
    assert block(ours(events), "tool_call")["input"] == '{"amount": 2}'


def test_an_external_result_finishes_the_call(ours: Ours) -> None:
    result = {"id": "c", "name": "trade", "output": "done", "state": "success"}
    come = {"type": "EXTERNAL_EXECUTION_RESULT", "execution_results": [result]}
    # Whether the agent has begun a result, as it does, or the result comes whole.
    for begun in ([RESULT_START], []):
        events = numbered(START, *CALL, *begun, SUBMIT, come)
        assert block(theirs(events), "tool_call")["state"] == "submitted"
        assert block(ours(events), "tool_call")["state"] == "finished"


def test_a_custom_event_changes_nothing(ours: Ours) -> None:
    custom = {"type": "CUSTOM", "name": "state_updated", "value": {"tasks": 3}}
    events = numbered(START, *text("t", "hi"), custom)
    with pytest.raises(AttributeError, match="reply_id"):
        theirs(events)
    assert ours(events) == ours(events[:-1])


def test_data_may_be_cut_anywhere(ours: Ours) -> None:
    def in_pieces(*pieces: str) -> list[Json]:
        media = {"block_id": "d", "media_type": "text/plain"}
        return numbered(
            START,
            {"type": "DATA_BLOCK_START"} | media,
            *({"type": "DATA_BLOCK_DELTA", "data": piece} | media for piece in pieces),
            {"type": "DATA_BLOCK_END", "block_id": "d"},
        )

    cut = in_pieces("aGVs", "b", "G8=")
    with pytest.raises(ValueError, match="Invalid base64"):
        theirs(cut)
    assert block(ours(cut), "data")["source"]["data"] == "aGVsbG8="
    # Pieces that are whole in themselves are the same to both.
    whole = in_pieces("aGU=", "bGxv")
    for fold in (theirs, ours):
        assert block(fold(whole), "data")["source"]["data"] == "aGVsbG8="


def test_two_data_deltas_with_one_id_are_one_block_of_a_tool_result(ours: Ours) -> None:
    media = {"tool_call_id": "c", "block_id": "d", "media_type": "text/plain"}
    deltas = [{"type": "TOOL_RESULT_DATA_DELTA", "data": d} | media for d in ("aGU=", "bGxv")]
    events = numbered(START, RESULT_START, *deltas, RESULT_END)

    def output(message: Json) -> list[tuple[str, str]]:
        return [(p["id"], p["source"]["data"]) for p in block(message, "tool_result")["output"]]

    assert output(theirs(events)) == [("d", "aGU="), ("d", "bGxv")]
    assert output(ours(events)) == [("d", "aGVsbG8=")]


def test_structured_output_comes_with_the_end(ours: Ours) -> None:
    output = {"answer": 42}
    events = numbered(START, END | {"structured_output": output})
    assert theirs(events)["structured_output"] is None
    assert ours(events)["structured_output"] == output


@pytest.mark.parametrize(
    ("type", "begin"),
    [
        ("text", {"block_id": "b"}),
        ("thinking", {"block_id": "b"}),
        ("data", {"block_id": "b", "media_type": "image/png"}),
        ("tool_call", {"tool_call_id": "b", "tool_call_name": "trade"}),
    ],
)
def test_a_signature_and_other_extras_become_fields_of_the_block(
    ours: Ours, type: str, begin: Json
) -> None:
    word = type.upper() if type == "tool_call" else f"{type.upper()}_BLOCK"
    extra = {"signature": "sig", "n": 1.5, "id": "never", "type": "never"}
    end = {"type": f"{word}_END", "extra": extra} | begin
    events = numbered(START, {"type": f"{word}_START"} | begin, end)
    before = block(ours(numbered(*events[:2], end | {"extra": {}})), type)
    assert "signature" not in block(theirs(events), type)
    assert block(ours(events), type) == before | {"signature": "sig", "n": 1.5}


@pytest.mark.parametrize("late", [END | {"finished_reason": "error"}, text("t")[0]])
def test_nothing_comes_after_the_end(refusal: Refusal, late: Json) -> None:
    events = numbered(START, END, late)
    message = theirs(events)
    assert message["finished_reason"] == "error" or message["content"]
    assert refusal(events) == (
        f"error: line 3: AlreadyEnded: {late['type']} after the end of the reply r; "
        "a finished reply accepts no more events"
    )


def test_a_second_start_of_a_block_is_refused(refusal: Refusal) -> None:
    start = text("t")[0]
    events = numbered(START, start, start)
    assert [block["id"] for block in theirs(events)["content"]] == ["t", "t"]
    problem = "error: line 3: DuplicateBlock: the text block t exists already"
    assert refusal(events) == problem


def test_a_delta_after_the_end_of_its_block_is_refused_or_reported(
    refusal: Refusal, fold: Fold
) -> None:
    start, delta, end = text("t", "hi")
    events = numbered(START, start, end, delta)
    assert block(theirs(events), "text")["text"] == "hi"
    assert refusal(events) == "error: line 4: AlreadyEnded: the text block t has ended"
    folded = fold(as_lines(events), "--tolerant")
    assert folded.problems == "warning: line 4: AlreadyEnded: the text block t has ended\n"
    [message] = folded.messages
    assert block(message, "text")["text"] == "hi"


def test_a_late_submission_does_not_reopen_a_finished_call(ours: Ours) -> None:
    events = numbered(START, *CALL, RESULT_START, RESULT_END, SUBMIT)
    assert block(theirs(events), "tool_call")["state"] == "submitted"
    assert ours(events) == ours(events[:-1])
    assert block(ours(events), "tool_call")["state"] == "finished"


def test_there_is_a_role_for_tool_results(ours: Ours, refusal: Refusal) -> None:
    events = numbered(START | {"role": "tool"}, RESULT_START, RESULT_END)
    with pytest.raises(ValidationError, match="role"):
        theirs(events)
    assert ours(events)["role"] == "tool"
    assert "WrongRole" in refusal(numbered(START | {"role": "tool"}, *text("t")[:1]))


def test_a_repeated_model_call_takes_out_what_the_broken_one_left(ours: Ours) -> None:
    tokens = {"input_tokens": 1, "output_tokens": 1}
    end = {"type": "MODEL_CALL_END", "discard": ["broken"]} | tokens
    events = numbered(START, *text("broken", "Hel")[:2], end, *text("again", "Hello"))
    assert [block["id"] for block in theirs(events)["content"]] == ["broken", "again"]
    assert [block["id"] for block in ours(events)["content"]] == ["again"]


def test_a_block_that_no_event_can_build_is_appended_whole(ours: Ours) -> None:
    item = {"type": "web_search_call", "id": "ws", "query": "weather", "status": {"done": True}}
    events = numbered(START, {"type": "BLOCK", "block": item})
    assert "BLOCK" not in MODELS
    assert ours(events)["content"] == [item]


def test_metadata_of_the_reply_comes_with_the_end(ours: Ours) -> None:
    metadata = {"generate_reason": "MODEL_STOP"}
    events = numbered(START, END | {"message_metadata": metadata})
    assert theirs(events)["metadata"] == {}
    assert ours(events)["metadata"] == metadata


def test_a_sub_agent_folds_into_its_own_message(fold_events: Callable[..., Folded]) -> None:
    main = numbered(START, *CALL, RESULT_START, RESULT_END, END)
    agent = {"agent_path": "main/researcher", "parent_tool_call_id": "c", "reply_id": "sub"}
    sub = [
        event | agent | {"id": f"s{event['id']}"}
        for event in numbered(START | {"name": "researcher"}, *text("t", "found"), END)
    ]
    # AgentScope knows no such fields and passes over them.
    for event in sub:
        model = MODELS[event["type"]].model_validate(event)
        assert not {"agent_path", "parent_tool_call_id"} & set(model.model_dump())
    folded = fold_events([*main[:5], *sub, *main[5:]])
    assert folded.problems == ""
    [of_main, of_sub] = folded.messages
    assert [of_main] == fold_events(main).messages
    assert (of_sub["id"], of_sub["name"]) == ("sub", "researcher")
    assert block(of_sub, "text")["text"] == "found"
