"""What every test here needs: the bodies that Turnwire writes, and a server that serves them."""

import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from turnwire_server import TurnwireServer

ROOT = pathlib.Path(__file__).parents[3]

Json = dict[str, Any]
# Method, path with its query, and body of a request, to the body of the answer.
Answer = Callable[[str, str, bytes], str]
Serve = Callable[[Answer], str]


def scenarios_of(variable: str, example: str) -> dict[str, Json]:
    """The scenarios that an example of turnwire-wires prints, by their names."""
    program = os.environ.get(variable) or str(ROOT / "target/debug/examples" / example)
    if not os.access(program, os.X_OK):
        how = f"cargo build -p turnwire-wires --example {example}"
        pytest.fail(f"{program} is no program; make it with `{how}`", pytrace=False)
    done = subprocess.run([program], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    # Only a line feed ends a line: a text may well hold a U+2028.
    found = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    return {scenario["name"]: scenario for scenario in found}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TurnwireServer]:
    """A server whose agent says everything at once."""
    running = TurnwireServer(tmp_path_factory.mktemp("server"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TurnwireServer]:
    """A server whose agent takes its time, so that something can happen meanwhile."""
    running = TurnwireServer(tmp_path_factory.mktemp("slow"), rate=200)
    yield running
    running.stop()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves what a function answers; gives the address."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                self.reply("POST", self.rfile.read(length))

            def do_GET(self) -> None:
                self.reply("GET", b"")

            def reply(self, method: str, body: bytes) -> None:
                data = answer(method, self.path, body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
