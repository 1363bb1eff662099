"""The Responses API of a running server, for the client that OpenAI publishes."""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import openai
import pydantic
import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent

from conftest import ROOT, Json
from turnwire_server import Proxy, TurnwireServer, until

EVENT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseStreamEvent)
TERMINAL = ("response.completed", "response.incomplete", "response.failed")
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
BROWSER: Any = {
    "type": "function",
    "name": "open_page",
    "description": "Open a page",
    "parameters": {"type": "object", "properties": {"url": {"type": "string"}}},
    "strict": False,
}


def client_of(server: TurnwireServer, **options: Any) -> OpenAI:
    url = options.pop("url", server.url)
    return OpenAI(base_url=url + "/v1", api_key=options.pop("api_key", "none"), max_retries=0, **options)


@pytest.fixture
def client(server: TurnwireServer) -> OpenAI:
    return client_of(server)


def session_of(response: Response | str) -> str:
    """A response's id says where it is."""
    id = response if isinstance(response, str) else response.id
    return id.removeprefix("resp_").split("~")[0]


def reply_of(response: Response) -> str:
    return response.id.split("~")[1]


def seen(response: Response) -> list[Any]:
    """What a client has of a response: its items, in order."""
    blocks: list[Any] = []
    for item in response.output:
        if item.type == "message":
            blocks += [["text", part.text] for part in item.content if part.type == "output_text"]
        elif item.type == "reasoning":
            blocks += [["thinking", part.text] for part in item.summary]
        elif item.type == "function_call":
            blocks.append(["call", item.call_id, item.name, item.arguments])
        elif item.type == "image_generation_call":
            blocks.append(["image", item.result])
        else:
            raise AssertionError(f"a client does not expect {item}")
    return blocks


def told(message: Json) -> list[Any]:
    """The same of the server's own message. Calls that the agent served are its own matter."""
    served = {block["id"] for block in message["content"] if block["type"] == "tool_result"}
    blocks: list[Any] = []
    for block in message["content"]:
        if block["type"] == "text":
            blocks.append(["text", block["text"]])
        elif block["type"] == "thinking":
            blocks.append(["thinking", block["thinking"]])
        elif block["type"] == "data":
            blocks.append(["image", block["source"]["data"]])
        elif block["type"] == "tool_call" and block["id"] not in served:
            blocks.append(["call", block["id"], block["name"], block["input"]])
    if message.get("structured_output"):
        blocks.append(["text", json.dumps(message["structured_output"], separators=(",", ":"), ensure_ascii=False)])
    return blocks


def message_of(server: TurnwireServer, response: Response) -> Json:
    found = [m for m in server.messages(session_of(response)) if m["id"] == reply_of(response)]
    assert len(found) == 1, f"one reply is one message: {found}"
    return found[0]


def is_the_servers(server: TurnwireServer, response: Response) -> Json:
    """The response is the server's own message, block by block."""
    message = message_of(server, response)
    assert seen(response) == told(message)
    assert response.usage is None or response.usage.total_tokens >= 0
    return message


def put_together(events: Iterable[Any]) -> list[Any]:
    """What the deltas alone give, and what the items say when they are done, which is the same."""
    texts: dict[tuple[int, int], list[Any]] = {}
    done: dict[int, list[Any]] = {}
    for event in events:
        kind = {
            "response.output_text.delta": "text",
            "response.reasoning_summary_text.delta": "thinking",
            "response.function_call_arguments.delta": "call",
        }.get(event.type)
        if kind:
            part = getattr(event, "summary_index", 0)
            texts.setdefault((event.output_index, part), [kind, ""])[1] += event.delta
        elif event.type == "response.output_item.done":
            done[event.output_index] = seen(Response.model_construct(output=[event.item]))
    for (index, part), (kind, text) in texts.items():
        assert done[index][part][0] == kind
        assert done[index][part][-1] == text
    return [block for _, blocks in sorted(done.items()) for block in blocks]


def are_sound(events: list[Any], first: int = 0) -> Response:
    """Every frame is of the published types; no number is left out, doubled or goes back; one end."""
    assert [event.sequence_number for event in events] == list(range(first, first + len(events)))
    for event in events:
        EVENT.validate_python(event.to_dict())
    assert [event.type for event in events if event.type in TERMINAL] == [events[-1].type]
    return events[-1].response


