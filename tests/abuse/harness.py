"""What the attacks share: a server with two tenants, a model provider, and what is measured meanwhile."""

import hashlib
import http.client
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "peers"))
from turnwire_server import TurnwireServer  # noqa: E402

MIB = 1024 * 1024
# A server that takes more is killed: the machine may have other work.
TOO_MUCH_MEMORY = 2048
ATTACKER = "attacker-token"
BYSTANDER = "bystander-token"


@dataclass
class Figure:
    """One measured number beside its bound."""

    name: str
    value: float
    bound: float
    unit: str = ""

    def holds(self) -> bool:
        return self.value <= self.bound

    def __str__(self) -> str:
        return f"{self.name} {self.value:g}{self.unit} (bound {self.bound:g}{self.unit})"


@dataclass
class Result:
    """What an attack came to."""

    answers: str = ""
    figures: list[Figure] = field(default_factory=list)

    def add(self, name: str, value: float, bound: float, unit: str = "") -> None:
        self.figures.append(Figure(name, round(value, 2), bound, unit))


def tokens(*tenants: str) -> str:
    """Settings with one token for each tenant, named after it."""
    entries = []
    for tenant in tenants:
        sha256 = hashlib.sha256(f"{tenant}-token".encode()).hexdigest()
        entries.append(f'[[auth.tokens]]\ntenant = "{tenant}"\nsha256 = "{sha256}"\nscopes = ["admin"]\nsubject = "{tenant}"\n')
    return "\n".join(entries)


class Server(TurnwireServer):
    """`turnwire serve` with an attacker and a bystander, each a tenant of its own."""

    def __init__(self, settings: str = "") -> None:
        self.home = tempfile.TemporaryDirectory(prefix="turnwire-abuse-")
        super().__init__(Path(self.home.name), settings=tokens("attacker", "bystander") + settings)
        self.token = ATTACKER
        host, port = self.address.split(":")
        self.target = (host, int(port))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.home.cleanup()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.target, timeout=120)

    def send(self, method: str, path: str, body: Any = None, token: str = ATTACKER, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own: status, headers, body."""
        connection = self.connection()
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, raw, {"authorization": f"Bearer {token}"} | {k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def raw(self, head: str, token: str = ATTACKER) -> socket.socket:
        """A connection on which only the head of a request was sent."""
        connection = socket.create_connection(self.target, timeout=120)
        connection.sendall((head + f"\r\nhost: {self.address}\r\nauthorization: Bearer {token}\r\n\r\n").encode())
        return connection

    def memory(self) -> float:
        """Resident memory, in MiB."""
        return self._status("VmRSS") / 1024

    def peak(self) -> float:
        """The most resident memory since `reset_peak`, in MiB."""
        return self._status("VmHWM") / 1024

    def reset_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def cpu(self) -> float:
        """Processor time that the server has used, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def _status(self, key: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1])
        raise AssertionError(f"no {key} in /proc")


class QuietServer(ThreadingHTTPServer):
    """An HTTP server on a free port. Clients that break off are expected, and not reported."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        pass


class Provider:
    """A model over HTTP (chat completions). `answer` is the text that it gives; `wait` holds it back."""

    def __init__(self, answer: str = "Fine.") -> None:
        self.answer, self.calls = answer, 0
        self.release = threading.Event()
        self.release.set()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                provider.calls += 1
                provider.release.wait(120)
                delta = {"choices": [{"index": 0, "delta": {"content": provider.answer}, "finish_reason": None}]}
                end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
                text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in (delta, end)) + "data: [DONE]\n\n"
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = QuietServer(Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def settings(self) -> str:
        return f'\n[agents.friday]\nmodel = "openai:fake"\nbase_url = "{self.url}"\n'

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()


class Measured:
    """What the server takes while a block of code runs, and how long a bystander's requests take meanwhile."""

    def __init__(self, server: Server, bystander: Callable[[], None] | None = None) -> None:
        self.server, self.bystander = server, bystander
        self.slowest = 0.0

    def __enter__(self) -> "Measured":
        if self.bystander:
            self.bystander()
        self.server.reset_peak()
        self.before, self.cpu_before = self.server.memory(), self.server.cpu()
        self.start = time.monotonic()
        self.over = threading.Event()
        self.threads = [threading.Thread(target=run) for run in (self._ask, self._guard)]
        for thread in self.threads:
            thread.start()
        return self

    def _ask(self) -> None:
        while self.bystander and not self.over.is_set():
            start = time.monotonic()
            try:
                self.bystander()
            except (OSError, http.client.HTTPException, AssertionError):
                self.slowest = float("inf")
                return
            self.slowest = max(self.slowest, time.monotonic() - start)
            self.over.wait(0.05)

    def _guard(self) -> None:
        while not self.over.wait(0.02):
            if self.server.is_alive() and self.server.memory() > TOO_MUCH_MEMORY:
                self.server.process.kill()
                self.server.process.wait()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        self.seconds = time.monotonic() - self.start
        alive = self.server.is_alive()
        self.memory = self.server.peak() - self.before if alive else float("inf")
        self.cpu = self.server.cpu() - self.cpu_before if alive else float("inf")


@contextmanager
def serving(settings: str = "") -> Iterator[Server]:
    server = Server(settings)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def serving_model(answer: str = "Fine.", settings: str = "") -> Iterator[tuple[Server, Provider]]:
    provider = Provider(answer)
    try:
        with serving(provider.settings() + settings) as server:
            yield server, provider
    finally:
        provider.close()


def together(count: int, action: Callable[[int], Any]) -> list[Any]:
    """Does something `count` times at once. What fails is its exception."""
    results: list[Any] = [None] * count

    def run(at: int) -> None:
        try:
            results[at] = action(at)
        except Exception as error:  # noqa: BLE001
            results[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
