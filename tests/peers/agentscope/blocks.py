"""Seeded blocks, made of AgentScope's own classes. Nothing is left to its clock or its ids."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta

from agentscope.message import (
    Base64Source,
    DataBlock,
    HintBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolCallState,
    ToolResultBlock,
    ToolResultState,
    URLSource,
)
from agentscope.permission import PermissionBehavior, PermissionRule
from pydantic import AnyUrl

import values


class Stamp:
    """Ids and times that are distinct, and the same in every run."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._now = datetime(2026, 1, 1) + timedelta(seconds=rng.randrange(10**8))

    def id(self) -> str:
        """32 hexadecimal digits, as AgentScope makes them."""
        return f"{self.rng.getrandbits(128):032x}"

    def call_id(self) -> str:
        """A call's id is the provider's, in whatever form."""
        return self.rng.choice(("call_", "toolu_", "函數-", "")) + self.id()[:24]

    def now(self) -> str:
        # The same form as AgentScope's clock: no fraction where it is zero.
        self._now += timedelta(microseconds=self.rng.choice((1, 999, 500_000, 10**6)))
        return self._now.isoformat()

    def maybe_now(self) -> str | None:
        return self.now() if self.rng.random() < 0.5 else None


def text_block(stamp: Stamp) -> TextBlock:
    return TextBlock(
        text=values.text(stamp.rng),
        id=stamp.id(),
        created_at=stamp.now(),
        finished_at=stamp.maybe_now(),
    )


def thinking_block(stamp: Stamp) -> ThinkingBlock:
    extra = values.json_object(stamp.rng) if stamp.rng.random() < 0.5 else {}
    extra = {f"x{key}": value for key, value in extra.items()}
    return ThinkingBlock(
        thinking=values.text(stamp.rng),
        id=stamp.id(),
        created_at=stamp.now(),
        finished_at=stamp.maybe_now(),
        **extra,
    )


def source(rng: random.Random) -> Base64Source | URLSource:
    media_type = rng.choice(values.MEDIA)
    if rng.random() < 0.3:
        return URLSource(url=AnyUrl(rng.choice(values.URLS)), media_type=media_type)
    return Base64Source(data=values.chunk(rng), media_type=media_type)


def data_block(stamp: Stamp) -> DataBlock:
    return DataBlock(
        id=stamp.id(),
        source=source(stamp.rng),
        name=stamp.rng.choice((None, "", "картинка.png")),
        created_at=stamp.now(),
        finished_at=stamp.maybe_now(),
    )


def payload(stamp: Stamp) -> str | list[TextBlock | DataBlock]:
    """What a hint says, or a tool gives."""
    if stamp.rng.random() < 0.5:
        return values.text(stamp.rng)
    makers = stamp.rng.choices((text_block, data_block), k=stamp.rng.randint(0, 4))
    return [make(stamp) for make in makers]


def hint_block(stamp: Stamp) -> HintBlock:
    return HintBlock(
        hint=payload(stamp),
        id=stamp.id(),
        source=stamp.rng.choice((None, "alice", '{"label": "System"}')),
        created_at=stamp.now(),
        finished_at=stamp.maybe_now(),
    )


def rule(rng: random.Random) -> PermissionRule:
    return PermissionRule(
        tool_name=values.word(rng),
        rule_content=rng.choice((None, "src/**", values.text(rng))),
        behavior=rng.choice(list(PermissionBehavior)),
        source=rng.choice(("userSettings", "")),
    )


def rules(rng: random.Random) -> list[PermissionRule]:
    return [rule(rng) for _ in range(rng.randint(0, 2))]


def tool_call_block(stamp: Stamp) -> ToolCallBlock:
    return ToolCallBlock(
        id=stamp.call_id(),
        name=values.word(stamp.rng),
        input=stamp.rng.choice(("", '{"city": "Zürich"}', '{"broken', values.text(stamp.rng))),
        state=stamp.rng.choice(list(ToolCallState)),
        suggested_rules=rules(stamp.rng),
        created_at=stamp.now(),
        finished_at=stamp.maybe_now(),
    )


def tool_result_block(stamp: Stamp) -> ToolResultBlock:
    return ToolResultBlock(
        id=stamp.call_id(),
        name=values.word(stamp.rng),
        output=payload(stamp),
        state=stamp.rng.choice(list(ToolResultState)),
        metadata=values.json_object(stamp.rng),
        created_at=stamp.now(),
        finished_at=stamp.maybe_now(),
    )


Block = TextBlock | ThinkingBlock | DataBlock | HintBlock | ToolCallBlock | ToolResultBlock

MAKERS: dict[type[Block], Callable[[Stamp], Block]] = {
    TextBlock: text_block,
    ThinkingBlock: thinking_block,
    DataBlock: data_block,
    HintBlock: hint_block,
    ToolCallBlock: tool_call_block,
    ToolResultBlock: tool_result_block,
}
