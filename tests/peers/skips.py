"""A pytest plugin: counts skipped tests, and fails where none may be skipped.

`make test` names the file in TURNWIRE_SKIPS and lists it at its end. CI sets TURNWIRE_REQUIRE_ALL=1.
"""

import os

import pytest

skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        skipped.append(f"skipped: {report.nodeid}: {why.removeprefix('Skipped: ')}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not skipped:
        return
    if file := os.environ.get("TURNWIRE_SKIPS"):
        with open(file, "a") as out:
            out.writelines(f"{line}\n" for line in skipped)
    if os.environ.get("TURNWIRE_REQUIRE_ALL") == "1":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in skipped:
        terminalreporter.write_line(line)
    if skipped and os.environ.get("TURNWIRE_REQUIRE_ALL") == "1":
        terminalreporter.write_line("TURNWIRE_REQUIRE_ALL=1: no test may be skipped")
