"""AgentScope's own agent behind Turnwire, on a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from agentscope.agent import Agent, InjectionConfig
from agentscope.credential import CredentialBase
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg as ScopeMsg
from agentscope.message import TextBlock, ToolCallBlock
from agentscope.model import ChatModelBase, ChatResponse, ChatUsage
from agentscope.tool import FunctionTool, ToolChunk, Toolkit
from turnwire_server import TurnwireServer

from conftest import FAST, ended, last_reply
from turnwire import AsyncClient, AsyncSession, Msg, Publisher, ReplyWriter
from turnwire.adapters import agentscope
from turnwire.agents import serving

pytestmark = pytest.mark.anyio
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Scripted(ChatModelBase):
    """Calls the tool when the last message asks for it, and otherwise repeats what it was told."""

    formatter = OpenAIChatFormatter()

    async def _call_api(self, model_name: str, messages: list[ScopeMsg], **options: Any) -> Any:
        last = messages[-1]
        results = [block for block in last.content if block.type == "tool_result"]
        said = " ".join(msg.get_text_content() or "" for msg in messages if msg.role == "user")
        blocks = [block for msg in messages for block in msg.content]
        answered = {block.id for block in blocks if block.type == "tool_result"}
        # As model providers do.
        assert all(block.id in answered for block in blocks if block.type == "tool_call"), "a call has no result"

        async def chunks() -> AsyncIterator[ChatResponse]:
            if "forever" in said:
                yield ChatResponse([TextBlock(id="t", text="I think")], is_last=False)
                await asyncio.Event().wait()
            if results:
                yield ChatResponse([TextBlock(id="t", text=f"It was {results[-1].state}.")], is_last=False)
            elif "weather" in (last.get_text_content() or ""):
                yield ChatResponse(
                    [ToolCallBlock(id="call-1", name="weather", input='{"city": "Oslo"}')], is_last=False
                )
            else:
                for word in f"You said: {said}".split():
                    yield ChatResponse([TextBlock(id="t", text=f"{word} ")], is_last=False)
            yield ChatResponse([], is_last=False, usage=ChatUsage(3, 4, 0.0))

        return chunks()


def make(asked: list[str] | None = None, *, runs_forever: bool = False) -> Agent:
    async def weather(city: str) -> AsyncIterator[ToolChunk]:
        if asked is not None:
            asked.append(city)
        if runs_forever:
            await asyncio.Event().wait()
        yield ToolChunk(content=[TextBlock(text=f"sunny in {city}")])

    model = Scripted(CredentialBase(), "script", Scripted.Parameters(), max_retries=0)
    return Agent(
        "friday",
        "You repeat.",
        model,
        toolkit=Toolkit([FunctionTool(weather, "weather", "", SCHEMA)]),
        injection_config=InjectionConfig(inject_runtime_state=False),
    )


async def test_a_stream_is_durable_and_passes_through(server: TurnwireServer, session: AsyncSession) -> None:
    question = agentscope._theirs([Msg.user("hello", name="ann", id="q")])
    events = [event async for event in agentscope.publish(make().reply_stream(question), session.id, url=server.url)]
    assert events[0].type == "REPLY_START"
    theirs = ScopeMsg(id=events[0].reply_id, name="friday", role="assistant", content=[])
    for event in events:
        theirs.append_event(event)
    ours = await last_reply(session)
    assert ours.get_text_content() == theirs.get_text_content() == "You said: hello "
    assert (ours.id, ours.name, ours.finished_reason) == (theirs.id, "friday", "completed")


async def test_a_stream_that_fails_ends_its_reply(server: TurnwireServer, session: AsyncSession) -> None:
    async def failing() -> AsyncIterator[Any]:
        async for event in make().reply_stream(agentscope._theirs([Msg.user("hello", name="ann", id="q")])):
            yield event
            if event.type == "TEXT_BLOCK_DELTA":
                raise RuntimeError("no more tokens")

    with pytest.raises(RuntimeError, match="no more tokens"):
        async for _ in agentscope.publish(failing(), session.id, url=server.url):
            pass
    msg = await last_reply(session)
    assert msg.finished_reason == "error"
    assert msg.error is not None
    assert "no more tokens" in msg.error["message"]
    assert msg.content[0].get("finished_at")


async def test_users_talk_to_the_agent(server: TurnwireServer, session: AsyncSession) -> None:
    async with serving(agentscope.Adapter(make()), session.id, url=server.url, retry=FAST):
        first = await session.ask("hello")
        second = await session.ask("again")
    assert first.get_text_content() == "You said: hello "
    # The agent remembers.
    assert second.get_text_content() == "You said: hello again "
    assert first.usage is not None
    assert first.usage["output_tokens"] == 4


async def test_a_call_is_approved_with_an_edited_input(server: TurnwireServer, session: AsyncSession) -> None:
    asked: list[str] = []
    async with serving(agentscope.Adapter(make(asked)), session.id, url=server.url, retry=FAST):
        reply = await session.ask("weather")
        [call] = reply.get_content_blocks("tool_call")
        assert call["state"] == "asking"
        await session.approve({"reply_id": reply.id, "tool_call": call}, input={"city": "Rome"})
        await ended(session)
    msg = await last_reply(session)
    assert asked == ["Rome"]
    assert msg.id == reply.id
    assert msg.get_text_content() == "It was success."


async def test_a_call_is_denied(server: TurnwireServer, session: AsyncSession) -> None:
    asked: list[str] = []
    async with serving(agentscope.Adapter(make(asked)), session.id, url=server.url, retry=FAST):
        reply = await session.ask("weather")
        await session.deny({"reply_id": reply.id, "tool_call": reply.get_content_blocks("tool_call")[0]})
        await ended(session)
    msg = await last_reply(session)
    assert asked == []
    assert msg.get_content_blocks("tool_result")[0]["state"] == "denied"
    assert msg.get_text_content() == "It was denied."


@pytest.mark.parametrize("store", [None, {}])
async def test_an_approval_outlives_the_process(
    server: TurnwireServer, session: AsyncSession, store: dict[str, bytes] | None
) -> None:
    asked: list[str] = []
    async with serving(agentscope.Adapter(make(asked)), session.id, url=server.url, store=store):
        reply = await session.ask("weather")
    # Nobody serves the session now: neither the process nor its agent are left.
    await session.approve({"reply_id": reply.id, "tool_call": reply.get_content_blocks("tool_call")[0]})
    async with serving(agentscope.Adapter(make(asked)), session.id, url=server.url, store=store):
        await ended(session)
        assert (await last_reply(session)).get_text_content() == "It was success."
        again = await session.ask("hello")
    assert asked == ["Oslo"]
    assert again.get_text_content() == "You said: weather hello "


async def test_a_reply_is_stopped(server: TurnwireServer, session: AsyncSession) -> None:
    async with serving(agentscope.Adapter(make()), session.id, url=server.url, retry=FAST):
        await session.send("think forever")
        async for event in session.watch():
            if event["type"] == "TEXT_BLOCK_DELTA":
                break
        await session.stop()
        await ended(session)
        msg = await last_reply(session)
        assert (msg.finished_reason, msg.get_text_content()) == ("interrupted", "I think")


async def test_a_reply_that_waits_is_stopped(server: TurnwireServer, session: AsyncSession) -> None:
    async with serving(agentscope.Adapter(make()), session.id, url=server.url, retry=FAST):
        await session.ask("weather")
        await session.stop()
        await ended(session)
        msg = await last_reply(session)
        assert msg.finished_reason == "interrupted"
        assert msg.get_content_blocks("tool_result")[0]["state"] == "interrupted"
        assert (await session.ask("hello")).finished_reason == "completed"


async def test_a_tool_is_stopped(server: TurnwireServer, session: AsyncSession) -> None:
    asked: list[str] = []
    async with serving(agentscope.Adapter(make(asked, runs_forever=True)), session.id, url=server.url, retry=FAST):
        reply = await session.ask("weather")
        await session.approve({"reply_id": reply.id, "tool_call": reply.get_content_blocks("tool_call")[0]})
        async for event in session.watch():
            if event["type"] == "TOOL_RESULT_START":
                break
        await session.stop()
        await ended(session)
        msg = await last_reply(session)
        assert (asked, msg.finished_reason) == (["Oslo"], "interrupted")
        assert msg.get_content_blocks("tool_result")[0]["state"] == "interrupted"
        assert (await session.ask("hello")).get_text_content() == "You said: weather hello "


async def test_a_tool_that_broke_off_with_its_process_does_not_run_again(
    server: TurnwireServer, session: AsyncSession
) -> None:
    await session.send("weather")
    with Publisher(session.id, url=server.url, producer="friday", fence=1) as publisher:
        reply = ReplyWriter(publisher.send, name="friday")
        reply.tool_call("call-1", "weather", {"city": "Oslo"})
        reply.tool_result_start("call-1", "weather")
    asked: list[str] = []
    async with serving(agentscope.Adapter(make(asked)), session.id, url=server.url, retry=FAST):
        await ended(session)
        assert (await last_reply(session)).get_content_blocks("tool_result")[0]["state"] == "interrupted"
        assert (await session.ask("hello")).get_text_content() == "You said: weather hello "
    assert asked == []


async def test_messages_that_came_while_nobody_served_are_answered(
    server: TurnwireServer, session: AsyncSession
) -> None:
    await session.send("hello")
    await session.send("there")
    async with serving(agentscope.Adapter(make()), session.id, url=server.url, retry=FAST):
        await ended(session, replies=1)
    assert (await last_reply(session)).get_text_content() == "You said: hello there "


async def test_a_reply_that_broke_off_with_its_process_ends_as_interrupted(
    server: TurnwireServer, session: AsyncSession
) -> None:
    with Publisher(session.id, url=server.url, producer="friday", fence=1) as publisher:
        ReplyWriter(publisher.send).text("half a wo")
    async with serving(agentscope.Adapter(make()), session.id, url=server.url, retry=FAST):
        await ended(session)
        assert (await last_reply(session)).finished_reason == "interrupted"
        assert (await session.ask("hello")).finished_reason == "completed"


async def test_a_killed_server_loses_nothing(start_server: Callable[..., TurnwireServer]) -> None:
    running = start_server()
    async with AsyncClient(running.url, retry=FAST) as client:
        session = await client.create(agent="external")
        async with serving(agentscope.Adapter(make()), session.id, url=running.url, retry=FAST):
            for at in range(5):
                asking = asyncio.create_task(session.ask(f"word{at}"))
                await asyncio.to_thread(running.crash)
                assert f"word{at}" in ((await asking).get_text_content() or "")
        messages = (await session.history())["messages"]
        assert [msg["role"] for msg in messages] == ["user", "assistant"] * 5
