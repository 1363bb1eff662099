"""Turnwire as a model of the Responses API, for the client that OpenAI publishes."""

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pydantic
import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent

from conftest import Json, Serve, scenarios_of

BY_NAME = scenarios_of("SCENARIOS_RESPONSES", "openai_responses_scenarios")
SCENARIOS = list(BY_NAME.values())
EVENT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseStreamEvent)
TERMINAL = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
    "cancelled": "response.incomplete",
}


class Trip(pydantic.BaseModel):
    city: str
    days: int


def frames_of(body: str) -> list[Json]:
    """The frames of a body; each names its type twice."""
    frames = []
    for block in body.split("\n\n"):
        if block:
            name, data = block.split("\n")
            frame = json.loads(data.removeprefix("data: "))
            assert name == f"event: {frame['type']}"
            frames.append(frame)
    return frames


def client_of(serve: Serve, scenario: Json) -> OpenAI:
    """A client of a server that has one response, and can send its frames behind a number."""
    frames = frames_of(scenario["body"])

    def answer(method: str, path: str, body: bytes) -> str:
        url = urlsplit(path)
        if method == "POST":
            assert (url.path, json.loads(body)["stream"]) == ("/responses", True)
            return scenario["body"]
        assert url.path == "/responses/" + scenario["expected"]["id"]
        query = parse_qs(url.query)
        assert query["stream"] == ["true"]
        after = int(query.get("starting_after", ["-1"])[0])
        late = [frame for frame in frames if frame["sequence_number"] > after]
        return "".join(f"event: {f['type']}\ndata: {json.dumps(f)}\n\n" for f in late)

    return OpenAI(base_url=serve(answer), api_key="none", max_retries=0)


def seen(response: Response) -> Json:
    """What a client has of a response."""
    assert response.usage is not None
    got: Json = {
        "id": response.id,
        "status": response.status,
        "model": response.model,
        "created_at": response.created_at,
        "text": [],
        "thinking": [],
        "calls": [],
        "usage": [response.usage.input_tokens, response.usage.output_tokens],
    }
    for item in response.output:
        if item.type == "message":
            got["text"] += [part.text for part in item.content if part.type == "output_text"]
        elif item.type == "reasoning":
            got["thinking"] += [part.text for part in item.summary]
        elif item.type == "function_call":
            got["calls"].append([item.call_id, item.name, item.arguments])
        elif item.type == "image_generation_call":
            got.setdefault("images", []).append(item.result)
    if response.error:
        got["error"] = [response.error.code, response.error.message]
    if response.incomplete_details:
        got["incomplete"] = response.incomplete_details.reason
    return got


def without_parsed(expected: Json) -> Json:
    return {key: value for key, value in expected.items() if key != "parsed"}


def streamed(events: list[Any]) -> Json:
    """The same, put together from the deltas alone."""
    got: dict[str, dict[int, str]] = {"text": {}, "thinking": {}, "calls": {}}
    kinds = {
        "response.output_text.delta": "text",
        "response.reasoning_summary_text.delta": "thinking",
        "response.function_call_arguments.delta": "calls",
    }
    for event in events:
        if kind := kinds.get(event.type):
            texts = got[kind]
            texts[event.output_index] = texts.get(event.output_index, "") + event.delta
    return {kind: [text for _, text in sorted(texts.items())] for kind, texts in got.items()}


@pytest.fixture(params=SCENARIOS, ids=lambda scenario: scenario["name"])
def scenario(request: pytest.FixtureRequest) -> Json:
    return request.param


def test_create_streams_what_was_said(serve: Serve, scenario: Json) -> None:
    client = client_of(serve, scenario)
    events = list(client.responses.create(model="demo", input="hi", stream=True))
    expected = scenario["expected"]
    assert events[0].type == "response.created"
    assert events[-1].type == TERMINAL[expected["status"]]
    assert seen(events[-1].response) == without_parsed(expected)
    got = streamed(events)
    assert got["text"] == expected["text"]
    assert got["thinking"] == expected["thinking"]
    # A call without arguments has no delta.
    assert got["calls"] == [call[2] for call in expected["calls"] if call[2]]


