"""Has a program do a task of several turns: straight at the fake provider, or at a `turnwire serve` in front of it that may be
killed on the way."""

import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conversation import Json, read_request
from fake_provider import FakeProvider
from harness import read_sessions, settings_of
from programs import Program, Turn
from turnwire_server import TurnwireServer, until

# What the user says. The shell tool has another name in each program. The first command waits for a file, and of
# two at once the second waits for the first.
TASK = [
    "Begin. [SHELL touch .begun; until test -e .go; do sleep 0.1; done; echo one > notes.txt], then [SHELL cat notes.txt]",
    "Two at once: [SHELL cat notes.txt; touch .read] and [SHELL until test -e .read; do sleep 0.1; done; echo two]",
    "What did we do?",
]

# What differs between two runs of the same program in the same folder.
VOLATILE = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"[0-9a-f]{64}", "HASH"),
    (r"\d{4}-\d{2}-\d{2}", "DATE"),
    (r'unix_ms([\\\\":]+)\d+', r"unix_ms\1TIME"),
    (r"Chunk ID: [0-9a-f]+", "Chunk ID: CHUNK"),
    (r"Wall time: [0-9.]+ seconds", "Wall time: TIME"),
]


def stable(text: str) -> str:
    for pattern, replacement in VOLATILE:
        text = re.sub(pattern, replacement, text)
    return text


@dataclass
class Outcome:
    turns: list[Turn] = field(default_factory=list)
    # The requests of the conversation, and those beside it (such as for a title): what the provider saw.
    requests: list[Json] = field(default_factory=list)
    beside: list[Json] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    sessions: list[Json] = field(default_factory=list)


class Run:
    """A program, a provider, and Turnwire between them or not."""

    def __init__(self, made: Callable[[Path, str], Program], through: bool) -> None:
        # Always the same folder: programs tell the model where they work.
        self.folder = Path(tempfile.gettempdir()) / f"turnwire-programs-{os.getpid()}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.provider = FakeProvider()
        self.provider.stable = stable
        # A request that a killed server has sent, and sends again, gets the same answer.
        self.provider.counts_attempts = False
        # The order of system prompts is compared with the requests; the answers follow from what was said.
        self.provider.unseen = {"thinking", "system"}
        self.server: TurnwireServer | None = None
        if through:
            (self.folder / "server").mkdir()
            settings = settings_of(made.wire, made.model, self.provider.url)
            self.server = TurnwireServer(self.folder / "server", settings=settings)
        self.program = made(self.folder, self.server.url if self.server else self.provider.url)

    def close(self) -> None:
        if self.provider.hold:
            self.provider.hold.set()
        if self.server:
            self.server.stop()
        self.provider.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def do_task(self, kill: str) -> Outcome:
        outcome = Outcome()
        for number, text in enumerate(TASK):
            if number == 0 and kill != "in_a_call":
                (self.program.work / ".go").touch()
            hold = threading.Event()
            if (kill, number) in (("while_it_calls", 1), ("while_it_answers", 2)):
                self.provider.hold, self.provider.cuts_next = hold, not self.server
            process = self.program.start(text.replace("SHELL", self.program.shell), number == 0)
            if self.provider.hold:
                until(lambda: self.provider.held or process.poll() is not None, "no answer begins")
                # What the program does depends on how much of the answer it has read, and only the program knows that.
                time.sleep(1)
                self.kill()
                self.provider.hold = None
                hold.set()
            elif kill == "in_a_call" and number == 0:
                until(lambda: (self.program.work / ".begun").exists() or process.poll() is not None, "no call")
                self.kill()
                (self.program.work / ".go").touch()
            turn = self.program.end(process)
            outcome.turns.append(turn)
            if turn.code != 0:
                break
            if kill == "between_turns":
                self.kill()
        outcome.files = {file.name: file.read_text() for file in self.program.work.iterdir() if not file.name.startswith(".")}
        for request in self.provider.log:
            (outcome.requests if self.is_of_the_task(request) else outcome.beside).append(request)
        if self.server:
            outcome.sessions = read_sessions(self.server)
        return outcome

    def is_of_the_task(self, request: Json) -> bool:
        """Requests beside the conversation offer no tools."""
        tools = read_request(request["wire"], request["body"]).tools
        return any(tool["name"] == self.program.shell for tool in tools)

    def kill(self) -> None:
        if self.server:
            self.server.crash()


def run_task(made: Any, through: bool, kill: str = "") -> Outcome:
    run = Run(made, through)
    try:
        return run.do_task(kill)
    finally:
        run.close()
