"""Seeded replies: the scenes that AgentScope's agents play, from the first event to the last."""

import random
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from agentscope.event import (
    EventBase,
    ExceedMaxItersEvent,
    ModelCallEndEvent,
    ModelCallStartEvent,
    ReplyEndEvent,
    ReplyStartEvent,
    UserInterruptEvent,
)
from agentscope.model import FinishedReason
from agentscope.types import ErrorInfo, ErrorType, ReplyFinishedReason

import blocks
import tools
import tracks
import values
from blocks import Stamp
from tools import Call, Fate
from tracks import Step, Track


class End(Enum):
    COMPLETED = auto()
    EXCEED_MAX_ITERS = auto()
    INTERRUPTED = auto()
    CANCELLED_IN_MODEL_CALL = auto()
    MODEL_FAILS = auto()
    BREAKS_OFF = auto()
    """The stream stops anywhere: a process was killed, or has not gone on yet."""


@dataclass(frozen=True)
class Reply:
    reply_id: str
    events: list[EventBase]


def reply(rng: random.Random) -> Reply:
    writer = Writer(rng, name=rng.choice(("Friday", "", "フライデー")))
    end = rng.choices(list(End), weights=(5, 1, 2, 1, 2, 1))[0]
    writer.start()
    goes_on = True
    for _ in range(rng.choice((0, 1, 1, 2, 3, 8))):
        goes_on = writer.act(writer.model_call())
        if not goes_on:
            break
    # A reply that waits for someone has no end, unless it is interrupted.
    if goes_on or end is End.INTERRUPTED:
        writer.end(end)
    if end is End.BREAKS_OFF:
        del writer.events[rng.randint(1, len(writer.events)) :]
    return Reply(writer.reply_id, writer.events)


def spoken_turn(rng: random.Random) -> Reply:
    """What a person said to the voice agent, which sends it as a reply of its own."""
    writer = Writer(rng, name="user", role=rng.choice(("user", "system")))
    writer.start()
    writer.play(tracks.text(writer.stamp, writer.stamp.id()))
    writer.finish(ReplyFinishedReason.COMPLETED)
    return Reply(writer.reply_id, writer.events)


