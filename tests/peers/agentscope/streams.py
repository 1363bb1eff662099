"""Seeded streams of AgentScope's own events, in the orders in which its agents emit them."""

import json
import random
from dataclasses import dataclass

from agentscope.event import CustomEvent, EventBase

import values
from blocks import Stamp
from replies import Reply, reply, spoken_turn
from tracks import interleaved


@dataclass(frozen=True)
class Stream:
    """What one file holds: replies, interleaved, and what an application says between them."""

    seed: int
    replies: list[Reply]
    events: list[EventBase]
    lines: list[bytes]


def stream(seed: int) -> Stream:
    rng = random.Random(seed)
    makers = rng.choices((reply, spoken_turn), weights=(5, 1), k=rng.randint(1, 4))
    replies = [make(rng) for make in makers]
    stamp = Stamp(rng)
    customs: list[EventBase] = [custom(stamp) for _ in range(rng.randint(0, 3))]
    events = list(interleaved(rng, [*(reply.events for reply in replies), customs]))
    return Stream(seed, replies, events, [line(rng, event) for event in events])


def custom(stamp: Stamp) -> CustomEvent:
    return CustomEvent(
        id=stamp.id(),
        created_at=stamp.now(),
        name=stamp.rng.choice(("state_updated", "team_updated", "")),
        value=values.json_object(stamp.rng),
    )


def line(rng: random.Random, event: EventBase) -> bytes:
    """The event as pydantic writes it, or as AgentScope's service does: spaced, and in ASCII."""
    if rng.random() < 0.5:
        return event.model_dump_json().encode()
    return json.dumps(event.model_dump(mode="json")).encode()
