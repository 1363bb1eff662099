"""Our agent beside AgentScope's own: on the same scripted model, with the same tools, the same person
and the same client, both emit the same sequence of events, apart from what is listed here.

An event is compared by its type, by which block or call it is about (in the order of their
appearance), and by how it says that something ended. Neighbouring deltas of one block count as one.
"""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import scope_agent
import their_fold
from agentscope.event import AgentEvent, EventBase
from agentscope.message import Msg
from conftest import program_named_by
from pydantic import TypeAdapter

Json = dict[str, Any]

FILE = Path(__file__).with_name("scenarios.json")
PLAN: Json = json.loads(FILE.read_text())
SCENARIOS: dict[str, Json] = {scenario["name"]: scenario for scenario in PLAN["scenarios"]}


@dataclass(frozen=True)
class Step:
    """What is compared of an event."""

    type: str
    about: str = ""
    """Which block or call."""
    how: str = ""
    """How it says that something ended."""

    @property
    def is_end(self) -> bool:
        return self.type in ("TEXT_BLOCK_END", "THINKING_BLOCK_END", "TOOL_CALL_END")


Steps = list[Step]


def steps(events: Sequence[EventBase]) -> Steps:
    """The events as they are compared."""
    names: dict[str, str] = {}
    found: Steps = []
    for event in (event.model_dump(mode="json") for event in events):
        type = event["type"]
        how = str(event.get("state") or event.get("finished_reason") or "")
        if type in ("REQUIRE_USER_CONFIRM", "REQUIRE_EXTERNAL_EXECUTION"):
            # Whether calls come together in one event or in one each, they are asked for.
            found += [Step(type, names[call["id"]]) for call in event["tool_calls"]]
            continue
        id = event.get("tool_call_id") or event.get("block_id") or ""
        kind = "call" if "tool_call_id" in event else "block"
        if id and id not in names:
            names[id] = f"{kind} {len(names) + 1}"
        found.append(Step(type, names.get(id, ""), how))
    return found


def collapsed(steps: Steps) -> Steps:
    """Neighbouring deltas of one block as one."""
    twice = [a.type.endswith("_DELTA") and a == b for a, b in zip(steps, steps[1:])]
    return [step for step, is_repeated in zip(steps, [False, *twice]) if not is_repeated]


# --- where ours differs, and why -------------------------------------------------------------------


def without_answers(steps: Steps) -> Steps:
    """The answers of a person and of the client are in our log, so that a reply goes on from it after
    a crash; theirs are arguments of the next call."""
    answers = ("USER_CONFIRM_RESULT", "EXTERNAL_EXECUTION_RESULT")
    return [step for step in steps if step.type not in answers]


def ends_at_once(steps: Steps) -> Steps:
    """A block of theirs ends when the model's next chunk has none of it, after what that chunk begins,
    and several end in any order. A model's stream says where its blocks end, so ours end there."""
    found = [step for step in steps if not step.is_end]
    for end in (step for step in steps if step.is_end):
        kind = end.type.removesuffix("END")
        own = [n for n, step in enumerate(found) if (step.type, step.about) == (f"{kind}DELTA", end.about)]
        found.insert(own[-1] + 1, end)
    return found


def call_by_call(steps: Steps) -> Steps:
    """Between two model calls theirs takes call by call, and does not ask a second question that the
    first one's rule would spare. Ours asks and hands over everything at once, and starts all tools
    before the first one speaks: a person is never kept waiting for a tool. Within one call both have
    the same order."""
    found: Steps = []
    round: Steps = []
    for step in [*steps, Step("")]:
        if step.type.startswith(("TOOL_RESULT", "REQUIRE")):
            round.append(step)
        else:
            found += sorted(round, key=lambda step: step.about) + [step]
            round = []
    return found[:-1]


def handed_over_whole(steps: Steps) -> Steps:
    """Theirs begins the result of a call before the client is asked for it, and streams it when it
    comes. Ours takes the client's result as it is: the answer in the log is the result."""
    handed = {step.about for step in steps if step.type == "REQUIRE_EXTERNAL_EXECUTION"}
    given_up = {step.about for step in steps if step.how == "interrupted"}
    return [
        step
        for step in steps
        if not (step.type.startswith("TOOL_RESULT") and step.about in handed - given_up)
    ]


