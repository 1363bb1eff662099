"""`/openapi.json` is valid OpenAPI, and a client generated from it works against a real server."""

import importlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from openapi_spec_validator import validate

from turnwire_server import TurnwireServer, until

Json = dict[str, Any]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TurnwireServer]:
    running = TurnwireServer(tmp_path_factory.mktemp("server"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def document(server: TurnwireServer) -> Json:
    return server.ask("GET", "/openapi.json")


@pytest.fixture(scope="session")
def generated(document: Json, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of the package that openapi-python-client writes."""
    folder = tmp_path_factory.mktemp("generated")
    path = folder / "openapi.json"
    path.write_text(json.dumps(document))
    generator = [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(path)]
    options = ["--meta", "none", "--output-path", str(folder / "turnwire_generated")]
    # The generator formats what it writes with ruff, which is beside Python.
    env = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(generator + options, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    return "turnwire_generated"


def test_the_document_is_valid(document: Json) -> None:
    validate(document)


def test_every_operation_has_schemas(document: Json) -> None:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            contents = [response.get("content", {}) for response in operation["responses"].values()]
            contents.append(operation.get("requestBody", {}).get("content", {}))
            for content in contents:
                for kind, body in content.items():
                    assert body["schema"], f"{method} {path} {kind}"


def operation(generated: str, name: str) -> ModuleType:
    return importlib.import_module(f"{generated}.api.default.{name}")


def test_a_generated_client_creates_a_session_sends_and_reads_the_history(server: TurnwireServer, generated: str) -> None:
    models = importlib.import_module(f"{generated}.models")
    client = importlib.import_module(generated).Client(base_url=server.url, raise_on_unexpected_status=True)

    body = models.CreateSession(id="generated", agent="demo", title="By a generated client")
    created = operation(generated, "create_session").sync(client=client, body=body)
    assert isinstance(created, models.SessionView)
    assert (created.id, created.agent, created.last_seq) == ("generated", "demo", 0)

    message = models.MessageBody(content="How is the weather?")
    sent = operation(generated, "send_message").sync("generated", client=client, body=message)
    assert isinstance(sent, models.Accepted) and sent.reply_id

    def session() -> Any:
        return operation(generated, "get_session").sync("generated", client=client)

    until(lambda: session().status == models.SessionStatus.IDLE, "the reply does not end")
    page = operation(generated, "list_messages").sync("generated", client=client, limit=10)
    assert isinstance(page, models.MessagePage)
    user, reply = page.messages
    assert (user.role, reply.role, reply.id) == (models.Role.USER, models.Role.ASSISTANT, sent.reply_id)
    [question] = user.content
    assert isinstance(question, models.TextBlock) and question.text == "How is the weather?"
    calls = [block for block in reply.content if isinstance(block, models.ToolCall)]
    assert calls, "the demo looks the weather up"

    listed = operation(generated, "list_sessions").sync(client=client, q="weather")
    assert [session.id for session in listed.sessions] == ["generated"]


def test_a_generated_client_gets_errors_as_their_type(server: TurnwireServer, generated: str) -> None:
    models = importlib.import_module(f"{generated}.models")
    client = importlib.import_module(generated).Client(base_url=server.url)
    error = operation(generated, "get_session").sync("nowhere", client=client)
    assert isinstance(error, models.ErrorBody) and error.error.type_ == "not_found"