def streamed(client: OpenAI, **request: Any) -> tuple[list[Any], Response]:
    events = list(client.responses.create(model="demo", stream=True, **request))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    return events, are_sound(events)


# -- models


def test_agents_are_models(client: OpenAI) -> None:
    page = client.models.list()
    assert page.object == "list"
    assert [(model.id, model.object, model.owned_by) for model in page] == [("demo", "model", "turnwire")]
    assert page.has_more is False and page.first_id == page.last_id == "demo"  # type: ignore[attr-defined]
    assert client.models.retrieve("demo") == page.data[0]
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4o")
    assert caught.value.code == "model_not_found"


# -- one request, one answer

WORDS = {
    "hello": ["thinking", "text"],
    "weather": ["thinking", "text"],
    "approve": ["thinking", "text"],
    "parallel": ["thinking", "text"],
    "image": ["text", "image", "text"],
    "team": ["thinking", "text"],
    "json": ["text", "text"],
    "long 40": ["text"],
}


@pytest.mark.parametrize("word", WORDS)
def test_a_response_is_the_servers_message(server: TurnwireServer, client: OpenAI, word: str) -> None:
    whole = client.responses.create(model="demo", input=word)
    assert (whole.status, whole.model, whole.error, whole.object) == ("completed", "demo", None, "response")
    assert [block[0] for block in seen(whole)] == WORDS[word]
    is_the_servers(server, whole)

    events, final = streamed(client, input=word)
    assert final.status == "completed"
    assert put_together(events) == seen(final)
    is_the_servers(server, final)
    # The same words give the same answer, however it is asked for.
    assert seen(whole) == seen(final)
    assert session_of(whole) != session_of(final), "without a name every request is a new session"

    for response in (whole, final):
        assert client.responses.retrieve(response.id) == response
        again = list(client.responses.retrieve(response.id, stream=True))
        assert are_sound(again).to_dict() == response.to_dict()
    again = list(client.responses.retrieve(final.id, stream=True))
    assert [e.to_dict() for e in again] == [e.to_dict() for e in events], "a replay has the same frames"


def test_the_page_can_be_typed_in(server: TurnwireServer, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/openai.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    assert "http://127.0.0.1:4747" in code
    exec(code.replace("http://127.0.0.1:4747", server.url), {})
    said = capsys.readouterr().out
    assert "> hello" in said and "> and now?" in said


def test_the_helper_reads_a_stream(server: TurnwireServer, client: OpenAI) -> None:
    with client.responses.stream(model="demo", input="weather") as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == deltas
    is_the_servers(server, final)


def test_what_needs_a_yes_is_denied_and_the_model_is_told(server: TurnwireServer, client: OpenAI) -> None:
    for word, calls in {"approve": ["denied"], "parallel": ["success", "denied"]}.items():
        response = client.responses.create(model="demo", input=word)
        message = is_the_servers(server, response)
        states = [block["state"] for block in message["content"] if block["type"] == "tool_result"]
        assert states == calls
        assert "no" in response.output_text
        assert server.session(session_of(response))["pending"] == []


def test_a_sub_agent_works_out_of_sight(server: TurnwireServer, client: OpenAI) -> None:
    response = client.responses.create(model="demo", input="team")
    everybody = server.messages(session_of(response), "&agents=all")
    assert len(everybody) == len(server.messages(session_of(response))) + 1


def test_the_user_sends_an_image_and_a_file(server: TurnwireServer, client: OpenAI) -> None:
    content: Any = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
    ]
    response = client.responses.create(model="demo", input=[{"role": "user", "content": content}])
    is_the_servers(server, response)
    user, _ = server.messages(session_of(response))
    assert [block["type"] for block in user["content"]] == ["text", "data", "data"]
    assert user["content"][1]["source"]["data"] == PIXEL
    assert user["content"][2]["name"] == "a.txt"


def test_an_image_comes_out(client: OpenAI) -> None:
    response = client.responses.create(model="demo", input="image")
    image = next(item for item in response.output if item.type == "image_generation_call")
    assert base64.b64decode(image.result or "").startswith(b"\x89PNG")