def begun_when_given_up(steps: Steps) -> Steps:
    """For the same reason the result of a call that the client never executes begins, in ours, when
    the reply is given up."""
    handed = {step.about for step in steps if step.type == "REQUIRE_EXTERNAL_EXECUTION"}
    found: Steps = []
    for step in steps:
        if step.type == "TOOL_RESULT_START" and step.about in handed:
            continue
        found.append(step)
        if step.type == "REQUIRE_EXTERNAL_EXECUTION":
            begun = Step("TOOL_RESULT_START", step.about)
            found += [begun] if Step("TOOL_RESULT_END", step.about, "interrupted") in steps else []
    return found


def unclosed(steps: Steps) -> Steps:
    """When its model fails, theirs raises, and leaves everything open. Ours closes what it opened, and
    says in the end of the reply what went wrong."""
    if steps[-1] != Step("REPLY_END", "", "error"):
        return steps
    last = max(n for n, step in enumerate(steps) if step.type == "MODEL_CALL_END")
    while steps[last - 1].is_end:
        last -= 1
    return steps[:last]


def as_refused(steps: Steps) -> Steps:
    """Theirs mends an input that breaks off, and runs the tool with what it guesses. Ours tells the
    model: half an input may be another one."""
    guessed = [step for step in steps if step.how == "success"]
    return [replace(step, how="error") if step in guessed else step for step in steps]


def first_thoughts(steps: Steps) -> Steps:
    """A model that only thinks is asked again by theirs. Ours ends the reply: it has come to its end
    by the model's own word, and a person sees the thoughts."""
    first = [step.type for step in steps].index("MODEL_CALL_END")
    return [*steps[: first + 1], steps[-1]]


@dataclass(frozen=True)
class Difference:
    """One that is listed: what is changed, and of whose, so that it is none."""

    change: Callable[[Any], Any]
    ours: bool = False
    theirs: bool = False
    only_for: Callable[[Json], bool] = lambda _: True


def made_equal(
    scenario: Json, sides: tuple[Any, Any], listed: list[Difference], without: Difference | None
) -> tuple[Any, Any]:
    """What is left of both sides when the listed differences, but for one, are none."""
    ours, theirs = sides
    for difference in listed:
        if difference is not without and difference.only_for(scenario):
            ours = difference.change(ours) if difference.ours else ours
            theirs = difference.change(theirs) if difference.theirs else theirs
    return ours, theirs


def lines(scenario: Json) -> list[Any]:
    """All that the model says."""
    return [line for answer in scenario["answers"] for line in answer]


def fails(scenario: Json) -> bool:
    """Whether the model fails."""
    return any("fail" in line for line in lines(scenario))


def breaks_off(scenario: Json) -> bool:
    """Whether the input of a call is the beginning of some JSON, and the call is to be made."""
    inputs = ["".join(line["call"][2]) for line in lines(scenario) if "call" in line]
    is_made = not fails(scenario) and "stop_at" not in scenario
    return is_made and any(input.startswith("{") and not input.endswith("}") for input in inputs)


def only_thinks(scenario: Json) -> bool:
    """Whether the model's first answer has nothing but thoughts."""
    return "stop_at" not in scenario and all("thinking" in line for line in scenario["answers"][0])


DIFFERENCES = [
    Difference(without_answers, ours=True),
    Difference(ends_at_once, theirs=True),
    Difference(begun_when_given_up, theirs=True),
    Difference(handed_over_whole, theirs=True),
    Difference(call_by_call, ours=True, theirs=True),
    Difference(unclosed, ours=True),
    Difference(as_refused, theirs=True, only_for=breaks_off),
    Difference(first_thoughts, theirs=True, only_for=only_thinks),
]


# --- the runs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A scenario as both have played it."""

    scenario: Json
    ours: list[EventBase]
    theirs: list[AgentEvent]
    kept: Msg | None
    """The message that AgentScope's agent keeps of its reply."""


def sequences(run: Run, without: Difference | None = None) -> tuple[Steps, Steps]:
    """The events of both."""
    sides = steps(run.ours), steps(run.theirs)
    ours, theirs = made_equal(run.scenario, sides, DIFFERENCES, without)
    return collapsed(ours), collapsed(theirs)


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    program = program_named_by(
        "SCENARIOS_AGENT", "cargo build -p turnwire-agent --example scope_scenarios"
    )
    done = subprocess.run([program, FILE], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    ours: dict[str, list[EventBase]] = {name: [] for name in SCENARIOS}
    # AgentScope's own models read each of our events.
    read = TypeAdapter(AgentEvent).validate_python
    for line in done.stdout.decode().splitlines():
        played = json.loads(line)
        ours[played["scenario"]].append(read(played["event"]))
    runs = {}
    for name, scenario in SCENARIOS.items():
        theirs, kept = scope_agent.played(scenario, PLAN["tools"])
        runs[name] = Run(scenario, ours[name], theirs, kept)
    return runs


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_sequence_is_the_same(runs: dict[str, Run], name: str) -> None:
    ours, theirs = sequences(runs[name])
    assert ours == theirs


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda it: it.change.__name__)
def test_what_is_listed_is_there(runs: dict[str, Run], difference: Difference) -> None:
    differing = [sequences(run, without=difference) for run in runs.values()]
    assert any(ours != theirs for ours, theirs in differing), "this difference is none (any more)"


