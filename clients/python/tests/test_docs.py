"""The programs in `docs/python.md` and in the package's README run. Those marked `py` are parts of programs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from turnwire_server import TurnwireServer

PAGES = [Path(__file__).parents[3] / "docs/python.md", Path(__file__).parents[1] / "README.md"]
PROGRAMS = [
    found
    for page in PAGES
    for found in re.findall(r"^##? ([^\n]*)|^```python\n(.*?)^```", page.read_text(), re.M | re.S)
]


def programs() -> list[tuple[str, str]]:
    found, section = [], ""
    for heading, program in PROGRAMS:
        section = heading or section
        if program:
            found.append((section, program))
    return found


@pytest.mark.parametrize("program", [pytest.param(program, id=section) for section, program in programs()])
def test_a_program_of_the_page_runs(program: str, server: TurnwireServer) -> None:
    env = os.environ | {"TURNWIRE_URL": server.url}
    program = program.replace("http://127.0.0.1:4747", server.url)
    ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""


def test_there_are_programs() -> None:
    assert len(programs()) >= 8