class Writer:
    """Writes the events of one reply, each with an id and a time of its own."""

    def __init__(self, rng: random.Random, name: str, role: str = "assistant") -> None:
        self.rng = rng
        self.stamp = Stamp(rng)
        self.name = name
        self.role = role
        self.reply_id = self.stamp.id()
        self.session_id = self.stamp.id()
        self.events: list[EventBase] = []
        self.calls: list[Call] = []

    def play(self, *played: Track) -> None:
        for kind, fields in tracks.interleaved(self.rng, list(played)):
            own: dict[str, Any] = {"id": self.stamp.id(), "created_at": self.stamp.now()}
            if self.rng.random() < 0.1:
                own["metadata"] = values.json_object(self.rng)
            self.events.append(kind(**own | {"reply_id": self.reply_id} | fields))

    def start(self) -> None:
        who = {"session_id": self.session_id, "name": self.name}
        # An agent leaves its role to the default.
        role = {} if self.role == "assistant" else {"role": self.role}
        self.play([(ReplyStartEvent, who | role)])

    def finish(self, reason: ReplyFinishedReason, error: ErrorInfo | None = None) -> None:
        why = {"finished_reason": reason, "error": error}
        self.play([(ReplyEndEvent, {"session_id": self.session_id} | why)])

    def model_call(self, reason: FinishedReason = FinishedReason.COMPLETED) -> list[Call]:
        """A model call from its start to its end, and the calls of tools that it asks for."""
        if self.rng.random() < 0.2:
            self.play(tracks.hint(self.stamp))
        played, calls = self.model_tracks()
        self.play([self.model_call_start()])
        self.play(*played)
        self.play([self.model_call_end(reason)])
        return calls

    def model_call_start(self) -> Step:
        return ModelCallStartEvent, {"model_name": self.rng.choice(("qwen-max", ""))}

    def model_call_end(self, reason: FinishedReason) -> Step:
        tokens = {"input_tokens": self.rng.randrange(10**6), "output_tokens": 2**40}
        cache = {
            "cache_input_tokens": self.rng.randrange(100),
            "cache_creation_input_tokens": self.rng.randrange(100),
        }
        tokens |= self.rng.choice(({}, cache))
        return ModelCallEndEvent, tokens | {"finished_reason": reason}

    def model_tracks(self) -> tuple[list[Track], list[Call]]:
        played: list[Track] = []
        # Ids are distinct only among blocks of one type.
        shared = [self.stamp.id()] if self.rng.random() < 0.2 else []
        for make in (tracks.thinking, tracks.text, tracks.data):
            ids = shared + [self.stamp.id() for _ in range(self.rng.choice((0, 0, 1, 1, 2)))]
            played += [make(self.stamp, block_id) for block_id in ids]
        fates = self.rng.choices(list(Fate), k=self.rng.choice((0, 0, 1, 1, 2, 3)))
        calls = [Call(blocks.tool_call_block(self.stamp), fate) for fate in fates]
        self.calls += calls
        return played + [tracks.call(self.stamp, call.block) for call in calls], calls

    def act(self, calls: list[Call]) -> bool:
        """Runs the calls, asks whom they need, hears the answers; whether the reply goes on."""
        waiting = self.begin(calls)
        while waiting:
            if self.rng.random() < 0.1:
                return False
            answered = self.rng.sample(waiting, self.rng.randint(1, len(waiting)))
            waiting = [call for call in waiting if call not in answered]
            allowed = {call for call in answered if self.rng.random() < 0.6}
            closed = [call for call in self.calls if call.done]
            self.play(tools.answers(self.stamp, answered, closed, allowed))
            if self.rng.random() < 0.1:
                return False
            waiting += self.go_on(answered, allowed)
        return True

    def begin(self, calls: list[Call]) -> list[Call]:
        """Plays the calls up to where they wait for someone; those that do."""
        self.play(*(tools.first_track(self.stamp, call) for call in calls))
        return [call for call in calls if call.waits]

    def go_on(self, answered: list[Call], allowed: set[Call]) -> list[Call]:
        # The service says that the reply goes on; the agent by itself does not.
        if self.rng.random() < 0.5:
            self.start()
        self.play(*(tools.second_track(self.stamp, call, allowed) for call in answered))
        approved = [call for call in answered if call.fate is Fate.ASKED and call in allowed]
        for call in approved:
            call.fate = self.rng.choice((Fate.RUNS, Fate.EXTERNAL))
        return self.begin(approved)

    def end(self, end: End) -> None:
        match end:
            case End.COMPLETED | End.BREAKS_OFF:
                self.finish(ReplyFinishedReason.COMPLETED)
            case End.EXCEED_MAX_ITERS:
                # One last model call, without tools.
                last_words = tracks.text(self.stamp, self.stamp.id())
                model_end = self.model_call_end(FinishedReason.COMPLETED)
                self.play([self.model_call_start(), *last_words, model_end])
                self.play([(ExceedMaxItersEvent, {"name": self.name})])
                self.finish(ReplyFinishedReason.EXCEED_MAX_ITERS)
            case End.INTERRUPTED:
                self.play([(UserInterruptEvent, {})])
                self.close()
            case End.CANCELLED_IN_MODEL_CALL:
                self.model_call(FinishedReason.INTERRUPTED)
                self.close()
            case End.MODEL_FAILS:
                self.fail()

    def close(self) -> None:
        """Every call that is open is closed, and the reply with them."""
        for call in self.calls:
            self.play(tools.closing_track(self.stamp, call))
        self.finish(ReplyFinishedReason.INTERRUPTED)

    def fail(self) -> None:
        """Blocks stay open, the model call has no end; only the service ends the reply."""
        played, _ = self.model_tracks()
        self.play([self.model_call_start()])
        self.play(*(track[: self.rng.randint(0, len(track))] for track in played))
        why = ErrorInfo(type=self.rng.choice(list(ErrorType)), message=values.text(self.rng))
        self.finish(ReplyFinishedReason.ERROR, why)
