"""Finds the modules of this folder and of the one above, and rewrites the list of expected failures when asked to."""

import sys
from pathlib import Path

import pytest

here = Path(__file__).parent
sys.path[:0] = [str(here), str(here.parent)]

import expected_failures


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        expected_failures.note(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    expected_failures.finish(session)
