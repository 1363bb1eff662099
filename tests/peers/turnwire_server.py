"""A running server for the Python clients, and a proxy that cuts their connections."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# Whatever takes longer than this hangs.
TIMEOUT = 60.0


class TurnwireServer:
    """`turnwire serve` in a folder of its own. `rate` is how many deltas the demo gives a second."""

    def __init__(self, folder: Path, store: str = "sqlite:turnwire.db", rate: float = 0, settings: str = "") -> None:
        self.folder, self.store, self.rate = folder, store, rate
        (folder / "turnwire.toml").write_text(settings)
        self.token = ""
        self.start("127.0.0.1:0")

    def start(self, listen: str) -> None:
        program = os.environ.get("TURNWIRE", "")
        assert os.access(program, os.X_OK), f"TURNWIRE={program} is no program: cargo build -p turnwire"
        env = os.environ | {"TURNWIRE_DEMO_RATE": str(self.rate)}
        command = [os.path.abspath(program), "serve", "--listen", listen, "--store", self.store, "--log", "warn"]
        self.process = subprocess.Popen(command, cwd=self.folder, env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        banner = self.process.stdout.readline()
        found = re.search(r"http://[0-9.:]+", banner)
        assert found, f"the server did not start: {banner!r}"
        self.url = found[0]
        self.address = self.url.removeprefix("http://")

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(TIMEOUT) == 0, "it stops in order"
        assert self.process.stdout
        self.process.stdout.close()

    def crash(self) -> None:
        """Killed in the middle of whatever it did, and another process on the same address."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(TIMEOUT)
        assert self.process.stdout
        self.process.stdout.close()
        self.start(self.address)

    def ask(self, method: str, path: str, body: Any = None) -> Json:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from None
        return json.loads(text) if text else {}

    def session(self, id: str) -> Json:
        return self.ask("GET", f"/v1/sessions/{id}")

    def messages(self, id: str, query: str = "") -> list[Json]:
        """As the server has them, oldest first."""
        return self.ask("GET", f"/v1/sessions/{id}/messages?limit=500{query}")["messages"]

    def when(self, id: str, status: str) -> Json:
        """The session when it is `idle`, `running` or `waiting`."""
        return until(lambda: (s := self.session(id))["status"] == status and s, f"{id} is never {status}")


def until(condition: Callable[[], Any], otherwise: str) -> Any:
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(otherwise)


def request_during_restart(folder: Path, settings: str, rate: float, ask: Callable[[str], Any]) -> tuple[Any, int]:
    """What a client with its usual retries ends with when the server is stopped in the middle of the answer and
    started again, and how many sessions there are then."""
    running = TurnwireServer(folder, rate=rate, settings=settings)
    done: list[Any] = []

    def run() -> None:
        try:
            done.append(ask(running.url))
        except Exception as error:  # noqa: BLE001
            done.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: [s for s in running.ask("GET", "/v1/sessions")["sessions"] if s["status"] == "running"], "no reply")
    running.stop()
    running.start(running.address)
    thread.join(TIMEOUT)
    assert done, "the client still waits"
    sessions = running.ask("GET", "/v1/sessions")["sessions"]
    running.stop()
    return done[0], len(sessions)


class Proxy:
    """Passes everything on to a server, and cuts an answer after so many bytes."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self.target = (host, int(port))
        self.cut_after: int | None = None
        self.cuts = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
                upstream = socket.create_connection(self.target)
            except OSError:
                return
            threading.Thread(target=self.up, args=(client, upstream), daemon=True).start()
            threading.Thread(target=self.down, args=(client, upstream), daemon=True).start()

    def up(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while data := client.recv(65536):
                upstream.sendall(data)
            upstream.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def down(self, client: socket.socket, upstream: socket.socket) -> None:
        left = self.cut_after
        try:
            while data := upstream.recv(65536):
                if left is not None and len(data) >= left:
                    client.sendall(data[:left])
                    self.cuts += 1
                    break
                left = None if left is None else left - len(data)
                client.sendall(data)
        except OSError:
            pass
        for end in (client, upstream):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def close(self) -> None:
        self.listener.close()
