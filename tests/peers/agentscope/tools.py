"""What becomes of a tool call: the events of its result, of the questions, and of the answers."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from agentscope.event import (
    ConfirmResult,
    ExternalExecutionResultEvent,
    RequireExternalExecutionEvent,
    RequireUserConfirmEvent,
    ToolResultDataDeltaEvent,
    ToolResultEndEvent,
    ToolResultStartEvent,
    ToolResultTextDeltaEvent,
    UserConfirmResultEvent,
)
from agentscope.message import ToolCallBlock, ToolResultBlock, ToolResultState

import blocks
import values
from blocks import Stamp
from tracks import Step, Track


class Fate(Enum):
    RUNS = auto()
    REFUSED = auto()
    """Forbidden, unknown, or called with broken JSON."""
    ASKED = auto()
    """Waits for a person."""
    EXTERNAL = auto()
    """Waits for a program outside; the agent streams what that gives."""
    EXTERNAL_WHOLE = auto()
    """Waits for a program outside, whose result is all that there is."""


@dataclass(eq=False)
class Call:
    block: ToolCallBlock
    fate: Fate
    started: bool = False
    """Its result has a start."""
    done: bool = False
    """Its result has an end."""

    @property
    def waits(self) -> bool:
        return self.fate not in (Fate.RUNS, Fate.REFUSED)


def first_track(stamp: Stamp, call: Call) -> Track:
    """Up to the end of the call, or up to the question."""
    match call.fate:
        case Fate.RUNS:
            states = [state for state in ToolResultState if state is not ToolResultState.DENIED]
            return [start(call), *output(stamp, call), end(stamp, call, stamp.rng.choice(states))]
        case Fate.REFUSED:
            return refused(stamp, call)
        case Fate.ASKED:
            return [(RequireUserConfirmEvent, {"tool_calls": listed(stamp, call)})]
        case Fate.EXTERNAL:
            ask = (RequireExternalExecutionEvent, {"tool_calls": listed(stamp, call)})
            return [start(call), ask]
        case Fate.EXTERNAL_WHOLE:
            return [(RequireExternalExecutionEvent, {"tool_calls": listed(stamp, call)})]


def second_track(stamp: Stamp, call: Call, allowed: set[Call]) -> Track:
    """What the agent does at once when the answer has come."""
    match call.fate:
        case Fate.ASKED if call not in allowed:
            return refused(stamp, call)
        case Fate.EXTERNAL:
            state = stamp.rng.choice((ToolResultState.SUCCESS, ToolResultState.ERROR))
            return [*output(stamp, call), end(stamp, call, state)]
        case _:
            return []


def closing_track(stamp: Stamp, call: Call) -> Track:
    """An interrupt closes what is open."""
    if call.done:
        return []
    words = {"tool_call_id": call.block.id, "delta": "<system-reminder>interrupted"}
    begin = [] if call.started else [start(call)]
    stop = end(stamp, call, ToolResultState.INTERRUPTED)
    return [*begin, (ToolResultTextDeltaEvent, words), stop]


def start(call: Call) -> Step:
    call.started = True
    return ToolResultStartEvent, {
        "tool_call_id": call.block.id,
        "tool_call_name": call.block.name,
    }


def end(stamp: Stamp, call: Call, state: ToolResultState) -> Step:
    call.done = True
    fields: dict[str, Any] = {"tool_call_id": call.block.id, "state": state}
    if stamp.rng.random() < 0.3:
        fields["metadata"] = values.json_object(stamp.rng)
    return ToolResultEndEvent, fields


def refused(stamp: Stamp, call: Call) -> Track:
    words = {"tool_call_id": call.block.id, "delta": "<system-reminder>denied by user!"}
    state = stamp.rng.choice((ToolResultState.DENIED, ToolResultState.ERROR))
    return [start(call), (ToolResultTextDeltaEvent, words), end(stamp, call, state)]


def output(stamp: Stamp, call: Call) -> Track:
    """Text and data; each piece of data is a block of its own."""
    call_id = {"tool_call_id": call.block.id}
    track: Track = []
    for _ in range(stamp.rng.choice((0, 1, 2, 4, 20))):
        if stamp.rng.random() < 0.6:
            delta = call_id | {"delta": values.text(stamp.rng)}
            track.append((ToolResultTextDeltaEvent, delta))
        else:
            source = blocks.source(stamp.rng).model_dump(mode="json", exclude={"type"})
            track.append((ToolResultDataDeltaEvent, call_id | {"block_id": stamp.id()} | source))
    return track


def listed(stamp: Stamp, call: Call) -> list[ToolCallBlock]:
    """The call in a question, at times beside one that the reply does not have."""
    rules = {"suggested_rules": blocks.rules(stamp.rng)}
    calls = [call.block.model_copy(update=rules)]
    if stamp.rng.random() < 0.1:
        calls.insert(stamp.rng.randint(0, 1), blocks.tool_call_block(stamp))
    return calls


def answers(stamp: Stamp, calls: list[Call], closed: list[Call], allowed: set[Call]) -> Track:
    """The answers to these calls. An answer to a closed call comes late, and changes nothing."""
    late = [call for call in closed if stamp.rng.random() < 0.1]
    asked = [call for call in calls if call.fate is Fate.ASKED]
    external = [call for call in calls if call.fate is not Fate.ASKED]
    track: Track = []
    if asked:
        confirm = [confirmation(stamp, call, call in allowed) for call in asked]
        confirm += [confirmation(stamp, call, confirmed=True) for call in late]
        stamp.rng.shuffle(confirm)
        track.append((UserConfirmResultEvent, {"confirm_results": confirm}))
    if external:
        results = [result(stamp, call) for call in external + late]
        stamp.rng.shuffle(results)
        track.append((ExternalExecutionResultEvent, {"execution_results": results}))
    for call in external:
        call.done = call.done or call.fate is Fate.EXTERNAL_WHOLE
    return track


def confirmation(stamp: Stamp, call: Call, confirmed: bool) -> ConfirmResult:
    edit = {"input": '{"amount": "édited"}'} if stamp.rng.random() < 0.3 else {}
    rules = stamp.rng.choice((None, blocks.rules(stamp.rng)))
    tool_call = call.block.model_copy(update=edit)
    return ConfirmResult(confirmed=confirmed, tool_call=tool_call, rules=rules)


def result(stamp: Stamp, call: Call) -> ToolResultBlock:
    states = (ToolResultState.SUCCESS.value, ToolResultState.ERROR.value)
    of_call = {"id": call.block.id, "name": call.block.name, "state": stamp.rng.choice(states)}
    return blocks.tool_result_block(stamp).model_copy(update=of_call)
