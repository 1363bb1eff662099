"""What we write on the `agentscope` wire is what AgentScope's models accept.

The samples are lines of `{"event": …}` and `{"message": …}`, written by
`cargo run -p turnwire-wires --example agentscope_samples -- SEED COUNT`.
"""

import json
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from agentscope.event import AgentEvent
from agentscope.message import Msg
from pydantic import BaseModel, ValidationError

SAMPLES = 3000

EVENTS: dict[str, type[BaseModel]] = {
    event.model_fields["type"].default.value: event for event in typing.get_args(AgentEvent)
}

# What pydantic passes over without a word has to be ours, not a misspelt field of theirs.
OURS_IN_EVENTS = {
    "seq", "seq_from", "agent_path", "parent_tool_call_id",
    "extra", "discard", "structured_output", "message_metadata", "error", "turnwire",
}  # fmt: skip
OURS_IN_MESSAGES = {"turnwire"}


@dataclass(frozen=True)
class Sample:
    kind: str
    text: str

    @property
    def fields(self) -> dict[str, Any]:
        return json.loads(self.text)

    @property
    def model(self) -> type[BaseModel]:
        if self.kind == "message":
            return Msg
        word = self.fields["type"]
        assert word in EVENTS, f"AgentScope has no event {word}: {self.text}"
        return EVENTS[word]

    @property
    def ours(self) -> set[str]:
        if self.kind == "message":
            return OURS_IN_MESSAGES
        # Their `CUSTOM` names no reply; ours may.
        return OURS_IN_EVENTS | ({"reply_id"} if self.fields["type"] == "CUSTOM" else set())


@pytest.fixture(scope="module")
def written(samples: Callable[..., list[str]], seed: int) -> list[Sample]:
    lines = samples(seed, SAMPLES)
    assert lines, "SAMPLES prints nothing"
    return [sample(line) for line in lines]


def sample(line: str) -> Sample:
    # The inner text as it stands: reading and writing it again could repair it.
    found = re.fullmatch(r'\{\s*"(event|message)"\s*:\s*(.*)\}\s*', line, re.DOTALL)
    assert found, f"no sample: {line}"
    return Sample(*found.groups())


def test_every_sample_is_accepted(written: list[Sample]) -> None:
    for sample in written:
        try:
            sample.model.model_validate_json(sample.text)
        except ValidationError as error:
            pytest.fail(f"{error}\n{sample.text}", pytrace=False)


def test_what_it_passes_over_is_ours(written: list[Sample]) -> None:
    for sample in written:
        unknown = set(sample.fields) - set(sample.model.model_fields) - sample.ours
        unknown = {name for name in unknown if not name.startswith("x_")}
        assert not unknown, sample.text


def test_it_reads_the_plain_fields_as_we_wrote_them(written: list[Sample]) -> None:
    """Accepting may mean converting: text that it takes for a number, say."""
    for sample in written:
        read = sample.model.model_validate_json(sample.text).model_dump(mode="json")
        wrote = {n: v for n, v in sample.fields.items() if n in read and not is_nested(v)}
        assert {name: read[name] for name in wrote} == wrote, sample.text


def is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def test_the_samples_hold_messages_and_events_of_every_type(written: list[Sample]) -> None:
    """The other tests here are worth no more than the samples."""
    events = {sample.fields["type"] for sample in written if sample.kind == "event"}
    assert events == set(EVENTS)
    messages = [sample.fields for sample in written if sample.kind == "message"]
    assert {message["role"] for message in messages} == {"user", "assistant", "system"}
