"""AgentScope's fold, and where ours differs from it on purpose.

The first three differences are about AgentScope's clock and its random ids. It lets an application
replace both, so they are replaced by what Turnwire takes instead, and then the two have to agree.
The others are applied to its message by hand. The table that lists them is in `docs/events.md`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import agentscope
from agentscope._utils import _common
from agentscope.event import (
    AgentEvent,
    CustomEvent,
    EventBase,
    ExternalExecutionResultEvent,
    ReplyStartEvent,
    ToolResultTextDeltaEvent,
    UserConfirmResultEvent,
)
from agentscope.message import Msg, ToolCallBlock, ToolCallState


def expected(events: Sequence[EventBase]) -> dict[str, Any]:
    """The message that these events of one reply fold to, as JSON."""
    start = events[0]
    assert isinstance(start, ReplyStartEvent), "a reply begins with its start"
    with stand_ins() as given:
        given.time = start.created_at
        msg = Msg(name=start.name, content=[], role=start.role, id=start.reply_id)
        for event in events:
            # A block's time is the clock's; ours is the start event's. The same goes for a hint,
            # which begins and ends with its one event, and for the message.
            given.time = event.created_at
            given.id = part_id(msg, event)
            # `CUSTOM` crashes the fold; ours changes nothing.
            if not isinstance(event, CustomEvent):
                edits = edited_inputs(msg, event)
                msg.append_event(cast(AgentEvent, event.model_copy(deep=True)))
                apply_edits(msg, edits)
                finish_external_calls(msg, event)
    return msg.model_dump(mode="json")


@dataclass
class Given:
    time: str = ""
    id: str = ""


@contextmanager
def stand_ins() -> Iterator[Given]:
    """A clock and a source of ids that give what they are told to."""
    given = Given()
    clock, ids = _common._timestamp_factory, _common._id_factory
    agentscope.set_timestamp_factory(lambda: given.time)
    agentscope.set_id_factory(lambda: given.id)
    try:
        yield given
    finally:
        agentscope.set_timestamp_factory(clock)
        agentscope.set_id_factory(ids)


def part_id(msg: Msg, event: EventBase) -> str:
    """Text inside a tool result has a random id; ours is made of the call's and the position."""
    if isinstance(event, ToolResultTextDeltaEvent):
        for result in msg.get_content_blocks("tool_result"):
            if result.id == event.tool_call_id:
                return f"{result.id}-{len(result.output)}"
    return "no id is needed here"


def edited_inputs(msg: Msg, event: EventBase) -> dict[str, str]:
    """An input that the user edits while confirming is lost; ours is applied."""
    if not isinstance(event, UserConfirmResultEvent):
        return {}
    asking = [call.id for call in calls(msg).values() if call.state == ToolCallState.ASKING]
    approved = [answer.tool_call for answer in event.confirm_results if answer.confirmed]
    return {call.id: call.input for call in approved if call.id in asking}


def apply_edits(msg: Msg, edits: dict[str, str]) -> None:
    for call_id, edited in edits.items():
        calls(msg)[call_id].input = edited


def finish_external_calls(msg: Msg, event: EventBase) -> None:
    """After `EXTERNAL_EXECUTION_RESULT` the call stays submitted; ours is finished."""
    if isinstance(event, ExternalExecutionResultEvent):
        for result in event.execution_results:
            if call := calls(msg).get(result.id):
                call.state = ToolCallState.FINISHED


def calls(msg: Msg) -> dict[str, ToolCallBlock]:
    return {call.id: call for call in msg.get_content_blocks("tool_call")}