def test_the_stream_helper_ends_with_the_same_response(serve: Serve, scenario: Json) -> None:
    client = client_of(serve, scenario)
    expected = scenario["expected"]
    with client.responses.stream(model="demo", input="hi") as stream:
        events = list(stream)
        if expected["status"] == "completed":
            assert seen(stream.get_final_response()) == without_parsed(expected)
        else:
            assert seen(events[-1].response) == without_parsed(expected)
    # The helper keeps a snapshot of every text and of all arguments as they grow.
    grown = {event.output_index: event.snapshot for event in events if hasattr(event, "snapshot")}
    texts = expected["text"] + [call[2] for call in expected["calls"] if call[2]]
    assert sorted(grown.values()) == sorted(texts)


@pytest.mark.parametrize("name", ["structured text", "structured output"])
def test_structured_output_is_parsed(serve: Serve, name: str) -> None:
    client = client_of(serve, BY_NAME[name])
    with client.responses.stream(model="demo", input="hi", text_format=Trip) as stream:
        parsed = stream.get_final_response().output_parsed
    assert parsed == Trip(**BY_NAME[name]["expected"]["parsed"])


def test_the_client_is_not_what_makes_it_look_right(scenario: Json) -> None:
    """What the client accepts in silence."""
    frames = frames_of(scenario["body"])
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    types = [frame["type"] for frame in frames]
    assert types[:2] == ["response.created", "response.in_progress"]
    assert [kind for kind in types if kind in TERMINAL.values()] == [types[-1]]
    opened = [f["output_index"] for f in frames if f["type"] == "response.output_item.added"]
    closed = [f["output_index"] for f in frames if f["type"] == "response.output_item.done"]
    output = frames[-1]["response"]["output"]
    assert opened == sorted(closed) == list(range(len(output)))
    items = {f["output_index"]: f["item"] for f in frames if f["type"] == "response.output_item.done"}
    assert [items[index] for index in sorted(items)] == output
    assert len({item["id"] for item in output}) == len(output)


def test_every_frame_is_one_that_the_published_types_allow(scenario: Json) -> None:
    for frame in frames_of(scenario["body"]):
        EVENT.validate_python(frame)


def test_reasoning_has_what_is_to_be_sent_back(serve: Serve) -> None:
    client = client_of(serve, BY_NAME["thinking"])
    with client.responses.stream(model="demo", input="hi") as stream:
        reasoning = stream.get_final_response().output[0]
    assert reasoning.type == "reasoning"
    assert reasoning.encrypted_content == "opaque"


def test_retrieve_goes_on_behind_any_frame(serve: Serve, scenario: Json) -> None:
    client = client_of(serve, scenario)
    expected = scenario["expected"]
    whole = list(client.responses.create(model="demo", input="hi", stream=True))
    for after in range(len(whole) - 1):
        rest = list(client.responses.retrieve(expected["id"], stream=True, starting_after=after))
        assert rest == whole[after + 1 :]
        # Whoever dropped there has everything, and nothing twice.
        assert streamed(whole[: after + 1] + rest) == streamed(whole)
        assert seen(rest[-1].response) == without_parsed(expected)


@pytest.mark.parametrize("name", ["text", "tool", "parallel tools"])
def test_the_stream_helper_goes_on_behind_any_frame(serve: Serve, name: str) -> None:
    scenario = BY_NAME[name]
    client = client_of(serve, scenario)
    expected = scenario["expected"]
    for after in range(len(frames_of(scenario["body"])) - 1):
        with client.responses.stream(response_id=expected["id"], starting_after=after) as stream:
            events = list(stream)
            assert seen(stream.get_final_response()) == without_parsed(expected)
        numbers = [event.sequence_number for event in events]
        assert numbers == list(range(after + 1, after + 1 + len(numbers)))
        texts = [event.text for event in events if event.type == "response.output_text.done"]
        assert texts in ([], expected["text"])
