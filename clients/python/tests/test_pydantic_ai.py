"""Pydantic AI's own agent behind Turnwire, on a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from turnwire_server import TurnwireServer

from conftest import FAST, ended, last_reply
from turnwire import AsyncSession, Msg, Publisher, ReplyWriter
from turnwire.adapters import pydantic_ai
from turnwire.agents import serving

pytestmark = pytest.mark.anyio


async def script(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Calls the tool when it is asked for the weather, and otherwise repeats all that the user said."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    said = " ".join(str(part.content) for part in parts if isinstance(part, UserPromptPart))
    answered = {part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)}
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolCallPart)]
    # As model providers do.
    assert all(part.tool_call_id in answered for part in calls), "a call has no result"
    if isinstance(parts[-1], ToolReturnPart):
        yield f"It was {parts[-1].outcome}: "
        yield parts[-1].model_response_str()
    elif "fail" in said:
        yield "I "
        raise RuntimeError("no more tokens")
    elif "structured" in said:
        yield {0: DeltaToolCall(name=info.output_tools[0].name, json_args='{"answer": 42}')}
    elif "weather" in str(parts[-1].content):
        yield {0: DeltaToolCall(name="weather", tool_call_id=f"call-{len(messages)}")}
        yield {0: DeltaToolCall(json_args='{"city": ')}
        yield {0: DeltaToolCall(json_args='"Oslo"}')}
    else:
        for word in f"You said: {said}".split():
            yield f"{word} "


class Answer(BaseModel):
    answer: int


def make(output: Any = None, *, approval: bool = True) -> Agent[None, Any]:
    agent: Agent[None, Any] = Agent(
        FunctionModel(stream_function=script), name="friday", output_type=output or [str, DeferredToolRequests]
    )

    @agent.tool_plain(requires_approval=approval)
    def weather(city: str) -> str:
        return f"sunny in {city}"

    return agent


async def test_a_stream_is_durable_and_passes_through(server: TurnwireServer, session: AsyncSession) -> None:
    passed = []
    async with make(approval=False).run_stream_events("weather") as events:
        async for event in pydantic_ai.publish(events, session.id, name="friday", url=server.url):
            passed.append(event)
    assert passed[-1].result.output == "It was success: sunny in Oslo"
    msg = await last_reply(session)
    assert msg.get_text_content() == passed[-1].result.output
    assert [block["type"] for block in msg.content] == ["tool_call", "tool_result", "text"]
    assert msg.get_content_blocks("tool_call")[0]["input"] == '{"city": "Oslo"}'
    assert (msg.name, msg.finished_reason) == ("friday", "completed")
    assert msg.usage is not None
    assert msg.usage["output_tokens"] > 0


async def test_structured_output_is_in_the_message(server: TurnwireServer, session: AsyncSession) -> None:
    async with make(Answer).run_stream_events("structured") as events:
        async for _ in pydantic_ai.publish(events, session.id, url=server.url):
            pass
    assert (await last_reply(session)).structured_output == {"answer": 42}


async def test_a_stream_that_fails_ends_its_reply(server: TurnwireServer, session: AsyncSession) -> None:
    async def run() -> None:
        async with make().run_stream_events("fail") as events:
            async for _ in pydantic_ai.publish(events, session.id, url=server.url):
                pass

    with pytest.raises(RuntimeError, match="no more tokens"):
        await run()
    msg = await last_reply(session)
    assert (msg.finished_reason, msg.get_text_content()) == ("error", "I ")


async def test_users_talk_to_the_agent(server: TurnwireServer, session: AsyncSession) -> None:
    async with serving(pydantic_ai.Adapter(make()), session.id, url=server.url, retry=FAST):
        assert (await session.ask("hello")).get_text_content() == "You said: hello "
        assert (await session.ask("again")).get_text_content() == "You said: hello again "


@pytest.mark.parametrize(("confirmed", "said"), [(True, "It was success: sunny in Rome"), (False, "It was denied: no")])
@pytest.mark.parametrize("store", [None, {}])
async def test_a_call_is_answered_in_another_process(
    server: TurnwireServer,
    session: AsyncSession,
    confirmed: bool,
    said: str,
    store: dict[str, bytes] | None,
) -> None:
    async with serving(pydantic_ai.Adapter(make()), session.id, url=server.url, store=store):
        reply = await session.ask("weather")
    call = {"reply_id": reply.id, "tool_call": reply.get_content_blocks("tool_call")[0]}
    assert call["tool_call"]["state"] == "asking"
    if confirmed:
        await session.approve(call, input={"city": "Rome"})
    else:
        await session.deny(call, "no")
    async with serving(pydantic_ai.Adapter(make()), session.id, url=server.url, store=store):
        await ended(session)
        msg = await last_reply(session)
        assert (msg.id, msg.get_text_content()) == (reply.id, said)
        assert (await session.ask("hello")).get_text_content() == "You said: weather hello "


async def test_a_reply_that_waits_is_stopped(server: TurnwireServer, session: AsyncSession) -> None:
    async with serving(pydantic_ai.Adapter(make()), session.id, url=server.url, retry=FAST):
        await session.ask("weather")
        await session.stop()
        await ended(session)
        assert (await last_reply(session)).finished_reason == "interrupted"
        assert (await session.ask("hello")).finished_reason == "completed"


async def test_files_of_users_reach_the_model(server: TurnwireServer, session: AsyncSession) -> None:
    seen: list[Any] = []

    async def look(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
        seen.append([part.content for part in parts if isinstance(part, UserPromptPart)])
        yield "I see."

    def agent() -> pydantic_ai.Adapter:
        return pydantic_ai.Adapter(Agent(FunctionModel(stream_function=look), name="friday"))

    picture = {"type": "data", "source": {"type": "base64", "data": "aGk=", "media_type": "image/png"}}
    async with serving(agent(), session.id, url=server.url, retry=FAST):
        await session.ask([{"type": "text", "text": "look"}, picture])
    # Another process gets them from the session.
    async with serving(agent(), session.id, url=server.url, retry=FAST):
        await session.ask("again")
    for text, file in (seen[0][0], seen[1][0]):
        assert (text, file.data, file.media_type) == ("look", b"hi", "image/png")
    assert seen[1][1] == "again"


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("image/png", "ImageUrl"),
        ("audio/wav", "AudioUrl"),
        ("video/mp4", "VideoUrl"),
        ("application/pdf", "DocumentUrl"),
    ],
)
def test_links_are_parts_of_their_kind(kind: str, part: str) -> None:
    source = {"type": "url", "url": "https://example.com/file", "media_type": kind}
    prompt = pydantic_ai._prompt([Msg.user([{"type": "data", "source": source}])])
    assert [type(one).__name__ for one in prompt] == [part]
    assert (prompt[0].url, prompt[0].media_type) == (source["url"], kind)  # type: ignore[union-attr]


async def test_a_tool_that_broke_off_with_its_process_has_a_result(
    server: TurnwireServer, session: AsyncSession
) -> None:
    await session.send("weather")
    with Publisher(session.id, url=server.url, producer="friday", fence=1) as publisher:
        ReplyWriter(publisher.send, name="friday").tool_call("call-1", "weather", {"city": "Oslo"})
    async with serving(pydantic_ai.Adapter(make()), session.id, url=server.url, retry=FAST):
        await ended(session)
        said = await session.ask("hello")
    assert (said.get_text_content(), said.error) == ("You said: weather hello ", None)