def test_a_reply_that_fails_is_a_failed_response(server: TurnwireServer, client: OpenAI) -> None:
    whole = client.responses.create(model="demo", input="fail")
    events, final = streamed(client, input="fail")
    assert events[-1].type == "response.failed"
    for response in (whole, final, client.responses.retrieve(whole.id)):
        assert response.status == "failed"
        assert response.error and response.error.code == "server_error"
        message = is_the_servers(server, response)
        assert response.error.message == message["error"]["message"]
    with client.responses.stream(model="demo", input="fail") as stream, pytest.raises(RuntimeError):
        stream.get_final_response()


class Facts(pydantic.BaseModel):
    message: str
    words: int
    characters: int


def test_structured_output_parses(server: TurnwireServer, client: OpenAI) -> None:
    parsed = client.responses.parse(model="demo", input="json please", text_format=Facts)
    assert parsed.output_parsed == Facts(message="json please", words=2, characters=11)
    assert json.loads(parsed.output_text) == message_of(server, parsed)["structured_output"]
    with client.responses.stream(model="demo", input="json please", text_format=Facts) as stream:
        final = stream.get_final_response()
    assert final.output_parsed == parsed.output_parsed
    retrieved = client.responses.retrieve(final.id)
    assert retrieved.output_text == final.output_text
    # Who did not ask for it gets the words, too.
    plain = client.responses.create(model="demo", input="json please")
    is_the_servers(server, plain)
    assert json.loads(plain.output_text[plain.output_text.rindex('{"message'):])


def test_what_the_client_brings_goes_to_the_agent(server: TurnwireServer, client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        instructions="Be brief.",
        input=[{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "hello"}],
        tools=[BROWSER],
        temperature=0.5,
        metadata={"trip": "1"},
        store=False,
    )
    user = server.messages(session_of(response))[0]
    offer = user["metadata"]["client"]
    assert offer["instructions"] == "Be brief."
    assert [message["content"][0]["text"] for message in offer["system"]] == ["Be kind."]
    assert [tool["name"] for tool in offer["tools"]] == ["open_page"]
    assert offer["unattended"] is True
    assert (offer["extra"]["temperature"], offer["extra"]["metadata"]) == (0.5, {"trip": "1"})


# -- turns


def test_a_second_turn(server: TurnwireServer, client: OpenAI) -> None:
    first = client.responses.create(model="demo", input="hello")
    second = client.responses.create(model="demo", input="weather", previous_response_id=first.id)
    assert session_of(first) == session_of(second)
    # A client that repeats what was said, and puts words into the agent's mouth.
    history: Any = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "I, the agent, promised you a pony."},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "A pony!"}]},
        {"role": "user", "content": "and now"},
    ]
    header = {"Turnwire-Session": session_of(first)}
    third = client.responses.create(model="demo", input=history, extra_headers=header)
    assert session_of(third) == session_of(first)
    messages = server.messages(session_of(first))
    assert [m["role"] for m in messages] == ["user", "assistant"] * 3
    said = [m["content"][0]["text"] for m in messages if m["role"] == "user"]
    assert said == ["hello", "weather", "and now"]
    assert "pony" not in json.dumps(messages)
    for response in (first, second, third):
        is_the_servers(server, response)
        assert client.responses.retrieve(response.id) == response


def test_a_session_is_named_by_the_header(server: TurnwireServer, client: OpenAI) -> None:
    header = {"Turnwire-Session": "named-by-the-header"}
    answer = client.responses.with_raw_response.create(model="demo", input="hello", extra_headers=header)
    assert answer.headers["turnwire-session"] == "named-by-the-header"
    response = answer.parse()
    assert session_of(response) == "named-by-the-header"
    again = client.responses.create(model="demo", input="hello again", extra_headers=header)
    assert len(server.messages("named-by-the-header")) == 4
    is_the_servers(server, again)


def test_a_fresh_session_takes_the_whole_history_in(server: TurnwireServer, client: OpenAI) -> None:
    history: Any = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "So I said."},
        {"role": "user", "content": "two"},
    ]
    response = client.responses.create(model="demo", input=history)
    messages = server.messages(session_of(response))
    texts = [(m["role"], m["content"][0].get("text"), m["metadata"].get("claimed")) for m in messages[:3]]
    assert texts == [("user", "one", True), ("assistant", "So I said.", True), ("user", "two", None)]
    assert len(messages) == 4


# -- the client's own tools


def call_in(response: Response) -> Any:
    calls = [item for item in response.output if item.type == "function_call"]
    assert response.status == "completed" and len(calls) == 1
    return calls[0]


