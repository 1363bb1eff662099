"""Real clients that keep their own history, with Turnwire in front of a provider and without: the provider sees the same,
the client gets the same, and each conversation is one session.

Each cell is CLIENT CASE UPSTREAM ASPECT. Known failures are in `expected_failures.txt`.
"""

import functools
from typing import Any

import pytest

import expected_failures
from cases import CASES, Client
from clients import CLIENTS, CROSS_WIRE, CROSS_WIRE_CASES, LOSSES
from compare import cross_wire, differences, expected_session, read_session, same_wire
from conversation import WIRES, Json
from harness import Outcome, run_straight, run_through

ASPECTS = ["requests", "answers", "sessions"]


@functools.cache
def straight(client: str, case: str) -> Outcome:
    return run_straight(CLIENTS[client], case)


@functools.cache
def through(client: str, case: str, upstream: str) -> Outcome:
    return run_through(CLIENTS[client], case, upstream)


def runs() -> list[tuple[str, str, str]]:
    """Every client with each upstream."""
    found = []
    for name, client in CLIENTS.items():
        for upstream in WIRES:
            is_own = upstream == client.wire
            lost = set() if is_own else {case for case, wire in LOSSES if wire == upstream}
            left_out = set() if is_own or name in CROSS_WIRE else set(CASES) - CROSS_WIRE_CASES
            found += [(name, case, upstream) for case in CASES if case not in {*client.cannot, *lost, *left_out}]
    return found


def in_one_process(client: str, case: str) -> pytest.MarkDecorator:
    """The tests of one conversation share its runs."""
    return pytest.mark.xdist_group(f"{client} {case}")


def cells() -> list[Any]:
    found = []
    for run in runs():
        for aspect in ASPECTS:
            cell = " ".join([*run, aspect])
            marks = [in_one_process(*run[:2]), *expected_failures.marks_of(cell)]
            found.append(pytest.param(*run, aspect, id=cell.replace(" ", "/"), marks=marks))
    return found


def controls() -> list[Any]:
    return [pytest.param(*run, marks=in_one_process(*run)) for run in sorted({run[:2] for run in runs()})]


@pytest.mark.parametrize(("client", "case"), controls())
def test_the_client_comes_to_the_end_without_turnwire(client: str, case: str) -> None:
    control = straight(client, case)
    assert not control.error
    assert control.marks and all("answer" in request for request in control.requests)


@pytest.mark.parametrize(("client", "case", "upstream", "aspect"), cells())
def test_turnwire_makes_no_difference(
    client: str, case: str, upstream: str, aspect: str, record_property: Any
) -> None:
    record_property("cell", " ".join((client, case, upstream, aspect)))
    control, found = straight(client, case), through(client, case, upstream)
    problems = CHECKS[aspect](control, found, CLIENTS[client], upstream)
    assert not problems, "\n".join([problems[0], *problems[1:12]])


def check_requests(control: Outcome, found: Outcome, client: Client, upstream: str) -> list[str]:
    compare = same_wire if client.wire == upstream else cross_wire
    problems = []
    for number, (wanted, got) in enumerate(zip(control.requests, found.requests), 1):
        problems += [f"request {number} of {len(control.requests)}: {problem}" for problem in compare(wanted, got)]
    if len(control.requests) != len(found.requests):
        problems.append(f"the provider gets {len(found.requests)} requests instead of {len(control.requests)}")
    if found.error:
        problems.append(found.error)
    return problems


def check_answers(control: Outcome, found: Outcome, client: Client, upstream: str) -> list[str]:
    if found.error:
        return [f"answer {len(found.answers) + 1}: {found.error}"]
    return list(differences(control.answers, found.answers, "answers"))


def check_sessions(control: Outcome, found: Outcome, client: Client, upstream: str) -> list[str]:
    """Each conversation is one session, with all that was said in it."""
    wanted = [expected_session(control.requests[mark]) for mark in control.marks]
    got = [read_session(session["messages"]) for session in found.sessions]
    if len(wanted) != len(got):
        return [f"there are {len(got)} sessions instead of {len(wanted)}"]
    left: list[list[Json]] = list(got)
    problems = []
    for number, conversation in enumerate(wanted, 1):
        if conversation in left:
            left.remove(conversation)
        else:
            nearest = min(left, key=lambda other: len(list(differences(conversation, other))))
            problems += [f"session {number}: {problem}" for problem in differences(conversation, nearest)]
    claims = [message for session in found.sessions for message in session["messages"] if message["metadata"].get("claimed")]
    if bool(claims) != found.begun_elsewhere:
        problems.append(f"{len(claims)} messages are marked as the client's claim")
    if untitled := [session["id"] for session in found.sessions if not session["title"]]:
        problems.append(f"without a title: {untitled}")
    if running := [session["id"] for session in found.sessions if session["status"] == "running"]:
        problems.append(f"still running: {running}")
    return problems


CHECKS = {"requests": check_requests, "answers": check_answers, "sessions": check_sessions}
