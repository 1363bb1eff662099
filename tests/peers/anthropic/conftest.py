"""What every test here needs: the replies that Turnwire serves, and a server that serves them."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anthropic
import pytest

# What several clients share is in the folder above.
sys.path.insert(0, str(Path(__file__).parents[1]))

Json = dict[str, Any]

HOW = "cargo build -p turnwire-wires --example anthropic_scenarios"
DEFAULT = Path(__file__).parents[3] / "target/debug/examples/anthropic_scenarios"


@dataclass(frozen=True)
class Scenario:
    """A reply as it is served, and what a client must make of it."""

    name: str
    body: str
    expected: Json


def scenarios() -> list[Scenario]:
    program = os.environ.get("SCENARIOS_ANTHROPIC") or str(DEFAULT)
    if not os.access(program, os.X_OK):
        pytest.exit(f"{program} is no program; make it with `{HOW}`", returncode=2)
    done = subprocess.run([program], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().split("\n")
    return [Scenario(**json.loads(line)) for line in lines if line]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a `scenario` runs for each."""
    if "scenario" in metafunc.fixturenames:
        found = scenarios()
        metafunc.parametrize("scenario", found, ids=[scenario.name for scenario in found])


class Server(ThreadingHTTPServer):
    """Answers every request with the same stream."""

    body = b""


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def client(scenario: Scenario) -> Iterator[anthropic.Anthropic]:
    """The real client, talking to a server that serves the scenario."""
    server = Server(("127.0.0.1", 0), Answer)
    server.body = scenario.body.encode()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