@pytest.mark.parametrize("how", ["previous", "header", "nothing", "history"])
def test_the_client_executes_its_tool(server: TurnwireServer, client: OpenAI, how: str) -> None:
    events, first = streamed(client, input="browser", tools=[BROWSER])
    assert put_together(events) == seen(first)
    call = call_in(first)
    assert (call.name, json.loads(call.arguments)) == ("open_page", {"url": "https://example.com/"})
    assert server.session(session_of(first))["status"] == "waiting"

    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "The news."}
    request: Json = {"input": [result]}
    if how == "previous":
        request["previous_response_id"] = first.id
    elif how == "header":
        request["extra_headers"] = {"Turnwire-Session": session_of(first)}
    elif how == "history":
        request["input"] = [{"role": "user", "content": "browser"}, *first.output, result]
    events, second = streamed(client, **request)
    assert second.id != first.id and reply_of(second) == reply_of(first)
    assert put_together(events) == seen(second)
    assert "The news." in second.output_text
    message = message_of(server, second)
    blocks = told(message)
    assert [block for block in seen(first) if block[0] != "call"] + seen(second) == blocks
    assert [b["output"] for b in message["content"] if b["type"] == "tool_result"] == ["The news."]

    # Each is what it was.
    assert client.responses.retrieve(first.id) == first
    assert client.responses.retrieve(second.id) == second
    again = list(client.responses.retrieve(first.id, stream=True))
    assert are_sound(again) == first
    again = list(client.responses.retrieve(second.id, stream=True, starting_after=1))
    assert are_sound(again, first=2) == second

    # An answer counts once.
    if how == "history":
        assert session_of(client.responses.create(model="demo", **request)) != session_of(first)
    else:
        error = openai.BadRequestError if how == "nothing" else openai.ConflictError
        with pytest.raises(error) as caught:
            client.responses.create(model="demo", **request)
        assert caught.value.code == ("unknown_call" if how == "nothing" else "already_answered")
    assert message_of(server, second) == message


def test_an_answer_of_another_wire_ends_the_first_response(server: TurnwireServer, client: OpenAI) -> None:
    first = client.responses.create(model="demo", input="browser", tools=[BROWSER])
    call, session = call_in(first), session_of(first)
    output = [{"id": call.call_id, "name": call.name, "output": "Elsewhere.", "state": "success", "type": "tool_result"}]
    event = {"type": "EXTERNAL_EXECUTION_RESULT", "reply_id": reply_of(first), "execution_results": output}
    server.ask("POST", f"/v1/sessions/{session}/events", [event])
    server.when(session, "idle")
    assert client.responses.retrieve(first.id) == first
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Late."}
    with pytest.raises(openai.ConflictError):
        client.responses.create(model="demo", input=[result], previous_response_id=first.id)


def test_words_beside_results_reach_the_reply(server: TurnwireServer, client: OpenAI) -> None:
    first = client.responses.create(model="demo", input="browser", tools=[BROWSER])
    result: Any = {"type": "function_call_output", "call_id": call_in(first).call_id, "output": "x"}
    before = server.session(session_of(first))["last_seq"]
    with pytest.raises(openai.ConflictError) as caught:
        client.responses.create(model="demo", input="hello?", previous_response_id=first.id)
    assert caught.value.code == "busy"
    assert server.session(session_of(first))["last_seq"] == before, "nothing was stored"
    mixed: Any = [result, {"role": "user", "content": "and another thing"}]
    after = client.responses.create(model="demo", input=mixed, previous_response_id=first.id)
    assert after.status == "completed"
    [hint] = [block for block in message_of(server, after)["content"] if block["type"] == "hint"]
    assert hint["hint"][0]["text"] == "and another thing"


# -- background, stop, resume


def test_background(slow: TurnwireServer) -> None:
    client = client_of(slow)
    begun = client.responses.create(model="demo", input="long 40", background=True)
    assert begun.status == "in_progress"
    polled = until(lambda: (r := client.responses.retrieve(begun.id)).status == "completed" and r, "it never ends")
    assert polled.id == begun.id and polled.created_at == begun.created_at
    is_the_servers(slow, polled)


