"""A real graph of LangGraph behind Turnwire, on a scripted model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
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
        answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
        calls = [call["id"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
        # As model providers do.
        assert all(call in answered for call in calls), "a call has no result"
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


def make(
    saver: InMemorySaver | None = None, *, asks: bool = True, names_call: bool = False, runs_forever: bool = False
) -> Any:
    @tool
    async def weather(city: str) -> str:
        """How the weather is."""
        if runs_forever:
            await asyncio.Event().wait()
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
        said = await session.ask("hello")
        assert (said.get_text_content(), said.error) == ("You said: weather hello ", None)
        assert [block["type"] for block in said.content] == ["text"]


async def test_a_tool_is_stopped(server: TurnwireServer, session: AsyncSession) -> None:
    async with serving(langgraph.Adapter(make(runs_forever=True), session.id), session.id, url=server.url, retry=FAST):
        await session.send("weather")
        async for event in session.watch():
            if event["type"] == "MODEL_CALL_END":
                break
        await session.stop()
        await ended(session)
        msg = await last_reply(session)
        assert msg.get_content_blocks("tool_result")[0]["state"] == "interrupted"
        said = await session.ask("hello")
        assert (said.get_text_content(), said.error) == ("You said: weather hello ", None)


class Branch(BaseChatModel):
    """A branch of a graph. It streams its words and its call in turns with the other branches."""

    branch: str
    turns: Any

    @property
    def _llm_type(self) -> str:
        return "branch"

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for at in range(5):
            await self.turns.wait()
            id, name = (f"call-{self.branch}", "look") if at == 0 else (None, None)
            args_of_call = ('{"at": "', self.branch, self.branch, self.branch, '"}')[at]
            call = {"name": name, "args": args_of_call, "id": id, "index": 0}
            yield chunk(content=f"{self.branch}{at} ", tool_call_chunks=[call])
        yield chunk(content="", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3})


class Turns:
    """Lets two tasks go on in turns."""

    def __init__(self) -> None:
        self.waiting: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        if self.waiting is None:
            self.waiting = asyncio.get_running_loop().create_future()
            await self.waiting
        else:
            waiting, self.waiting = self.waiting, None
            waiting.set_result(None)


async def test_branches_that_stream_at_the_same_time_are_whole(server: TurnwireServer, session: AsyncSession) -> None:
    turns = Turns()

    def node(branch: str) -> Any:
        model = Branch(branch=branch, turns=turns)

        async def run(state: MessagesState) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        return run

    graph = StateGraph(MessagesState)
    for branch in "ab":
        graph.add_node(branch, node(branch))
        graph.add_edge(START, branch)
    stream = graph.compile().astream({"messages": [("user", "go")]}, stream_mode=["messages", "updates"])
    order = [
        part[1][0].content[:1]
        async for part in langgraph.publish(stream, session.id, url=server.url)
        if part[0] == "messages"
    ]
    # They do come in turns.
    assert "ab" in "".join(order)
    assert "ba" in "".join(order)
    msg = await last_reply(session)
    texts = {branch: "".join(f"{branch}{at} " for at in range(5)) for branch in "ab"}
    assert msg.get_text_content(separator="") == "".join(texts[branch] for branch in dict.fromkeys(order) if branch)
    inputs = {call["id"]: json.loads(call["input"]) for call in msg.get_content_blocks("tool_call")}
    assert inputs == {"call-a": {"at": "aaa"}, "call-b": {"at": "bbb"}}
    assert msg.usage is not None
    assert msg.usage["output_tokens"] == 4
    folded = [json.loads(line)["type"] for line in (await session.export()).splitlines()]
    assert folded.count("MODEL_CALL_START") == folded.count("MODEL_CALL_END") == 2
