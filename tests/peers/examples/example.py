"""An example that runs, started by the command of its README."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from turnwire_server import TIMEOUT, until

REPOSITORY = Path(__file__).parents[3]


class Example:
    """A copy of `examples/NAME` in a folder of its own, where the files that it writes stay."""

    def __init__(self, name: str, folder: Path, **env: str) -> None:
        self.folder = folder / name
        shutil.copytree(REPOSITORY / "examples" / name, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        [command] = re.findall(
            r"^pip install -r requirements.txt && (uvicorn .*)", (self.folder / "README.md").read_text(), re.M
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.command = re.sub(r"--port \d+", f"--port {port}", command).split()
        self.url = f"http://127.0.0.1:{port}"
        bin = Path(sys.executable).parent
        self.env = os.environ | {"PATH": f"{bin}:{os.environ['PATH']}"} | env
        self.log = self.folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, cwd=self.folder, env=self.env, stdout=log, stderr=log)
        until(self.is_ready, f"the example does not start:\n{self.log.read_text()}")

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            urllib.request.urlopen(f"{self.url}/openapi.json", timeout=TIMEOUT).close()
        except urllib.error.URLError:
            return False
        return True

    def kill(self) -> None:
        """As when the power fails."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(TIMEOUT)
        self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
            assert "Traceback" not in self.log.read_text(), self.log.read_text()
        self.process = None