def test_a_response_in_the_middle_has_what_was_said(slow: TurnwireServer) -> None:
    client = client_of(slow)
    begun = client.responses.create(model="demo", input="long 10000", background=True)
    middle = until(lambda: (r := client.responses.retrieve(begun.id)).output_text and r, "it says nothing")
    assert middle.status == "in_progress" and middle.incomplete_details is None
    item = middle.output[-1]
    assert item.type == "message" and item.status == "in_progress"
    stopped = client.responses.cancel(begun.id)
    assert stopped.status == "cancelled"
    assert stopped.output_text.startswith(middle.output_text)
    message = is_the_servers(slow, stopped)
    assert message["finished_reason"] == "interrupted"
    assert client.responses.cancel(begun.id) == stopped, "once more changes nothing"


def test_a_stream_ends_when_it_is_stopped(slow: TurnwireServer) -> None:
    client = client_of(slow)
    stream = client.responses.create(model="demo", input="long 10000", stream=True)
    events = [next(stream) for _ in range(8)]
    stopped = client.responses.cancel(events[0].response.id)
    events += list(stream)
    assert are_sound(events) == stopped
    assert (events[-1].type, stopped.status) == ("response.incomplete", "cancelled")
    assert put_together(events) == seen(stopped)
    is_the_servers(slow, stopped)


def test_cancel_of_a_finished_response_is_that_response(client: OpenAI) -> None:
    response = client.responses.create(model="demo", input="hello")
    assert client.responses.cancel(response.id) == response


def taken(stream: Any, most: int) -> Iterator[Any]:
    """Some events of a stream, and then the connection is gone."""
    for event, _ in zip(stream, range(most)):
        yield event
    stream.close()


@pytest.mark.parametrize("background", [False, True])
def test_cut_after_every_tenth_event(slow: TurnwireServer, background: bool) -> None:
    client = client_of(slow)
    stream = client.responses.create(model="demo", input="long 95", stream=True, background=background)
    events = list(taken(stream, 10))
    id = events[0].response.id
    while events[-1].type not in TERMINAL:
        behind = events[-1].sequence_number
        events += taken(client.responses.retrieve(id, stream=True, starting_after=behind), 10)
    final = are_sound(events)
    assert put_together(events) == seen(final)
    assert len(events) > 100
    is_the_servers(slow, final)
    assert list(client.responses.retrieve(id, stream=True, starting_after=events[-1].sequence_number)) == []


def test_cut_at_any_byte(server: TurnwireServer) -> None:
    proxy = Proxy(server.address)
    client, through = client_of(server), client_of(server, url=proxy.url)
    final = client.responses.create(model="demo", input="long 60")
    events: list[Any] = []
    for cut in (700, 1301, 2002, 3503, 5204, None):
        proxy.cut_after = cut
        behind = events[-1].sequence_number if events else None
        options: Json = {} if behind is None else {"starting_after": behind}
        try:
            for event in through.responses.retrieve(final.id, stream=True, **options):
                events.append(event)
        except openai.APIConnectionError:
            assert cut
    assert proxy.cuts == 5
    assert are_sound(events) == final
    assert put_together(events) == seen(final)
    proxy.close()


def test_the_helper_resumes(slow: TurnwireServer) -> None:
    """It wants everything again, and keeps what was before the number to itself."""
    client = client_of(slow)
    stream = client.responses.create(model="demo", input="long 60", stream=True, background=True)
    events = list(taken(stream, 25))
    id, behind = events[0].response.id, events[-1].sequence_number
    with client.responses.stream(response_id=id, starting_after=behind) as resumed:
        rest = list(resumed)
        final = resumed.get_final_response()
    assert [event.sequence_number for event in rest] == list(range(behind + 1, behind + 1 + len(rest)))
    text = "".join(e.delta for e in [*events, *rest] if e.type == "response.output_text.delta")
    assert text == final.output_text
    is_the_servers(slow, final)


def test_a_client_that_goes_does_not_stop_the_reply(slow: TurnwireServer) -> None:
    client = client_of(slow)
    stream = client.responses.create(model="demo", input="long 30", stream=True)
    id = next(stream).response.id
    stream.close()
    slow.when(session_of(id), "idle")
    response = client.responses.retrieve(id)
    assert response.status == "completed"
    is_the_servers(slow, response)


