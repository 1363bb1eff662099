"""The OpenAI Agents SDK behind Turnwire, on its own scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from fake_provider import FakeProvider
from openai import AsyncOpenAI
from turnwire_server import TurnwireServer

from conftest import FAST, ended, last_reply
from turnwire import AsyncSession, Publisher, ReplyWriter
from turnwire.adapters import openai_agents
from turnwire.agents import serving

pytestmark = pytest.mark.anyio
QUIET = RunConfig(tracing_disabled=True)


def make(*steps: Any, approval: bool = True) -> Agent[Any]:
    @function_tool(needs_approval=approval)
    def weather(city: str) -> str:
        return f"sunny in {city}"

    return Agent("friday", model=ScriptedModel([list(step) for step in steps]), tools=[weather])


def adapter(*steps: Any) -> openai_agents.Adapter:
    return openai_agents.Adapter(make(*steps), run_config=QUIET)


CALL = (function_call("weather", {"city": "Oslo"}, call_id="call-1"),)


def say(text: str) -> tuple[Any, ...]:
    return (assistant_message(text),)


async def test_a_stream_is_durable_and_passes_through(server: TurnwireServer, session: AsyncSession) -> None:
    result = Runner.run_streamed(make(CALL, say("It is sunny."), approval=False), "weather", run_config=QUIET)
    kinds = {event.type async for event in openai_agents.publish(result, session.id, url=server.url)}
    assert kinds >= {"raw_response_event", "run_item_stream_event"}
    msg = await last_reply(session)
    assert [block["type"] for block in msg.content] == ["tool_call", "tool_result", "text"]
    assert msg.get_content_blocks("tool_result")[0]["output"] == [
        {**msg.get_content_blocks("tool_result")[0]["output"][0], "text": "sunny in Oslo"}
    ]
    assert (msg.name, msg.get_text_content(), msg.finished_reason) == ("friday", "It is sunny.", "completed")


async def test_users_talk_to_the_agent(server: TurnwireServer, session: AsyncSession) -> None:
    agent = adapter(say("one"), say("two"))
    async with serving(agent, session.id, url=server.url, retry=FAST):
        assert (await session.ask("hello")).get_text_content() == "one"
        assert (await session.ask("again")).get_text_content() == "two"
    assert len(agent.items) == 4


@pytest.mark.parametrize(("confirmed", "state"), [(True, "success"), (False, "denied")])
async def test_a_call_is_answered_in_another_process(
    server: TurnwireServer, session: AsyncSession, confirmed: bool, state: str
) -> None:
    store: dict[str, bytes] = {}
    async with serving(adapter(CALL), session.id, url=server.url, store=store):
        reply = await session.ask("weather")
    call = {"reply_id": reply.id, "tool_call": reply.get_content_blocks("tool_call")[0]}
    assert call["tool_call"]["state"] == "asking"
    if confirmed:
        await session.approve(call)
    else:
        await session.deny(call, "not today")
    async with serving(adapter(say("done"), say("more")), session.id, url=server.url, store=store):
        await ended(session)
        msg = await last_reply(session)
        assert (msg.id, msg.get_text_content(), msg.finished_reason) == (reply.id, "done", "completed")
        [result] = msg.get_content_blocks("tool_result")
        assert result["state"] == state
        assert ("not today" in str(result["output"])) == (not confirmed)
        assert (await session.ask("more")).get_text_content() == "more"


async def test_an_edited_input_is_told_to_the_model(server: TurnwireServer, session: AsyncSession) -> None:
    again = (function_call("weather", {"city": "Rome"}, call_id="call-2"),)
    async with serving(adapter(CALL, again, say("done")), session.id, url=server.url, retry=FAST):
        reply = await session.ask("weather")
        await session.approve(
            {"reply_id": reply.id, "tool_call": reply.get_content_blocks("tool_call")[0]}, input={"city": "Rome"}
        )
        async for event in session.watch():
            if event["type"] == "REQUIRE_USER_CONFIRM" and event["tool_calls"][0]["id"] == "call-2":
                break
        msg = await last_reply(session)
        assert "Call again with it" in str(msg.get_content_blocks("tool_result")[0]["output"])


async def test_a_reply_that_waits_is_stopped(server: TurnwireServer, session: AsyncSession) -> None:
    async with serving(adapter(CALL, say("hello")), session.id, url=server.url, retry=FAST):
        await session.ask("weather")
        await session.stop()
        await ended(session)
        assert (await last_reply(session)).finished_reason == "interrupted"
        assert (await session.ask("hello")).finished_reason == "completed"


# ---- with a provider that refuses calls without results, as OpenAI does ----


@pytest.fixture
async def make_real() -> AsyncIterator[Callable[[], openai_agents.Adapter]]:
    @function_tool(needs_approval=True)
    def weather(city: str) -> str:
        return f"sunny in {city}"

    provider = FakeProvider()
    async with AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="key", max_retries=0) as client:

        def make_real() -> openai_agents.Adapter:
            agent = Agent("friday", model=OpenAIResponsesModel("gpt", client), tools=[weather])
            return openai_agents.Adapter(agent, run_config=QUIET)

        yield make_real
    provider.close()


async def test_the_conversation_goes_on_after_a_stop(
    server: TurnwireServer, session: AsyncSession, make_real: Callable[[], openai_agents.Adapter]
) -> None:
    async with serving(make_real(), session.id, url=server.url, retry=FAST):
        asked = await session.ask("[weather Oslo]")
        assert asked.get_content_blocks("tool_call")[0]["state"] == "asking"
        await session.stop()
        await ended(session)
        said = await session.ask("hello")
        assert (said.finished_reason, said.error) == ("completed", None)


async def test_the_conversation_goes_on_after_an_answer_that_has_no_run(
    server: TurnwireServer, session: AsyncSession, make_real: Callable[[], openai_agents.Adapter]
) -> None:
    async with serving(make_real(), session.id, url=server.url, retry=FAST):
        asked = await session.ask("[weather Oslo]")
    await session.approve({"reply_id": asked.id, "tool_call": asked.get_content_blocks("tool_call")[0]})
    # Without a store, this process does not know the run that waited.
    async with serving(make_real(), session.id, url=server.url, retry=FAST):
        await ended(session)
        failed = await last_reply(session)
        assert failed.error is not None
        assert "pass the same `store`" in failed.error["message"]
        said = await session.ask("hello")
        assert (said.finished_reason, said.error) == ("completed", None)


async def test_the_conversation_goes_on_after_a_reply_that_broke_off(
    server: TurnwireServer, session: AsyncSession, make_real: Callable[[], openai_agents.Adapter]
) -> None:
    await session.send("weather")
    with Publisher(session.id, url=server.url, producer="friday", fence=1) as publisher:
        ReplyWriter(publisher.send, name="friday").tool_call("call-1", "weather", {"city": "Oslo"})
    async with serving(make_real(), session.id, url=server.url, retry=FAST):
        await ended(session)
        said = await session.ask("hello")
        assert (said.finished_reason, said.error) == ("completed", None)
