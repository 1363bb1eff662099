"""What Turnwire is known to do wrong here: the cells of `expected_failures.txt`, each with its reason.

A listed cell has to fail. When it begins to pass, the run fails (a strict expected failure) until the line is removed.
`TURNWIRE_WRITE=1` rewrites the lines of the cells that ran: read the difference before you commit it.
"""

import os
import re
from pathlib import Path

import pytest

FILE = Path(__file__).parent / "expected_failures.txt"
HEAD = """# CLIENT CASE UPSTREAM ASPECT: how it fails. Rewrite it with TURNWIRE_WRITE=1.
"""
WRITE = os.environ.get("TURNWIRE_WRITE") == "1"

ran: dict[str, str | None] = {}
broken: list[str] = []


def read() -> dict[str, str]:
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def marks_of(cell: str) -> list[pytest.MarkDecorator]:
    reason = read().get(cell)
    return [pytest.mark.xfail(strict=True, reason=reason)] if reason and not WRITE else []


def note(report: pytest.TestReport) -> None:
    """The id of a test is its cell, with dashes where the cell has spaces: the test says the cell itself."""
    for name, cell in report.user_properties:
        if name == "cell":
            if report.passed:
                ran[cell] = None
            # Anything but a failed check is trouble of this machine or of the test.
            elif found := re.search(r"^E\s+AssertionError: (.+)$", report.longreprtext, re.MULTILINE):
                ran[cell] = found[1]
            else:
                broken.append(cell)


def finish(session: pytest.Session) -> None:
    # Of several processes the first one hears of every test.
    if not WRITE or not ran or hasattr(session.config, "workerinput"):
        return
    lines = {cell: reason for cell, reason in read().items() if cell not in ran}
    lines |= {cell: reason for cell, reason in ran.items() if reason}
    FILE.write_text(HEAD + "".join(f"{cell}: {lines[cell]}\n" for cell in sorted(lines)))
    print(f"\n{FILE.name}: {len(lines)} cells. Not a failed check, and left as they were: {broken}")
    session.exitstatus = pytest.ExitCode.TESTS_FAILED if broken else pytest.ExitCode.OK
