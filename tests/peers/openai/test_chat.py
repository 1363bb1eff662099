"""OpenAI's own package reads the chat streams that Turnwire writes."""

from collections.abc import Callable, Iterable

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from conftest import Json, Serve, scenarios_of

ASKED = [{"role": "user", "content": "Hi"}]

NAMES = [
    "plain text",
    "thinking",
    "a tool of the client's",
    "parallel tools of the client's",
    "tools that the agent serves",
    "served and open tools in one turn",
    "structured output",
    "nothing at all",
    "interruption",
    "length",
    "refusal",
    "error",
    "a turn that breaks off",
]
FAILING = ["error", "a turn that breaks off"]
# Ends for which the package has an error of its own: it holds the answer.
CUT_SHORT = {"length": openai.LengthFinishReasonError, "refusal": openai.ContentFilterFinishReasonError}
WHOLE = [name for name in NAMES if name not in FAILING]

Client = Callable[[Json], OpenAI]


@pytest.fixture(scope="session")
def chat() -> dict[str, Json]:
    return scenarios_of("SCENARIOS_CHAT", "openai_chat_scenarios")


@pytest.fixture
def client(serve: Serve) -> Client:
    def connect(scenario: Json) -> OpenAI:
        return OpenAI(base_url=serve(lambda *_: scenario["body"]), api_key="none", max_retries=0)

    return connect


def test_every_scenario_is_tested(chat: dict[str, Json]) -> None:
    assert list(chat) == NAMES


def put_together(chunks: Iterable[ChatCompletionChunk]) -> Json:
    """What a careful client makes of the chunks by hand."""
    seen: Json = {"content": ""}
    calls: dict[int, Json] = {}
    for chunk in chunks:
        assert (chunk.id, chunk.object) == ("chatcmpl-1", "chat.completion.chunk")
        assert (chunk.model, chunk.created) == ("demo", 1_770_000_000)
        if chunk.usage:
            assert not chunk.choices, "usage has a chunk of its own"
            seen["usage"] = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens, chunk.usage.total_tokens]
        for choice in chunk.choices:
            delta = choice.delta
            assert "finish_reason" not in seen, "nothing is said behind the reason"
            seen["content"] += delta.content or ""
            if reasoning := getattr(delta, "reasoning_content", None):
                seen["reasoning"] = seen.get("reasoning", "") + reasoning
            for piece in delta.tool_calls or []:
                call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += piece.id or ""
                call["name"] += piece.function.name or ""
                call["arguments"] += piece.function.arguments or ""
            if choice.finish_reason:
                seen["finish_reason"] = choice.finish_reason
    if calls:
        seen["tool_calls"] = [calls[index] for index in sorted(calls)]
    return seen


@pytest.mark.parametrize("name", WHOLE)
def test_the_chunks_say_what_the_turn_said(name: str, chat: dict[str, Json], client: Client) -> None:
    scenario = chat[name]
    stream = client(scenario).chat.completions.create(model="demo", messages=ASKED, stream=True)
    assert put_together(stream) == scenario["expected"]


def test_the_first_chunk_has_the_role_and_no_other_has(chat: dict[str, Json], client: Client) -> None:
    stream = client(chat["plain text"]).chat.completions.create(model="demo", messages=ASKED, stream=True)
    roles = [choice.delta.role for chunk in stream for choice in chunk.choices]
    assert roles == ["assistant"] + [None] * (len(roles) - 1)


def of_final(final: ChatCompletion) -> Json:
    (choice,) = final.choices
    message = choice.message
    assert message.role == "assistant"
    seen: Json = {"content": message.content, "finish_reason": choice.finish_reason}
    if reasoning := getattr(message, "reasoning_content", None):
        seen["reasoning"] = reasoning
    if message.tool_calls:
        seen["tool_calls"] = [
            {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
            for call in message.tool_calls
        ]
    if final.usage:
        seen["usage"] = [final.usage.prompt_tokens, final.usage.completion_tokens, final.usage.total_tokens]
    return seen


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in CUT_SHORT])
def test_their_own_accumulation_ends_with_the_turn(name: str, chat: dict[str, Json], client: Client) -> None:
    scenario = chat[name]
    with client(scenario).chat.completions.stream(model="demo", messages=ASKED) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion()
    assert of_final(final) == scenario["expected"]
    calls = scenario["expected"].get("tool_calls", [])
    assert events.count("tool_calls.function.arguments.done") == len(calls)
    assert events.count("content.done") == (1 if scenario["expected"]["content"] else 0)


@pytest.mark.parametrize("name", CUT_SHORT)
def test_their_own_accumulation_says_that_an_answer_was_cut_short(
    name: str, chat: dict[str, Json], client: Client
) -> None:
    scenario = chat[name]
    with client(scenario).chat.completions.stream(model="demo", messages=ASKED) as stream:
        with pytest.raises(CUT_SHORT[name]):
            stream.get_final_completion()
        assert of_final(stream.current_completion_snapshot) == scenario["expected"]


@pytest.mark.parametrize("name", FAILING)
def test_an_error_is_raised_behind_what_came_before_it(name: str, chat: dict[str, Json], client: Client) -> None:
    scenario = chat[name]
    seen: list[ChatCompletionChunk] = []
    stream = client(scenario).chat.completions.create(model="demo", messages=ASKED, stream=True)
    with pytest.raises(openai.APIError) as raised:
        for chunk in stream:
            seen.append(chunk)
    error = raised.value
    assert [error.message, error.type, error.code] == scenario["expected"]["error"]
    said = put_together(seen)
    assert said["content"] == scenario["expected"]["content"]
    assert "finish_reason" not in said


@pytest.mark.parametrize("name", FAILING)
def test_an_error_is_raised_by_the_accumulating_helper_too(name: str, chat: dict[str, Json], client: Client) -> None:
    scenario = chat[name]
    with pytest.raises(openai.APIError, match=scenario["expected"]["error"][0]):
        with client(scenario).chat.completions.stream(model="demo", messages=ASKED) as stream:
            for _ in stream:
                pass
