"""Finds the modules of this folder, of `../stateless` and of the one above; the list of expected failures is this folder's."""

import sys
from pathlib import Path

import pytest

here = Path(__file__).parent
sys.path[:0] = [str(here), str(here.parent / "stateless"), str(here.parent)]

import expected_failures

expected_failures.FILE = here / "expected_failures.txt"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        expected_failures.note(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    expected_failures.finish(session)
