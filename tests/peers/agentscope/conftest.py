"""What every test here needs: the program, the seed."""

import json
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

SEED = int(os.environ.get("TURNWIRE_SEED") or random.SystemRandom().randrange(10**9))

Json = dict[str, Any]


@dataclass(frozen=True)
class Folded:
    """What `turnwire fold` had to say."""

    status: int
    lines: list[bytes]
    problems: str

    @property
    def messages(self) -> list[Json]:
        return [json.loads(line) for line in self.lines]


Fold = Callable[..., Folded]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"to repeat this run: TURNWIRE_SEED={SEED}")


@pytest.fixture(scope="session")
def seed() -> int:
    return SEED


@pytest.fixture(scope="session")
def fold() -> Fold:
    """Runs `turnwire fold` over a body: `fold(b"…", "--tolerant")`."""
    program = program_named_by("TURNWIRE", "cargo build -p turnwire")

    def run(body: bytes, *options: str) -> Folded:
        command = [program, "fold", *options, "-"]
        done = subprocess.run(command, input=body, capture_output=True, timeout=60, check=False)
        assert done.returncode in (0, 1), done.stderr.decode()
        # Only a line feed ends a line: a message may well hold a U+2028.
        lines = done.stdout.split(b"\n")
        assert lines.pop() == b"", "the last line has no end"
        return Folded(done.returncode, lines, done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def samples() -> Callable[..., list[str]]:
    """Runs the program that writes samples of the `agentscope` wire: `samples(seed, count)`, or
    `samples(seed, count, "data")` for replies with data."""
    how = "cargo build -p turnwire-wires --example agentscope_samples"
    program = program_named_by("SAMPLES", how)

    def run(seed: int, count: int, *what: str) -> list[str]:
        command = [program, str(seed), str(count), *what]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr.decode()
        lines = done.stdout.decode().split("\n")
        return [line for line in lines if line]

    return run


def program_named_by(variable: str, how: str) -> str:
    program = os.environ.get(variable)
    if not program:
        pytest.fail(f"{variable} is not set; make it with `{how}` and give its path", pytrace=False)
    if not os.access(program, os.X_OK):
        pytest.fail(f"{variable}={program} is no program; make it with `{how}`", pytrace=False)
    return os.path.abspath(program)
