"""A connection breaks, or the server is killed, and the client sends its request again: nothing is doubled, and where
Turnwire survived, the model is not asked again."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import expected_failures
from client_anthropic import AnthropicMessages
from client_openai import OpenAIChat, OpenAIResponses
from compare import differences, expected_session, read_session
from conversation import Json
from fake_provider import FakeProvider
from harness import MODELS, read_sessions, settings_of
from turnwire_server import Proxy, TurnwireServer, until

TEXTS = ["Hello.", "My name is Ada.", "What is my name?"]
CLIENTS: dict[str, Any] = {made.name: made for made in (OpenAIChat, OpenAIResponses, AnthropicMessages)}


class CutOnce(Proxy):
    """Cuts one answer when it is told to: `cut_after` so many bytes, counted from then on."""

    def down(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while data := upstream.recv(65536):
                if self.cut_after is not None and len(data) >= self.cut_after:
                    client.sendall(data[: self.cut_after])
                    self.cuts, self.cut_after = self.cuts + 1, None
                    break
                if self.cut_after is not None:
                    self.cut_after -= len(data)
                client.sendall(data)
        except OSError:
            pass
        for end in (client, upstream):
            try:
                # A thread that still reads from it would keep a closed socket open.
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


class Scene:
    """A provider, Turnwire in front of it, and a proxy in front of Turnwire."""

    def __init__(self, client: Any, folder: Path) -> None:
        self.client, self.provider = client, FakeProvider()
        self.provider.counts_attempts = False
        self.server = TurnwireServer(folder, settings=settings_of(client.wire, MODELS[client.wire], self.provider.url))
        self.proxy = CutOnce(self.server.address)
        client.connect(self.proxy.url, MODELS[client.wire])

    def close(self) -> None:
        if self.provider.hold:
            self.provider.hold.set()
        self.proxy.close()
        self.server.stop()
        self.provider.close()

    def differences(self, answers: list[Json]) -> list[str]:
        """How the answers and the session differ from those of the same conversation without any trouble."""
        control = FakeProvider()
        self.client.connect(control.url, MODELS[self.client.wire])
        history, wanted = self.client.start(), []
        for text in TEXTS:
            answer, history = self.client.turn(history, text)
            wanted.append(answer)
        expected = [expected_session(control.log[-1])]
        control.close()
        sessions = [read_session(session["messages"]) for session in read_sessions(self.server)]
        if len(sessions) != 1:
            return [f"there are {len(sessions)} sessions instead of 1: {sessions}"]
        return [*differences(wanted, answers, "answers"), *differences(expected, sessions, "sessions")]


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    running = Scene(CLIENTS[request.param](), tmp_path)
    yield running
    running.close()


def cells(what: str) -> Any:
    made = []
    for name, client in CLIENTS.items():
        cell = f"{name} {what} {client.wire} again"
        made.append(pytest.param(name, id=cell.replace(" ", "/"), marks=expected_failures.marks_of(cell)))
    return pytest.mark.parametrize("scene", made, indirect=True)


@pytest.fixture(autouse=True)
def cell(request: pytest.FixtureRequest, record_property: Any) -> None:
    record_property("cell", request.node.callspec.id.replace("/", " "))


@cells("package_repeats")
def test_the_package_repeats_a_request_whose_answer_was_cut(scene: Scene) -> None:
    scene.client.retries = 2
    scene.client.connect(scene.proxy.url, MODELS[scene.client.wire])
    history, answers = scene.client.start(), []
    for text in TEXTS:
        if text == TEXTS[1]:
            scene.proxy.cut_after = 30
        answer, history = scene.client.turn(history, text)
        answers.append(answer)
    assert scene.proxy.cuts == 1
    asked = len(scene.provider.log)
    problems = scene.differences(answers) + ([f"the model is asked {asked} times instead of 3"] if asked != 3 else [])
    assert not problems, "\n".join(problems)


@cells("program_repeats")
def test_a_program_repeats_a_request_whose_stream_was_cut(scene: Scene) -> None:
    history, answers = scene.client.start(), []
    for text in TEXTS:
        if text == TEXTS[1]:
            scene.proxy.cut_after = 500
            # The answer is not complete when the stream is cut: of a complete one the server cannot know that it did not arrive.
            hold = scene.provider.hold = threading.Event()
            with pytest.raises(Exception):
                scene.client.turn(history, text, stream=True)
            assert scene.proxy.cuts == 1
            scene.provider.hold = None
            hold.set()
        answer, history = scene.client.turn(history, text, stream=True)
        answers.append(answer)
    asked = len(scene.provider.log)
    problems = scene.differences(answers) + ([f"the model is asked {asked} times instead of 3"] if asked != 3 else [])
    assert not problems, "\n".join(problems)


@cells("server_is_killed")
def test_the_server_is_killed_while_the_model_answers(scene: Scene) -> None:
    scene.client.retries = 8
    scene.client.connect(scene.server.url, MODELS[scene.client.wire])
    history, answers = scene.client.start(), []
    for text in TEXTS:
        if text != TEXTS[1]:
            answer, history = scene.client.turn(history, text)
            answers.append(answer)
            continue
        hold = scene.provider.hold = threading.Event()
        done: list[Any] = []

        def ask() -> None:
            try:
                done.append(scene.client.turn(history, text))
            except Exception as error:  # noqa: BLE001
                done.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: len(scene.provider.log) == 2, "the model is never asked")
        scene.server.crash()
        scene.provider.hold = None
        hold.set()
        thread.join(60)
        assert done, "the client still waits"
        if isinstance(done[0], Exception):
            raise AssertionError(f"answer 2: {done[0]}")
        answer, history = done[0]
        answers.append(answer)
    # The model is asked again by the reply that goes on, and not once more by the request that is repeated.
    asked = len(scene.provider.log)
    problems = scene.differences(answers) + ([f"the model is asked {asked} times instead of 4"] if asked != 4 else [])
    assert not problems, "\n".join(problems)
