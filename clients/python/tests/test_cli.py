"""The command of the package, and the wheel that carries the binary."""

import os
import subprocess
import sys
from pathlib import Path

BINARY = os.environ["TURNWIRE"]


def run(*arguments: str, binary: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"TURNWIRE_BINARY": binary}
    command = [sys.executable, "-c", "from turnwire.cli import main; main()", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def test_the_command_is_the_binary() -> None:
    direct = subprocess.run([BINARY, "wires"], capture_output=True, text=True, check=True)
    ran = run("wires", binary=BINARY)
    assert (ran.returncode, ran.stdout) == (0, direct.stdout)
    assert run("no-such-command", binary=BINARY).returncode == 2


def test_without_a_binary_it_says_what_to_do(tmp_path: Path) -> None:
    ran = run("serve", binary=str(tmp_path / "missing"))
    assert ran.returncode == 1
    assert "is no file" in ran.stderr
    assert "cargo install turnwire" in ran.stderr
