"""The fold and the codecs beside AgentScope's own, in one process: same events, same result.

The streams come from the generators in `tests/peers/agentscope`, where AgentScope is compared with the command line.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import typing
from collections.abc import AsyncIterator, Iterator
from typing import Any

import blocks
import pytest
import values
from agentscope.agent import Agent, InjectionConfig
from agentscope.credential import CredentialBase
from agentscope.event import ConfirmResult, EventBase, UserConfirmResultEvent, UserInterruptEvent
from agentscope.formatter import AnthropicChatFormatter, FormatterBase, OpenAIChatFormatter, OpenAIResponseFormatter
from agentscope.message import (
    Base64Source,
    ContentBlock,
    DataBlock,
    SystemMsg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMsg,
)
from agentscope.message import Msg as ScopeMsg
from agentscope.model import ChatModelBase, ChatResponse, ChatUsage
from agentscope.tool import FunctionTool, Toolkit
from examples import instances
from replies import Reply
from streams import Stream, stream
from their_fold import expected

from agentscope_side import EVENTS
from turnwire import Folder, Msg, wires

# AgentScope deprecates an event that it still sends.
pytestmark = pytest.mark.filterwarnings("ignore:ExceedMaxItersEvent:DeprecationWarning")
STREAMS = 300


@pytest.fixture(scope="module")
def seed() -> int:
    seed = int(os.environ.get("TURNWIRE_SEED") or random.randrange(10**9))
    print(f"TURNWIRE_SEED={seed}")
    return seed


@pytest.fixture(scope="module")
def streams(seed: int) -> list[Stream]:
    return [stream(seed + number) for number in range(STREAMS)]


@pytest.fixture(scope="module")
def replies(streams: list[Stream]) -> list[tuple[Reply, dict[str, Any]]]:
    """All replies of the streams, and what AgentScope folds each to; the differences that `docs/events.md` lists are
    applied (see `their_fold.py`, and `test_agentscope_differences.py` for the differences themselves)."""
    return [(reply, expected(reply.events)) for one in streams for reply in one.replies]


def dumped(event: EventBase) -> dict[str, Any]:
    fields: dict[str, Any] = event.model_dump(mode="json")
    return fields


def test_every_reply_of_a_stream_folds_to_the_same_message(
    streams: list[Stream], replies: list[tuple[Reply, dict[str, Any]]]
) -> None:
    folded: dict[str, Any] = {}
    for one in streams:
        folder = Folder()
        for line in one.lines:
            folder.push(line)
        folded |= {msg.id: msg.to_dict() for msg in folder.messages()}
    for reply, theirs in replies:
        assert folded.pop(reply.reply_id) == theirs, reply.events
    assert folded == {}


def test_append_event_folds_a_reply_as_theirs_does(replies: list[tuple[Reply, dict[str, Any]]]) -> None:
    for reply, theirs in replies:
        msg = Msg.reply(reply.reply_id)
        for event in reply.events:
            msg.append_event(dumped(event))
        assert msg.to_dict() == theirs, reply.events


def test_a_stored_half_goes_on_to_the_same_message(replies: list[tuple[Reply, dict[str, Any]]], seed: int) -> None:
    rng = random.Random(seed)
    for reply, theirs in replies:
        cut = rng.randint(0, len(reply.events))
        first = Msg.reply(reply.reply_id)
        for event in reply.events[:cut]:
            first.append_event(dumped(event))
        second = Msg(first.to_json(), first.cursor())
        # Its last event comes again, as after a lost connection.
        for event in reply.events[max(cut - 1, 0) :]:
            second.append_event(dumped(event))
        assert second.to_dict() == theirs, (cut, reply.events)


def test_the_streams_have_every_event_and_every_block(
    streams: list[Stream], replies: list[tuple[Reply, dict[str, Any]]]
) -> None:
    """The other tests are worth no more than their streams."""
    assert {event.type for one in streams for event in one.events} == set(EVENTS)
    kinds = {kind.model_fields["type"].default for kind in typing.get_args(ContentBlock)}
    assert {block["type"] for _, theirs in replies for block in theirs["content"]} == kinds


# ---- what a real agent emits ----


class Scripted(ChatModelBase):
    """Thinks, calls two tools, and then says how they ended."""

    formatter = OpenAIChatFormatter()

    async def _call_api(self, model_name: str, messages: list[ScopeMsg], **options: Any) -> Any:
        results = [block for block in messages[-1].content if block.type == "tool_result"]

        async def chunks() -> AsyncIterator[ChatResponse]:
            yield ChatResponse([ThinkingBlock(id="think", thinking="Let me see.")], is_last=False)
            if results:
                text = " ".join(f"{block.name}: {block.state}" for block in results)
                yield ChatResponse([TextBlock(id="text", text=text)], is_last=False)
            else:
                for name in ("read", "write"):
                    call = ToolCallBlock(id=f"call-{name}", name=name, input='{"path": "a.txt"}')
                    yield ChatResponse([call], is_last=False)
            yield ChatResponse([], is_last=False, usage=ChatUsage(3, 4, 0.0))

        return chunks()


@pytest.mark.parametrize("decision", ["approve", "deny", "stop"])
@pytest.mark.anyio
async def test_what_an_agent_emits_folds_to_the_same_message(decision: str) -> None:
    def read(path: str) -> str:
        return f"the content of {path}"

    tools = Toolkit([FunctionTool(read, "read", "Reads."), FunctionTool(read, "write", "Writes.")])
    agent = Agent(
        "friday",
        "You work.",
        Scripted(CredentialBase(), "script", Scripted.Parameters()),
        toolkit=tools,
        injection_config=InjectionConfig(inject_runtime_state=False),
    )
    events = [event async for event in agent.reply_stream(UserMsg("ann", "Go."))]
    while True:
        msg = ScopeMsg.model_validate(expected(events))
        asking = [call for call in msg.get_content_blocks("tool_call") if call.state == "asking"]
        if not asking or msg.finished_at:
            break
        given: Any = UserInterruptEvent(reply_id=msg.id)
        if decision != "stop":
            answers = [ConfirmResult(confirmed=decision == "approve", tool_call=call) for call in asking]
            given = UserConfirmResultEvent(reply_id=msg.id, confirm_results=answers)
        if decision != "stop":
            events.append(given)
        events += [event async for event in agent.reply_stream(given)]

    ours = Msg.reply(msg.id)
    for event in events:
        ours.append_event(dumped(event))
    assert ours.to_dict() == expected(events)
    assert ours.finished_reason == ("interrupted" if decision == "stop" else "completed")
    states = {block["state"] for block in ours.get_content_blocks("tool_result")}
    assert states == {{"approve": "success", "deny": "denied", "stop": "interrupted"}[decision]}


# ---- codecs ----


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_every_event_is_decoded_and_encoded_as_they_do(kind: type[EventBase]) -> None:
    for event in instances(kind):
        theirs = event.model_dump_json()
        [ours] = wires.decode("agentscope", theirs)
        assert ours == json.loads(theirs)
        [frame] = wires.Encoder("agentscope").encode(ours)
        assert kind.model_validate_json(frame.data) == event


def test_their_fold_makes_of_a_stream_that_we_encode_what_ours_does(
    streams: list[Stream], replies: list[tuple[Reply, dict[str, Any]]]
) -> None:
    events: dict[str, list[EventBase]] = {}
    for one in streams:
        body = wires.encode("agentscope", b"\n".join(one.lines))
        for line in body.split(b"\n"):
            if line.startswith(b"data:"):
                fields = json.loads(line[5:])
                event = EVENTS[fields["type"]].model_validate(fields)
                events.setdefault(fields.get("reply_id", ""), []).append(event)
    for reply, theirs in replies:
        assert expected(events[reply.reply_id]) == theirs, reply.events


def some_messages(seed: int) -> Iterator[ScopeMsg]:
    yield from instances(ScopeMsg)
    stamp = blocks.Stamp(random.Random(seed))
    makers = {"user": [blocks.text_block, blocks.data_block], "system": [blocks.text_block]}
    for _ in range(300):
        role = stamp.rng.choice(["user", "system", "assistant"])
        content = stamp.rng.choices(makers.get(role) or list(blocks.MAKERS.values()), k=stamp.rng.randint(0, 9))
        yield ScopeMsg(
            name=values.text(stamp.rng),
            content=[make(stamp) for make in content],
            role=role,
            id=stamp.id(),
            metadata=values.json_object(stamp.rng, depth=3),
            created_at=stamp.now(),
        )


def test_every_message_is_read_and_written_as_they_do(seed: int) -> None:
    for theirs in some_messages(seed):
        json_of_theirs = theirs.model_dump_json()
        [ours] = wires.read_messages("agentscope", json_of_theirs)
        assert ours.to_dict() == theirs.model_dump(mode="json")
        assert ours.to_json() == json_of_theirs
        [written] = wires.write_messages("agentscope", [ours])
        assert ScopeMsg.model_validate(written) == theirs


def test_a_message_answers_as_theirs_does(seed: int) -> None:
    for theirs in some_messages(seed):
        ours = Msg(theirs.model_dump_json())
        assert ours.get_text_content() == theirs.get_text_content()
        assert ours.get_text_content(separator="|") == theirs.get_text_content(separator="|")
        assert ours.has_content_blocks() == theirs.has_content_blocks()
        for kind in typing.get_args(ContentBlock):
            name = kind.model_fields["type"].default
            mine = ours.get_content_blocks(name)
            assert mine == [block.model_dump(mode="json") for block in theirs.get_content_blocks(name)]
            assert ours.has_content_blocks(name) == theirs.has_content_blocks(name)


# ---- formatters ----

CONVERSATION = [
    SystemMsg("system", "Be brief."),
    UserMsg("ann", "Read the files."),
    ScopeMsg(
        name="friday",
        role="assistant",
        content=[
            TextBlock(text="I look."),
            ToolCallBlock(id="c1", name="read", input='{"path": "a.txt"}', state="finished"),
            ToolCallBlock(id="c2", name="read", input='{"path": "b.txt"}', state="finished"),
            ToolResultBlock(id="c1", name="read", output="content of a", state="success"),
            ToolResultBlock(id="c2", name="read", output=[TextBlock(text="content of b")], state="success"),
            TextBlock(text="There you are."),
        ],
    ),
    UserMsg(
        "ann",
        [
            TextBlock(text="And this?"),
            DataBlock(source=Base64Source(data="aGk=", media_type="image/png")),
        ],
    ),
]


def plain(value: Any, agent: str) -> Any:
    """Without what differs and means the same to the providers: a list with one text part or its text, the name of the
    agent in each part of its message or in the first, and that a message is one."""
    if isinstance(value, list):
        items = [plain(item, agent) for item in value]
        is_text = len(items) == 1 and isinstance(items[0], dict) and str(items[0].get("type")).endswith("text")
        return items[0]["text"] if is_text else items
    if isinstance(value, dict):
        dropped = (("name", agent), ("type", "message"))
        return {key: plain(item, agent) for key, item in value.items() if (key, item) not in dropped}
    return value


@pytest.mark.parametrize(
    ("wire", "formatter"),
    [
        ("openai-chat", OpenAIChatFormatter()),
        ("openai-responses", OpenAIResponseFormatter()),
        ("anthropic", AnthropicChatFormatter()),
    ],
)
def test_a_conversation_is_formatted_as_they_do(wire: str, formatter: FormatterBase) -> None:
    theirs = asyncio.run(formatter.format(CONVERSATION))
    history = wires.read_messages("agentscope", [msg.model_dump(mode="json") for msg in CONVERSATION])
    ours = wires.write_messages(wire, history)
    assert plain(ours, "friday") == plain(theirs, "friday")
    assert len(ours) >= 6
