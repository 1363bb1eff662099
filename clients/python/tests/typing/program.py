"""A program of a user. `mypy --strict` and `pyright` find nothing in it; `tests/test_typing.py` runs both,
and checks that they find the mistakes of `mistakes.py`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from agentscope.agent import Agent
from agentscope.event import AgentEvent
from agentscope.message import Msg as ScopeMsg
from typing_extensions import assert_type

import turnwire
from turnwire import Folder, FoldError, Msg, wires
from turnwire.adapters import agentscope
from turnwire.agents import AgentAdapter, Answer, Turn, serve
from turnwire.api import Approval, SessionInfo
from turnwire.types import Event, MsgJson, TextBlock


def fold(events: list[Event]) -> str | None:
    folder = Folder()
    for event in events:
        if event["type"] == "TEXT_BLOCK_DELTA":
            assert_type(event["delta"], str)
        elif event["type"] == "REQUIRE_USER_CONFIRM":
            assert_type(event["tool_calls"][0]["name"], str)
        outcome, problem = folder.push_tolerant(event)
        assert_type(problem, FoldError | None)
        if outcome == "skipped":
            return None
    message = folder.history()[-1]
    assert_type(message.get_content_blocks("text"), list[TextBlock])
    return message.get_text_content()


def convert(body: bytes) -> bytes:
    decoder = wires.Decoder("openai-chat", scope="reply")
    return wires.encode("ag-ui", decoder.feed(body) + decoder.end())


def greet() -> list[Msg]:
    return [Msg.system("Be kind."), Msg.user([{"type": "text", "text": "hi"}], name="alice")]


def talk() -> str | None:
    with turnwire.Client("http://127.0.0.1:4747", token=lambda: "token", name="desk") as client:
        session = client.create(title="Weather", metadata={"team": "a"})
        assert_type(session, turnwire.Session)
        for event in session.watch(after="now", until="idle"):
            if event["type"] == "REQUIRE_USER_CONFIRM":
                session.approve({"reply_id": event["reply_id"], "tool_call": event["tool_calls"][0]}, always=True)
        for info in client.each_session(q="weather", status="waiting"):
            assert_type(info, SessionInfo)
        page = session.history(limit=10)
        assert_type(page["messages"], list[MsgJson])
        return session.ask([{"type": "text", "text": "hello"}]).get_text_content()


async def follow(client: turnwire.AsyncClient, id: str) -> list[Approval]:
    session = client.session(id)
    async with session.view() as view:
        async for event in view:
            if event["type"] == "REPLY_END":
                break
        assert_type(view.streaming, Msg | None)
        return view.pending


class Own(AgentAdapter):
    """An agent of no framework."""

    name = "own"

    async def run(self, turn: Turn) -> AsyncIterator[dict[str, Any]]:
        assert_type(turn.answers, list[Answer])
        yield {"type": "REPLY_END", "reply_id": turn.reply_id}


async def publish(agent: Agent, message: ScopeMsg) -> None:
    stream = agentscope.publish(agent.reply_stream(message), "my-session", fence=3)
    assert_type(stream, AsyncGenerator[AgentEvent | ScopeMsg, None])
    async for event in stream:
        print(event.id)
    with turnwire.Publisher("my-session", spool="events") as publisher:
        reply = turnwire.ReplyWriter(publisher.send, name="friday")
        reply.tool_result("call-1", "weather", [{"type": "text", "text": "sunny"}], state="success")
        reply.end("completed")
    await serve(Own(), "my-session", until=lambda view: view.status == "idle")