# --- the messages -----------------------------------------------------------------------------------


def block(it: Json) -> tuple[str, ...]:
    """What is compared of a block: all but ids and times."""
    match it["type"]:
        case "text" | "thinking" as type:
            return type, it[type]
        case "tool_call":
            return "tool_call", it["id"], it["name"], it["input"], it["state"]
        case "tool_result":
            return "tool_result", it["id"], it["name"], it["state"], output(it["output"])
        case other:
            return other, json.dumps(it[other])


def output(of: str | list[Json]) -> str:
    parts = of if isinstance(of, list) else [{"type": "text", "text": of}]
    return "".join(part["text"] if part["type"] == "text" else part["source"]["data"] for part in parts)


Blocks = list[tuple[str, ...]]


def results_in_order(blocks: Blocks) -> Blocks:
    """Results of one round stand in the order in which they ended in theirs, began in ours."""
    found: Blocks = []
    round: Blocks = []
    for it in [*blocks, ("",)]:
        if it[0] == "tool_result":
            round.append(it)
        else:
            found += sorted(round) + [it]
            round = []
    return found[:-1]


def own_words(blocks: Blocks) -> Blocks:
    """Each has its own words for a call that did not run or did not end; theirs says so even behind
    what a tool had said. What a tool says itself is the same."""
    tools = PLAN["tools"]
    inputs = {it[1]: it[3] for it in blocks if it[0] == "tool_call"}

    def is_told(it: tuple[str, ...]) -> bool:
        return it[3] in ("denied", "interrupted") or it[2] not in tools or not fits(inputs[it[1]])

    return [it[:3] if it[0] == "tool_result" and is_told(it) else it for it in blocks]


def fits(input: str) -> bool:
    try:
        return "city" in json.loads(input)
    except ValueError:
        return False


def without_hints(blocks: Blocks) -> Blocks:
    """At the last round theirs adds a hint to its history that is in no event; ours takes the tools
    away, and its history is the fold of its events."""
    return [it for it in blocks if it[0] != "hint"]


def without_the_broken_call(blocks: Blocks) -> Blocks:
    """What a failing model had said is lost in theirs. In ours it stays, as everything that somebody
    has seen, and a call in it that was not made has a result that says so."""
    results = [n for n, it in enumerate(blocks) if it[0] == "tool_result" and it[3] != "interrupted"]
    return blocks[: results[-1] + 1] if results else []


def no_second_thoughts(blocks: Blocks) -> Blocks:
    """A model that only thinks is asked again by theirs, as above."""
    return blocks[:1]


MESSAGES = [
    Difference(without_the_broken_call, ours=True, only_for=fails),
    Difference(results_in_order, ours=True, theirs=True),
    Difference(own_words, ours=True, theirs=True),
    Difference(without_hints, theirs=True),
    Difference(no_second_thoughts, theirs=True, only_for=only_thinks),
]


def messages(run: Run, without: Difference | None = None) -> tuple[Blocks, Blocks]:
    """The blocks of the message that AgentScope's fold makes of our events, and of the message that
    its own agent keeps."""
    ours = their_fold.expected(run.ours)["content"]
    theirs = run.kept.model_dump(mode="json")["content"] if run.kept else []
    sides = [block(it) for it in ours], [block(it) for it in theirs]
    return made_equal(run.scenario, sides, MESSAGES, without)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_message_is_the_same(runs: dict[str, Run], name: str) -> None:
    ours, theirs = messages(runs[name])
    assert ours == theirs


@pytest.mark.parametrize("difference", MESSAGES, ids=lambda it: it.change.__name__)
def test_what_is_listed_of_messages_is_there(runs: dict[str, Run], difference: Difference) -> None:
    differing = [messages(run, without=difference) for run in runs.values()]
    assert any(ours != theirs for ours, theirs in differing), "this difference is none (any more)"


def test_the_tokens_are_the_same(runs: dict[str, Run]) -> None:
    for name in ("text only", "several rounds", "two questions at once", "too many rounds"):
        run = runs[name]
        assert run.kept and run.kept.usage
        assert their_fold.expected(run.ours)["usage"] == run.kept.usage.model_dump(mode="json")

