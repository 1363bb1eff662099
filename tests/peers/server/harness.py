"""A server of our own on a free port, and what can be asked of it."""

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import websocket

Json = dict[str, Any]

# Whatever takes longer than this hangs.
TIMEOUT = 30.0


def program() -> str:
    found = os.environ.get("TURNWIRE", "")
    if not os.access(found, os.X_OK):
        how = "make it with `cargo build -p turnwire` and give its path"
        pytest.fail(f"TURNWIRE={found} is no program; {how}", pytrace=False)
    return os.path.abspath(found)


class Server:
    """`turnwire serve`. `rate` is how many deltas the demo gives a second, 0 as many as it can."""

    def __init__(
        self, folder: Path, store: str, *options: str, listen: str = "127.0.0.1:0", rate: int = 0
    ) -> None:
        env = os.environ | {"TURNWIRE_DEMO_RATE": str(rate)}
        command = [program(), "serve", "--listen", listen, "--store", store, "--log", "warn"]
        self.process = subprocess.Popen(
            [*command, *options], cwd=folder, env=env, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        banner = self.process.stdout.readline()
        found = re.search(r"http://[0-9.:]+", banner)
        assert found, f"the server did not start: {banner!r}"
        self.url = found[0]
        # One client for all: each would read all certificates of the system anew.
        limits = httpx.Limits(max_connections=None)
        self.http = httpx.Client(base_url=self.url, timeout=TIMEOUT, limits=limits)

    def stop(self) -> None:
        self.http.close()
        self.process.terminate()
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        assert self.process.returncode == 0
        if self.process.stdout:
            self.process.stdout.close()

    def get(self, path: str, **params: str) -> Json:
        return self.http.get(path, params=params).raise_for_status().json()

    def post(self, path: str, body: Any) -> Json:
        answer = self.http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def session(self, id: str) -> Json:
        return self.get(f"/v1/sessions/{id}")

    def watch(self, id: str, token: str = "", **params: str) -> "Watch":
        return Watch(self.http, id, token, params)

    def socket(self, wire: str) -> "Socket":
        return Socket(f"{self.url.replace('http', 'ws')}/v1/ws?wire={wire}")

    def read(self, id: str, token: str = "", **params: str) -> list["Frame"]:
        """All frames from a point to where nothing runs."""
        watch = self.watch(id, token, until="idle", **params)
        watch.thread.join(TIMEOUT)
        assert not watch.thread.is_alive(), "the stream has no end"
        return watch.all()


@dataclass(frozen=True)
class Frame:
    """One server-sent event."""

    id: str
    data: str


@dataclass
class Watch:
    """A stream that is read in the background."""

    http: httpx.Client
    session: str
    token: str
    params: dict[str, str]
    frames: list[Frame] = field(default_factory=list)
    trouble: list[BaseException] = field(default_factory=list)
    is_open: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        assert self.is_open.wait(TIMEOUT), "no answer came"

    def run(self) -> None:
        headers = {"accept": "text/event-stream"}
        if self.token:
            headers["last-event-id"] = self.token
        path = f"/v1/sessions/{self.session}/events"
        try:
            with self.http.stream("GET", path, params=self.params, headers=headers) as answer:
                assert answer.status_code in (200, 204), answer.read()
                self.is_open.set()
                for frame in frames(answer.iter_raw()):
                    self.frames.append(frame)
        except BaseException as error:
            self.trouble.append(error)
            self.is_open.set()

    def all(self) -> list[Frame]:
        if self.trouble:
            raise self.trouble[0]
        return list(self.frames)

    def until(self, token: str) -> list[Frame]:
        """Everything up to the event with this token."""
        wait_for(lambda: any(frame.id == token for frame in self.all()), f"no event {token}")
        return self.all()


class Socket:
    """A WebSocket. Frames are kept, each for its session."""

    def __init__(self, url: str) -> None:
        self.socket = websocket.create_connection(url, timeout=TIMEOUT)
        self.frames: list[Json] = []
        self.texts: list[str] = []

    def __enter__(self) -> "Socket":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, command: Json) -> None:
        self.socket.send(json.dumps(command))

    def read(self) -> Json:
        text = self.socket.recv()
        assert isinstance(text, str) and text, "the socket was closed"
        self.texts.append(text)
        self.frames.append(json.loads(text))
        return self.frames[-1]

    def until(self, session: str, token: str) -> list[Frame]:
        """The events of a session up to the one with this token."""
        while not any(frame.get("event_id") == token for frame in self.frames):
            self.read()
        both = zip(self.frames, self.texts, strict=True)
        # Answers to commands have no place in a log.
        of_session = [(f, text) for f, text in both if "seq" in f and f["session_id"] == session]
        return [Frame(frame.get("event_id", ""), text) for frame, text in of_session]


def wait_for(condition: Callable[[], Any], otherwise: str) -> Any:
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    pytest.fail(otherwise)


def frames(chunks: Iterator[bytes]) -> Iterator[Frame]:
    """Strict: every line is one that a server of ours writes."""
    rest = b""
    id = ""
    data: list[str] = []
    for chunk in chunks:
        rest += chunk
        *lines, rest = rest.split(b"\n")
        for line in lines:
            match line.decode().partition(":"):
                case ("", "", _):
                    if data:
                        yield Frame(id, "\n".join(data))
                    id, data = "", []
                case ("", ":", _) | ("retry", ":", _):
                    pass
                case ("id", ":", value):
                    id = value.removeprefix(" ")
                case ("data", ":", value):
                    data.append(value.removeprefix(" "))
                case _:
                    pytest.fail(f"this is no line of a stream: {line!r}")
    assert rest == b"" and not data, "the stream ends in the middle of a frame"
