"""Folds a stream with AgentScope, and tells how long that takes.

    python agentscope_fold.py STREAM.ndjson FOLDED.txt

It prints one JSON object: the version, and the seconds from the bytes in memory to the message, with
each of two readers. The content of the message goes to FOLDED.txt, to be compared with ours.

A reader makes an event of a line. AgentScope's own lets pydantic find out which of its 28 classes
fits. The other, which looks at the type first, is what somebody would write who found that slow: it
is the best chance that we could give it.

Seconds are seconds of the processor: what else the machine does is not held against AgentScope.
"""

import json
import sys
import time
from importlib.metadata import version
from typing import get_args

from agentscope.event import AgentEvent
from agentscope.message import AssistantMsg, Msg
from pydantic import TypeAdapter

# Short runs are repeated, and the best one counts.
RUNS = 3
ENOUGH_SECONDS = 5.0

# As in agentscope/app/channel/_base.py.
union = TypeAdapter(AgentEvent)
class_by_type = {cls.model_fields["type"].default.value: cls for cls in get_args(AgentEvent)}


def own_reader(line: bytes) -> AgentEvent:
    return union.validate_json(line)


def faster_reader(line: bytes) -> AgentEvent:
    fields = json.loads(line)
    return class_by_type[fields["type"]].model_validate(fields)


def fold(stream: bytes, reader) -> Msg:
    lines = iter(stream.splitlines())
    start = reader(next(lines))
    msg = AssistantMsg(id=start.reply_id, name=start.name, content=[])
    for line in lines:
        msg.append_event(reader(line))
    return msg


def content(msg: Msg) -> str:
    return "".join(b.source.data if b.type == "data" else b.text for b in msg.content)


def best_of_some(stream: bytes, reader) -> tuple[float, Msg]:
    runs = []
    while len(runs) < RUNS and sum(runs) < ENOUGH_SECONDS:
        start = time.process_time()
        msg = fold(stream, reader)
        runs.append(time.process_time() - start)
    return min(runs), msg


def main(stream_path: str, folded_path: str) -> None:
    with open(stream_path, "rb") as file:
        stream = file.read()
    own, msg = best_of_some(stream, own_reader)
    faster, _ = best_of_some(stream, faster_reader)
    with open(folded_path, "w", encoding="utf-8", newline="") as file:
        file.write(content(msg))
    print(json.dumps({"version": version("agentscope"), "own": own, "faster": faster}))


if __name__ == "__main__":
    main(*sys.argv[1:])