def test_the_server_is_killed_in_the_middle(tmp_path: Any) -> None:
    server = TurnwireServer(tmp_path, rate=200)
    client = client_of(server)
    stream = client.responses.create(model="demo", input="long 200", stream=True)
    events = [next(stream) for _ in range(20)]
    id = events[0].response.id
    server.crash()
    with pytest.raises(openai.APIConnectionError):
        events += stream
    events += client.responses.retrieve(id, stream=True, starting_after=events[-1].sequence_number)
    final = are_sound(events)
    assert final.status == "completed"
    is_the_servers(server, final)
    assert client.responses.retrieve(id) == final
    server.stop()


def test_the_server_is_killed_while_the_client_executes_its_tool(tmp_path: Any) -> None:
    server = TurnwireServer(tmp_path)
    client = client_of(server)
    first = client.responses.create(model="demo", input="browser", tools=[BROWSER])
    server.crash()
    assert client.responses.retrieve(first.id) == first
    result: Any = {"type": "function_call_output", "call_id": call_in(first).call_id, "output": "Still here."}
    second = client.responses.create(model="demo", input=[result])
    assert "Still here." in second.output_text
    assert session_of(second) == session_of(first)
    server.stop()


# -- once


def test_a_request_that_is_sent_again_is_done_once(server: TurnwireServer, client: OpenAI) -> None:
    for named in ({}, {"Turnwire-Session": "sent-again"}):
        headers = {"Idempotency-Key": "key-of-a-test", **named}
        first = client.responses.create(model="demo", input="hello", extra_headers=headers)
        again = client.responses.create(model="demo", input="hello", extra_headers=headers)
        assert first == again
        assert len(server.messages(session_of(first))) == 2
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            client.responses.create(model="demo", input="another", extra_headers=headers)
        assert caught.value.code == "idempotency_key_reused"


def test_results_that_are_sent_again_are_taken_once(server: TurnwireServer, client: OpenAI) -> None:
    first = client.responses.create(model="demo", input="browser", tools=[BROWSER])
    result: Any = {"type": "function_call_output", "call_id": call_in(first).call_id, "output": "x"}
    headers = {"Idempotency-Key": "results"}
    answers = [
        client.responses.create(
            model="demo", input=[result], previous_response_id=first.id, extra_headers=headers
        )
        for _ in range(2)
    ]
    assert answers[0] == answers[1]


# -- what is wrong


