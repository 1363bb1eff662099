"""AgentScope 2: publishes the events of an agent, and hands approvals, results and stops back to it.

from turnwire.adapters import agentscope

async for event in agentscope.publish(agent.reply_stream(msg), "my-session"):    # your own call, now durable
    ...

await agentscope.serve(agent, "my-session")    # users talk to it through Turnwire
"""
# The frameworks leave many of their types open.
# pyright: basic

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from typing import Any, TypeVar

from agentscope.agent import Agent
from agentscope.event import AgentEvent, ConfirmResult, ExternalExecutionResultEvent, UserConfirmResultEvent
from agentscope.message import Msg as ScopeMsg
from agentscope.message import ToolCallBlock, ToolCallState, ToolResultBlock, ToolResultState
from agentscope.state import AgentState

from .. import agents, wires
from .._native import Msg
from ..agents import AgentAdapter, Answer, Turn
from ..publisher import Publisher

__all__ = ["Adapter", "Translator", "publish", "serve"]

Item = TypeVar("Item", bound="AgentEvent | ScopeMsg")


class Translator(agents.Translator[Any]):
    """AgentScope's events are Turnwire's, almost."""

    def __init__(self) -> None:
        self._decoder = wires.Decoder("agentscope")

    def feed(self, item: AgentEvent | ScopeMsg) -> Iterable[bytes]:
        if isinstance(item, ScopeMsg):
            return []  # The final message says nothing that the events do not.
        return self._decoder.feed_json(item.model_dump_json().encode() + b"\n").splitlines()


def publish(stream: AsyncIterable[Item], to: Publisher | str, **options: Any) -> AsyncGenerator[Item, None]:
    """Publishes what `agent.reply_stream` yields while it passes through: to a publisher, or a session. Options are
    those of `Publisher`."""
    return agents.publish_stream(stream, Translator(), to, **options)


async def serve(agent: Agent, session: str, **options: Any) -> None:
    """Lets the users of a session talk to the agent; options are those of `turnwire.agents.serve`. One agent, with its
    state, is one session."""
    await agents.serve(Adapter(agent), session, **options)


class Adapter(AgentAdapter):
    """An agent for `turnwire.agents.serve`."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.name = agent.name

    async def run(self, turn: Turn) -> AsyncIterator[bytes]:
        translator = Translator()
        for inputs in self._inputs(turn):
            async for item in self.agent.reply_stream(inputs):
                for event in translator.feed(item):
                    yield event

    def _inputs(self, turn: Turn) -> Iterable[Any]:
        if turn.messages:
            yield _theirs(turn.messages)
        confirmed = [
            ConfirmResult(
                confirmed=answer.confirmed,
                tool_call=ToolCallBlock(id=answer.call_id, name=answer.name, input=answer.input),
            )
            for answer in turn.answers
            if not answer.is_external
        ]
        if confirmed:
            yield UserConfirmResultEvent(reply_id=turn.reply_id, confirm_results=confirmed)
        results = [_result(answer) for answer in turn.answers if answer.is_external]
        if results:
            yield ExternalExecutionResultEvent(reply_id=turn.reply_id, execution_results=results)

    def dump(self) -> bytes:
        state: str = self.agent.state.model_dump_json()
        return state.encode()

    def load(self, state: bytes) -> None:
        self.agent.state = AgentState.model_validate_json(state)

    def restore(self, history: list[Msg]) -> None:
        if self.agent.state.context:
            return  # The agent is not a new one.
        self.agent.state.context = _theirs(history)
        if history[-1].finished_at is None:
            _ask_again(self.agent.state.context[-1])
        self.agent.state.reply_id = next((msg.id for msg in reversed(history) if msg.role == "assistant"), "")

    async def stopped(self, turn: Turn) -> None:
        from agentscope.event import UserInterruptEvent

        # It closes its calls. What it says about that, the caller says, too.
        async for _ in self.agent.reply_stream(UserInterruptEvent(reply_id=turn.reply_id)):
            pass


def _ask_again(reply: ScopeMsg) -> None:
    """What was answered while nobody served it, waits: the agent gets the answers as events."""
    results = {block.id: block for block in reply.content if isinstance(block, ToolResultBlock)}
    for block in reply.content:
        if isinstance(block, ToolCallBlock) and block.id not in results and block.state != ToolCallState.PENDING:
            block.state = ToolCallState.ASKING
        elif isinstance(block, ToolCallBlock) and block.id in results:
            running = results[block.id].state == ToolResultState.RUNNING
            block.state = ToolCallState.SUBMITTED if running else block.state
    reply.content = [
        block
        for block in reply.content
        if not (isinstance(block, ToolResultBlock) and block.state == ToolResultState.RUNNING)
    ]


def _theirs(messages: list[Msg]) -> list[ScopeMsg]:
    return [ScopeMsg.model_validate(msg) for msg in wires.write_messages("agentscope", messages)]


def _result(answer: Answer) -> ToolResultBlock:
    return ToolResultBlock(
        id=answer.call_id, name=answer.name, output=answer.output, state=ToolResultState(answer.state)
    )
