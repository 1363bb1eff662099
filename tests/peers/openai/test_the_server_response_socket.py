"""The WebSocket of the Responses API, for the client that OpenAI publishes."""

from typing import Any

import pydantic
import pytest
from openai import OpenAI
from openai.resources.responses.responses import ResponsesConnection
from openai.types.responses import Response, ResponsesServerEvent

from turnwire_server import TurnwireServer

EVENT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponsesServerEvent)
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")
TOOL: Any = {
    "type": "function",
    "name": "open_page",
    "description": "Open a page",
    "parameters": {"type": "object", "properties": {"url": {"type": "string"}}},
    "strict": False,
}


@pytest.fixture
def client(server: TurnwireServer) -> OpenAI:
    return OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def events_of(connection: ResponsesConnection) -> list[Any]:
    """The events up to the end of a response. Each is what the package says it is."""
    events: list[Any] = []
    while not events or events[-1].type not in TERMINAL:
        events.append(connection.recv())
        EVENT.validate_python(events[-1].to_dict())
    return events


def create(connection: ResponsesConnection, **request: Any) -> Response:
    connection.response.create(**({"model": "demo", "store": False} | request))
    end = events_of(connection)[-1]
    assert end.type == "response.completed", end
    return end.response


def test_a_conversation_over_one_connection(client: OpenAI, server: TurnwireServer) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model="demo", input="hello", store=False)
        events = events_of(connection)
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        first = events[-1].response
        assert text and text == first.output_text
        second = create(connection, input="and now?", previous_response_id=first.id)
    # Both are in one session, and there over HTTP.
    assert client.responses.retrieve(second.id).output_text == second.output_text
    session = second.id.removeprefix("resp_").split("~")[0]
    assert first.id.startswith(f"resp_{session}~")
    roles = [message["role"] for message in server.messages(session)]
    assert roles == ["user", "assistant", "user", "assistant"]


def test_calls_of_a_tool_and_their_results(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        first = create(connection, input="browser", tools=[TOOL])
        [call] = [item for item in first.output if item.type == "function_call"]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "opened"}
        second = create(connection, input=[result], tools=[TOOL], previous_response_id=first.id)
        assert second.output_text


def test_a_request_is_prepared(client: OpenAI, server: TurnwireServer) -> None:
    with client.responses.connect() as connection:
        prepared = create(connection, input="hello", generate=False)
        assert prepared.output == []
        response = create(connection, input="and now?", previous_response_id=prepared.id)
    session = response.id.removeprefix("resp_").split("~")[0]
    assert [message["role"] for message in server.messages(session)] == ["user", "user", "assistant"]


def test_errors_are_events_and_the_connection_stays(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        for request, status, code in [
            ({"model": "nobody", "input": "x"}, 404, "model_not_found"),
            ({"model": "demo", "input": "x", "previous_response_id": "resp_a~b"}, 400, "previous_response_not_found"),
        ]:
            connection.response.create(**request)
            [error] = events_of(connection)
            assert (error.type, error.status, error.error.code) == ("error", status, code)
        assert create(connection, input="hello").output_text


def test_a_handshake_without_credentials_is_refused(tmp_path: Any) -> None:
    settings = '[[auth.tokens]]\ntenant = "t"\nscopes = ["chat"]\nsha256 = "' + "0" * 64 + '"\n'
    running = TurnwireServer(tmp_path, settings=settings)
    try:
        client = OpenAI(base_url=running.url + "/v1", api_key="wrong", max_retries=0)
        with pytest.raises(Exception, match="401"), client.responses.connect():
            pass
    finally:
        running.stop()
