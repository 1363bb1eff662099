"""Runs the examples of `docs/clients.md` as they are printed, with a home and a server of their own."""

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from turnwire_server import Json, TurnwireServer

PAGE = Path(__file__).parents[3] / "docs/clients.md"
NODE = Path(__file__).parents[1] / "node/stateless"
ADDRESS = "http://127.0.0.1:4747"

# Whatever takes longer than this hangs.
TIMEOUT = 240.0

# The examples of programs that `make test-clients` installs.
PROGRAMS = ["Codex", "Claude Code", "opencode"]


@dataclass
class Snippet:
    """A section of the page: settings files, by their paths in the home, and commands or code."""

    name: str
    files: dict[str, str] = field(default_factory=dict)
    language: str = ""
    code: str = ""


def read_page() -> dict[str, Snippet]:
    section = PAGE.read_text().split("\n## Connect your client\n")[1].split("\n## ")[0]
    found = {}
    for part in section.split("\n### ")[1:]:
        snippet = Snippet(part.splitlines()[0])
        for before, language, code in re.findall(r"(.*?)\n\n```(\w+)\n(.*?)```", part, re.DOTALL):
            if language in ("python", "js", "jsx", "bash"):
                assert not snippet.code, f"{snippet.name} has two examples"
                snippet.language, snippet.code = language, code
            else:
                [path] = re.findall(r"`~/(\S+)`:$", before)
                snippet.files[path] = code
        found[snippet.name] = snippet
    return found


def runs_here(snippet: Snippet) -> bool:
    """Whether it needs neither a program nor a browser. `tests/peers/node/browser` runs those that need one."""
    return snippet.name not in PROGRAMS and snippet.language != "jsx"


def run(snippet: Snippet, server: TurnwireServer, folder: Path, programs: list[Path]) -> str:
    """What it prints. `programs` are folders with the programs that it calls."""
    home, work = folder / "home", folder / "work"
    for made in (home, work):
        made.mkdir()
    for path, text in snippet.files.items():
        (home / path).parent.mkdir(parents=True)
        (home / path).write_text(text.replace(ADDRESS, server.url))
    code = snippet.code.replace(ADDRESS, server.url)
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    env = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb"}
    if snippet.language == "js":
        # Packages are found from the folder of the code.
        command, work = ["node", "--input-type=module", "--eval", code], NODE
    else:
        command = {"python": ["python", "-c", code], "bash": ["bash", "-euo", "pipefail", "-c", code]}[snippet.language]
    done = subprocess.run(
        command, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def check_session(server: TurnwireServer, printed: str, others: int = 0) -> None:
    """Two turns in one session, and the last answer was printed. `others`: sessions for titles and the like."""
    sessions = server.ask("GET", "/v1/sessions")["sessions"]
    found = [server.messages(session["id"]) for session in sessions]
    [messages] = [messages for messages in found if "Thank you." in said_by("user", messages)]
    assert "What is the weather?" in said_by("user", messages)
    assert len([message for message in messages if message["role"] == "assistant"]) == 2
    answer = said_by("assistant", messages[-1:])
    assert answer and "".join(answer.split()) in "".join(printed.split())
    assert len(sessions) - 1 <= others, [session["title"] for session in sessions]


def said_by(role: str, messages: list[Json]) -> str:
    blocks = [block for message in messages if message["role"] == role for block in message["content"]]
    return "".join(block.get("text", "") for block in blocks)
