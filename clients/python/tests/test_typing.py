"""What type checkers say about the package, and about programs that use it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1]
MISTAKES = "tests/typing/mistakes.py"


def run(*command: str) -> str:
    return subprocess.run([sys.executable, "-m", *command], cwd=FOLDER, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def mistakes() -> set[int]:
    lines = (FOLDER / MISTAKES).read_text().splitlines()
    return {at for at, line in enumerate(lines, 1) if line.endswith("# wrong")}


def test_mypy_finds_the_mistakes_and_nothing_else(mistakes: set[int]) -> None:
    out = run("mypy", "--no-error-summary")
    found = re.findall(r"^([^:]+):(\d+): error", out, re.M)
    assert {file for file, _ in found} == {MISTAKES}, out
    assert {int(line) for _, line in found} == mistakes, out


def test_pyright_finds_the_mistakes_and_nothing_else(mistakes: set[int]) -> None:
    report = json.loads(run("pyright", "--pythonpath", sys.executable, "--outputjson"))
    found = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    shown = json.dumps(found, indent=1)
    assert {Path(one["file"]).name for one in found} == {"mistakes.py"}, shown
    assert {one["range"]["start"]["line"] + 1 for one in found} == mistakes, shown
