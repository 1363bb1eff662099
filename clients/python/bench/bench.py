"""The figures of the Python package: `make bench-python`.

The fold beside AgentScope's own: 100 thousand text deltas, from JSON to the message as a dictionary. AgentScope reads
events with its union of all types, which is slow; beside it stand two readers that we wrote to be faster. The processor
time that publishing adds for each event in batches: the whole process, its thread included, against a real server.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentscope.event import (
    AgentEvent,
    ReplyEndEvent,
    ReplyStartEvent,
    TextBlockDeltaEvent,
    TextBlockEndEvent,
    TextBlockStartEvent,
)
from agentscope.message import Msg as ScopeMsg
from pydantic import TypeAdapter

import turnwire

sys.path.insert(0, str(Path(__file__).parents[3] / "tests/peers"))
DELTAS = 100_000
KINDS = {
    kind.model_fields["type"].default: kind
    for kind in (ReplyStartEvent, TextBlockStartEvent, TextBlockDeltaEvent, TextBlockEndEvent, ReplyEndEvent)
}


def lines() -> list[str]:
    """A reply, as AgentScope writes it."""
    common = {"reply_id": "r"}
    events = [
        ReplyStartEvent(session_id="s", name="friday", **common),
        TextBlockStartEvent(block_id="b", **common),
        *(TextBlockDeltaEvent(block_id="b", delta=f"word{at % 1000} ", **common) for at in range(DELTAS)),
        TextBlockEndEvent(block_id="b", **common),
        ReplyEndEvent(session_id="s", **common),
    ]
    return [event.model_dump_json() for event in events]


def theirs(body: list[str]) -> dict[str, object]:
    reader: TypeAdapter[Any] = TypeAdapter(AgentEvent)
    msg = ScopeMsg(id="r", name="friday", role="assistant", content=[])
    for line in body:
        msg.append_event(reader.validate_json(line))
    return msg.model_dump()


def theirs_by_the_name_of_the_type(body: list[str]) -> dict[str, object]:
    msg = ScopeMsg(id="r", name="friday", role="assistant", content=[])
    for line in body:
        kind = KINDS[json.loads(line)["type"]]
        msg.append_event(kind.model_validate_json(line))
    return msg.model_dump()


def theirs_with_known_types(body: list[tuple[type, str]]) -> dict[str, object]:
    """Without the cost of finding out the type of an event."""
    msg = ScopeMsg(id="r", name="friday", role="assistant", content=[])
    for kind, line in body:
        msg.append_event(kind.model_validate_json(line))
    return msg.model_dump()


def ours(body: bytes) -> turnwire.types.MsgJson:
    folder = turnwire.Folder()
    folder.feed(body)
    return folder.messages()[0].to_dict()


def ours_one_by_one(body: list[str]) -> turnwire.types.MsgJson:
    folder = turnwire.Folder()
    for line in body:
        folder.push(line)
    return folder.messages()[0].to_dict()


def best(runs: int, work: Callable[[], object]) -> float:
    """The processor time of the best run: others use this machine, too."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def fold() -> None:
    texts = lines()
    typed = [(KINDS[json.loads(line)["type"]], line) for line in texts]
    body = "\n".join(texts).encode()
    text = theirs(texts)["content"][0]["text"]  # type: ignore[index]
    assert text == ours(body)["content"][0]["text"] == ours_one_by_one(texts)["content"][0]["text"]  # type: ignore[index, typeddict-item]
    slow = best(3, lambda: theirs(texts))
    for name, took in {
        "turnwire, a whole body": best(10, lambda: ours(body)),
        "turnwire, event by event": best(10, lambda: ours_one_by_one(texts)),
        "agentscope": slow,
        "agentscope, faster reader": best(3, lambda: theirs_by_the_name_of_the_type(texts)),
        "agentscope, type known": best(3, lambda: theirs_with_known_types(typed)),
    }.items():
        print(f"{name:28} {took * 1e3:9.1f} ms {DELTAS / took / 1e3:9.0f} k events/s {slow / took:8.1f} x")


def publish() -> None:
    from tempfile import TemporaryDirectory

    from turnwire_server import TurnwireServer

    events = [
        {"type": "TEXT_BLOCK_DELTA", "reply_id": "r", "block_id": "b", "delta": f"word{at % 1000} "}
        for at in range(DELTAS)
    ]
    with TemporaryDirectory() as folder:
        running = TurnwireServer(Path(folder))
        times = []
        for run in range(5):
            with turnwire.Publisher(f"s{run}", url=running.url) as publisher:
                publisher.send({"type": "REPLY_START", "reply_id": "r", "name": "friday"})
                publisher.send({"type": "TEXT_BLOCK_START", "reply_id": "r", "block_id": "b"})
                publisher.flush()
                start = time.process_time()
                for event in events:
                    publisher.send(event)
                publisher.flush()
                times.append(time.process_time() - start)
                assert publisher.stored == DELTAS + 2
        running.stop()
    print(f"{'publish, in batches':28} {min(times) / DELTAS * 1e6:9.1f} µs of processor time per event")


if __name__ == "__main__":
    print(f"load {os.getloadavg()[0]:.1f}")
    fold()
    publish()
