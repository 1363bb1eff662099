"""AgentScope's own fold, for comparisons."""

import typing
from typing import Any

from agentscope.event import AgentEvent
from agentscope.message import Msg as ScopeMsg

EVENTS: dict[str, Any] = {kind.model_fields["type"].default.value: kind for kind in typing.get_args(AgentEvent)}


def fold_theirs(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What AgentScope's own fold makes of the events of a reply, which begin with its start."""
    start, *rest = (EVENTS[event["type"]].model_validate(event) for event in events)
    msg = ScopeMsg(name=start.name, content=[], role=start.role, id=start.reply_id)
    for event in rest:
        msg.append_event(event)
    dumped: dict[str, Any] = msg.model_dump(mode="json")
    return dumped