def test_errors_are_the_clients_own(server: TurnwireServer, client: OpenAI) -> None:
    wrong: list[tuple[Any, type[openai.APIStatusError], str]] = [
        ({"model": "gpt-4o", "input": "hi"}, openai.NotFoundError, "model_not_found"),
        ({"model": "demo"}, openai.BadRequestError, "invalid_request"),
        ({"model": "demo", "input": "  "}, openai.BadRequestError, "invalid_request"),
        ({"model": "demo", "input": []}, openai.BadRequestError, "nothing_new"),
        ({"model": "demo", "input": [{"role": "pirate", "content": "x"}]}, openai.BadRequestError, "invalid_request"),
        ({"model": "demo", "input": [{"role": "assistant", "content": "x"}]}, openai.BadRequestError, "nothing_new"),
        ({"model": "demo", "input": "x", "previous_response_id": "resp_x"}, openai.BadRequestError, "previous_response_not_found"),
        ({"model": "demo", "input": "x", "previous_response_id": "resp_a~b"}, openai.BadRequestError, "previous_response_not_found"),
        ({"model": "demo", "input": "x", "conversation": "c"}, openai.NotFoundError, "conversation_not_found"),
        (
            {"model": "demo", "input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
            openai.BadRequestError,
            "unknown_call",
        ),
    ]
    before = len(server.ask("GET", "/v1/sessions?limit=500")["sessions"])
    for request, error, code in wrong:
        with pytest.raises(error) as caught:
            client.responses.create(**request)
        assert (caught.value.code, caught.value.type) == (code, "invalid_request_error"), request
        assert caught.value.body and "message" in caught.value.body  # type: ignore[operator]
    assert len(server.ask("GET", "/v1/sessions?limit=500")["sessions"]) == before, "nothing was made"
    for id in ("resp_nothing", "resp_a~b", "msg_1", "resp_a~b~c"):
        for call in (client.responses.retrieve, client.responses.cancel):
            with pytest.raises(openai.NotFoundError) as caught:
                call(id)
            assert caught.value.code == "response_not_found"


def test_a_session_that_is_busy_is_a_conflict(slow: TurnwireServer) -> None:
    client = client_of(slow)
    begun = client.responses.create(model="demo", input="long 10000", background=True)
    with pytest.raises(openai.ConflictError) as caught:
        client.responses.create(model="demo", input="hello", previous_response_id=begun.id)
    assert caught.value.code == "busy"
    assert client.responses.cancel(begun.id).status == "cancelled"


def test_who_may_do_what(tmp_path: Any) -> None:
    def token(text: str, tenant: str, scopes: list[str]) -> str:
        hash = hashlib.sha256(text.encode()).hexdigest()
        return f'[[auth.tokens]]\ntenant = "{tenant}"\nsha256 = "{hash}"\nscopes = {json.dumps(scopes)}\n'

    settings = token("ann", "a", ["read", "chat"]) + token("bob", "b", ["read", "chat"]) + token("eve", "a", ["read"])
    server = TurnwireServer(tmp_path, settings=settings)
    ann, bob, eve = (client_of(server, api_key=key) for key in ("ann", "bob", "eve"))
    with pytest.raises(openai.AuthenticationError) as caught:
        client_of(server, api_key="nobody").responses.create(model="demo", input="hello")
    assert caught.value.code == "invalid_api_key"
    response = ann.responses.create(model="demo", input="hello")
    assert eve.responses.retrieve(response.id) == response
    with pytest.raises(openai.PermissionDeniedError):
        eve.responses.create(model="demo", input="hello")
    with pytest.raises(openai.PermissionDeniedError):
        eve.responses.cancel(response.id)
    for call in (bob.responses.retrieve, bob.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            call(response.id)
    with pytest.raises(openai.BadRequestError):
        bob.responses.create(model="demo", input="hello", previous_response_id=response.id)
    # What waits in one tenant is not answered from another.
    waiting = ann.responses.create(model="demo", input="browser", tools=[BROWSER])
    result: Any = {"type": "function_call_output", "call_id": call_in(waiting).call_id, "output": "mine"}
    with pytest.raises(openai.BadRequestError):
        bob.responses.create(model="demo", input=[result])
    assert "mine" in ann.responses.create(model="demo", input=[result]).output_text
    server.stop()


def test_conversations_and_their_items(client: OpenAI) -> None:
    conversation = client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "My name is Ann."}], metadata={"topic": "tea"}
    )
    assert conversation.metadata == {"topic": "tea"}
    added = client.conversations.items.create(
        conversation.id,
        items=[
            {"type": "message", "role": "assistant", "content": "Hello Ann!"},
            {"type": "message", "role": "user", "content": "hello"},
        ],
    )
    assert [item.type for item in added.data] == ["message", "message"]
    listed = list(client.conversations.items.list(conversation.id, order="asc", limit=1))
    assert [item.role for item in listed if item.type == "message"] == ["user", "assistant", "user"]
    [first, *_] = listed
    assert first.id
    assert client.conversations.items.retrieve(first.id, conversation_id=conversation.id) == first
    assert client.conversations.items.delete(first.id, conversation_id=conversation.id).id == conversation.id
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(first.id, conversation_id=conversation.id)
    updated = client.conversations.update(conversation.id, metadata={"topic": "trees"})
    assert updated.metadata == {"topic": "trees"}
    response = client.responses.create(model="demo", input="and now?", conversation=conversation.id)
    assert response.status == "completed"
    assert len(list(client.conversations.items.list(conversation.id))) >= 4
    assert client.conversations.delete(conversation.id).deleted


def test_a_conversation_is_compacted(client: OpenAI) -> None:
    said: Any = [
        {"type": "message", "role": "user", "content": "We launch on Tuesday."},
        {"type": "message", "role": "assistant", "content": "Noted."},
    ]
    compacted = client.responses.compact(model="demo", input=said)
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    output: Any = [item.to_dict() for item in compacted.output]
    response = client.responses.create(model="demo", input=[*output, {"role": "user", "content": "When?"}])
    assert response.status == "completed"
    items = client.responses.input_items.list(response.id, order="asc").data
    texts = [item.content[0].text for item in items if item.type == "message"]
    assert (texts[0], texts[-1]) == ("We launch on Tuesday.", "When?") and "Noted." in texts[1]
    again = client.responses.compact(model="demo", previous_response_id=response.id)
    assert [item.type for item in again.output] == ["message", "message", "compaction"]
