"""Coding assistants do a task of several turns with their shell tool, with Turnwire in front of a provider and without: the
provider sees the same, the program ends the same, and the conversation is one session. Also when the server is killed."""

import functools
import json
from typing import Any

import pytest

import expected_failures
from compare import differences, expected_session, normalise, read_session, same_wire
from conversation import Json
from programs import PROGRAMS
from runs import Outcome, run_task, stable

# When the server is killed, and how often the model is asked more than without Turnwire: what it has answered is in the log,
# what it has not answered is asked for again.
KILLS = {"never": 0, "between_turns": 0, "in_a_call": 0, "while_it_calls": 1, "while_it_answers": 1}


@functools.cache
def straight(program: str, cut: str = "") -> Outcome:
    return run_task(PROGRAMS[program], through=False, kill=cut)


@functools.cache
def through(program: str, kill: str) -> Outcome:
    return run_task(PROGRAMS[program], through=True, kill=kill)


def cells() -> list[Any]:
    found = []
    for program in PROGRAMS:
        for kill in KILLS:
            for aspect in CHECKS:
                cell = f"{program} {kill} {aspect}"
                found.append(pytest.param(program, kill, aspect, id=cell.replace(" ", "/"), marks=expected_failures.marks_of(cell)))
    return found


def stabilised(value: Any) -> Any:
    return json.loads(stable(json.dumps(value)))


def without_repetitions(requests: list[Json]) -> list[Json]:
    """Without requests that are sent again."""
    kept: list[tuple[Json, Json]] = []
    for request in requests:
        body = normalise(request["wire"], request["body"])
        if all(body != other for other, _ in kept):
            kept.append((body, request))
    return [request for _, request in kept]


def check_requests(control: Outcome, found: Outcome, kill: str) -> list[str]:
    problems = []
    for what, wanted, got in (
        ("request", without_repetitions(control.requests), without_repetitions(found.requests)),
        ("request beside it", control.beside, without_repetitions(found.beside)),
    ):
        for number, (one, other) in enumerate(zip(wanted, got), 1):
            problems += [f"{what} {number} of {len(wanted)}: {problem}" for problem in same_wire(stabilised(one), stabilised(other))]
        if len(wanted) != len(got):
            problems.append(f"the provider gets {len(got)} of {len(wanted)}: {what}")
    return problems


def check_repetitions(control: Outcome, found: Outcome, kill: str) -> list[str]:
    """The model is not asked again for what it has answered."""
    again = len(found.requests) - len(without_repetitions(found.requests))
    return [f"the model is asked {again} times more instead of {KILLS[kill]}"] if again != KILLS[kill] else []


def check_end(control: Outcome, found: Outcome, kill: str) -> list[str]:
    ends = [[(turn.code, turn.text) for turn in outcome.turns] for outcome in (control, found)]
    problems = list(differences(stabilised(ends[0]), stabilised(ends[1]), "turns"))
    problems += differences(control.files, found.files, "files")
    return problems + ([found.turns[-1].output[-2000:]] if problems else [])


def check_sessions(control: Outcome, found: Outcome, kill: str) -> list[str]:
    """The conversation is one session, with all that was said in it; each request beside it has one of its own."""
    wanted = [expected_session(control.requests[-1]), *(expected_session(request) for request in control.beside)]
    got = [read_session(session["messages"]) for session in found.sessions]
    problems = []
    if len(wanted) != len(got):
        problems.append(f"there are {len(got)} sessions instead of {len(wanted)}")
    got.sort(key=len, reverse=True)
    if got:
        problems += [f"the conversation: {problem}" for problem in differences(stabilised(wanted[0]), stabilised(got[0]))]
    claims = [message for session in found.sessions for message in session["messages"] if message["metadata"].get("claimed")]
    if claims:
        problems.append(f"{len(claims)} messages are marked as the client's claim")
    if running := [session["id"] for session in found.sessions if session["status"] != "idle"]:
        problems.append(f"not idle: {running}")
    return problems


CHECKS = {"requests": check_requests, "repetitions": check_repetitions, "end": check_end, "sessions": check_sessions}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_does_its_task_without_turnwire(program: str) -> None:
    control = straight(program)
    assert [turn.code for turn in control.turns] == [0, 0, 0], control.turns[-1].output
    assert control.files == {"notes.txt": "one\n"}
    assert "one" in control.turns[0].text and "two" in control.turns[1].text and "What did we do?" in control.turns[2].text
    # Two calls one after another, two at once, and three final answers.
    assert len(control.requests) == 6 and all("answer" in request for request in control.requests)


@pytest.mark.parametrize(("program", "kill", "aspect"), cells())
def test_turnwire_makes_no_difference(program: str, kill: str, aspect: str, record_property: Any) -> None:
    record_property("cell", f"{program} {kill} {aspect}")
    found = through(program, kill)
    problems = CHECKS[aspect](straight(program), found, kill)
    # Some programs keep the beginning of an answer whose connection broke. With Turnwire they may end so or so.
    if problems and kill.startswith("while_"):
        problems = CHECKS[aspect](straight(program, kill), found, kill)
    assert not problems, "\n".join([problems[0], *problems[1:12]])
