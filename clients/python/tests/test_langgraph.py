"""A real graph of LangGraph behind Turnwire, on a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt
from turnwire_server import TurnwireServer

from conftest import FAST, ended, last_reply
from turnwire import AsyncSession
from turnwire.adapters import langgraph
from turnwire.agents import serving

pytestmark = pytest.mark.anyio


class Scripted(BaseChatModel):
    """Calls the tool when it is asked for the weather, and otherwise repeats all that the user said."""

    @property
    def _llm_type(self) -> str:
        return "script"

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        chunks = [chunk.message for chunk in self._stream(messages)]
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole = whole + chunk
        return ChatResult(generations=[ChatGeneration(message=AIMessage(**whole.model_dump(exclude={"type"})))])

    def _stream(self, messages: list[BaseMessage], *args: Any, **options: Any) -> Iterator[ChatGenerationChunk]:
        last = messages[-1]
        said = " ".join(message.text for message in messages if message.type == "human")
        if isinstance(last, ToolMessage):
            yield chunk(content=f"It was {last.content}.")
        elif "weather" in last.text:
            call = {"name": "weather", "args": '{"city": ', "id": f"call-{len(messages)}", "index": 0}
            yield chunk(content="", tool_call_chunks=[call])
            yield chunk(content="", tool_call_chunks=[{"name": None, "args": '"Oslo"}', "id": None, "index": 0}])
        else:
            for word in f"You said: {said}".split():
                yield chunk(content=f"{word} ")
        usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
        yield chunk(content="", usage_metadata=usage)


def chunk(**fields: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(**fields))


def make(saver: InMemorySaver | None = None, *, asks: bool = True, names_call: bool = False) -> Any:
    @tool
    def weather(city: str) -> str:
        """How the weather is."""
        if asks:
            value: Any = {"question": f"May I look at {city}?"}
            if names_call:
                value = {"action_requests": [{"name": "weather", "args": {"city": city}}]}
            answer = interrupt(value)
            if names_call:
                [decision] = answer["decisions"]
                if decision["type"] == "edit":
                    city = decision["edited_action"]["args"]["city"]
                answer = {"confirmed": decision["type"] != "reject"}
            if not answer["confirmed"]:
                return "denied"
        return f"sunny in {city}"

    model = Scripted()

    async def agent(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode([weather]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=saver or InMemorySaver(), name="friday")


async def test_a_stream_is_durable_and_passes_through(server: TurnwireServer, session: AsyncSession) -> None:
    inputs = {"messages": [{"role": "user", "content": "weather"}]}
    config = {"configurable": {"thread_id": "t"}}
    stream = make(asks=False).astream(inputs, config, stream_mode=["messages", "updates"])
    parts = [part async for part in langgraph.publish(stream, session.id, name="friday", url=server.url)]
    assert {mode for mode, _ in parts} == {"messages", "updates"}
    msg = await last_reply(session)
    assert [block["type"] for block in msg.content] == ["tool_call", "tool_result", "text"]
    assert msg.get_content_blocks("tool_call")[0]["input"] == '{"city": "Oslo"}'
    assert (msg.get_text_content(), msg.finished_reason) == ("It was sunny in Oslo.", "completed")
    assert msg.usage is not None
    assert msg.usage["output_tokens"] == 8


async def test_users_talk_to_the_graph(server: TurnwireServer, session: AsyncSession) -> None:
    async with serving(langgraph.Adapter(make(), session.id), session.id, url=server.url, retry=FAST):
        assert (await session.ask("hello")).get_text_content() == "You said: hello "
        assert (await session.ask("again")).get_text_content() == "You said: hello again "


@pytest.mark.parametrize(("confirmed", "said"), [(True, "It was sunny in Oslo."), (False, "It was denied.")])
async def test_an_interrupt_is_answered_in_another_process(
    server: TurnwireServer, session: AsyncSession, confirmed: bool, said: str
) -> None:
    saver = InMemorySaver()
    async with serving(langgraph.Adapter(make(saver), session.id), session.id, url=server.url):
        reply = await session.ask("weather")
    [call] = [call for call in reply.get_content_blocks("tool_call") if call["state"] == "asking"]
    assert (call["name"], "May I look at Oslo" in call["input"]) == ("interrupt", True)
    asking = {"reply_id": reply.id, "tool_call": call}
    await (session.approve(asking) if confirmed else session.deny(asking))
    async with serving(langgraph.Adapter(make(saver), session.id), session.id, url=server.url):
        await ended(session)
        msg = await last_reply(session)
        assert (msg.id, msg.get_text_content(), msg.finished_reason) == (reply.id, said, "completed")
        assert all(block["state"] != "running" for block in msg.get_content_blocks("tool_result"))
        assert {block["id"] for block in msg.get_content_blocks("tool_result")} == {
            block["id"] for block in msg.get_content_blocks("tool_call")
        }


async def test_an_interrupt_that_names_its_call_can_be_edited(server: TurnwireServer, session: AsyncSession) -> None:
    graph = make(names_call=True)
    async with serving(langgraph.Adapter(graph, session.id), session.id, url=server.url, retry=FAST):
        reply = await session.ask("weather")
        [call] = reply.get_content_blocks("tool_call")
        assert (call["name"], call["state"]) == ("weather", "asking")
        await session.approve({"reply_id": reply.id, "tool_call": call}, input={"city": "Rome"})
        await ended(session)
        assert (await last_reply(session)).get_text_content() == "It was sunny in Rome."


async def test_a_reply_that_waits_is_stopped(server: TurnwireServer, session: AsyncSession) -> None:
    async with serving(langgraph.Adapter(make(), session.id), session.id, url=server.url, retry=FAST):
        await session.ask("weather")
        await session.stop()
        await ended(session)
        assert (await last_reply(session)).finished_reason == "interrupted"
