"""Pydantic AI: publishes the events of an agent, and hands approvals, results and stops back to it.

    from turnwire.adapters import pydantic_ai

    async with agent.run_stream_events("hello") as events:                # your own call, now durable
        async for event in pydantic_ai.publish(events, "my-session"):
            ...

    await pydantic_ai.serve(agent, "my-session")    # users talk to it through Turnwire

A tool that needs an approval is one of Pydantic AI's deferred tools: `requires_approval=True`, and
`DeferredToolRequests` among the agent's output types.
"""
# The frameworks leave many of their types open.
# pyright: basic

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from typing import Any, TypeVar

from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DeferredToolRequestsEvent,
    DocumentUrl,
    FunctionToolResultEvent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    OutputToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_core import to_jsonable_python

from .. import agents
from .._native import Msg
from ..agents import AgentAdapter, Answer, Turn, WritingTranslator
from ..publisher import Publisher
from ..types import Payload

__all__ = ["Adapter", "Translator", "publish", "serve"]

Item = TypeVar("Item")

_STATES = {"success": "success", "denied": "denied", "interrupted": "interrupted"}


class Translator(WritingTranslator[Any]):
    """Turns the events of `run_stream_events` into Turnwire's."""

    def __init__(self, name: str = "agent", *, id: str | None = None, is_resumed: bool = False) -> None:
        super().__init__(name, id=id, is_resumed=is_resumed)
        # The calls of the current response, by the index of their part.
        self._parts: dict[int, str] = {}
        self._names: dict[str, str] = {}
        self.waits = False

    def write(self, item: Any) -> None:
        reply = self.reply
        if isinstance(item, PartStartEvent):
            self._start_part(item)
        elif isinstance(item, PartDeltaEvent):
            delta = item.delta
            if isinstance(delta, TextPartDelta):
                reply.text(delta.content_delta)
            elif isinstance(delta, ThinkingPartDelta):
                reply.thinking(delta.content_delta or "")
            elif isinstance(delta, ToolCallPartDelta) and item.index in self._parts:
                reply.tool_input(self._parts[item.index], delta.args_delta or "")
        elif isinstance(item, PartEndEvent):
            call = self._parts.pop(item.index, None)
            if call is not None:
                reply.tool_call_end(call)
        elif isinstance(item, FunctionToolResultEvent | OutputToolResultEvent):
            part = item.part
            state = _STATES.get(part.outcome, "error")
            name = self._names.get(part.tool_call_id, part.tool_name)
            reply.tool_result(part.tool_call_id, name, part.model_response_str(), state=state)
        elif isinstance(item, DeferredToolRequestsEvent):
            self._require(item.requests)
        elif isinstance(item, AgentRunResultEvent):
            self._finish_run(item.result)

    def _start_part(self, item: PartStartEvent) -> None:
        reply, part = self.reply, item.part
        reply.model_call()
        if isinstance(part, TextPart):
            reply.text(part.content)
        elif isinstance(part, ThinkingPart):
            reply.thinking(part.content)
        elif isinstance(part, ToolCallPart):
            self._parts[item.index] = part.tool_call_id
            self._names[part.tool_call_id] = part.tool_name
            reply.tool_call(part.tool_call_id, part.tool_name, part.args_as_json_str() if part.args else "")

    def _require(self, requests: DeferredToolRequests) -> None:
        if not self.waits:
            self.waits = True
            self.reply.require_confirm(*map(_call, requests.approvals))
            self.reply.require_execution(*map(_call, requests.calls))

    def _finish_run(self, result: Any) -> None:
        usage = result.usage
        # Of all model calls of the run: the stream does not say it of each.
        self.reply.model_call_end(
            input_tokens=usage.input_tokens or 0,
            output_tokens=usage.output_tokens or 0,
            cache_input_tokens=usage.cache_read_tokens or 0,
            cache_creation_input_tokens=usage.cache_write_tokens or 0,
        )
        if isinstance(result.output, DeferredToolRequests):
            self._require(result.output)
        elif isinstance(result.output, str):
            self.reply.end()
        else:
            self.reply.end(structured_output=to_jsonable_python(result.output))

    def finish(self) -> None:
        if not self.waits:
            self.reply.end()


def _call(part: ToolCallPart) -> tuple[str, str, str]:
    return part.tool_call_id, part.tool_name, part.args_as_json_str()


def publish(
    stream: AsyncIterable[Item], to: Publisher | str, *, name: str = "agent", **options: Any
) -> AsyncGenerator[Item, None]:
    """Publishes what `agent.run_stream_events` yields while it passes through: to a publisher, or a session. Options
    are those of `Publisher`."""
    return agents.publish_stream(stream, Translator(name), to, **options)


async def serve(agent: Agent[Any, Any], session: str, *, deps: Any = None, **options: Any) -> None:
    """Lets the users of a session talk to the agent; options are those of `turnwire.agents.serve`."""
    await agents.serve(Adapter(agent, deps=deps), session, **options)


class Adapter(AgentAdapter):
    """An agent for `turnwire.agents.serve`. It keeps the messages of one conversation."""

    def __init__(self, agent: Agent[Any, Any], *, deps: Any = None) -> None:
        self.agent = agent
        self.deps = deps
        self.name = agent.name or "agent"
        self.messages: list[ModelMessage] = []

    async def run(self, turn: Turn) -> AsyncIterator[dict[str, Any]]:
        translator = Translator(self.name, id=turn.reply_id, is_resumed=bool(turn.answers))
        given: dict[str, Any] = {"message_history": self.messages, "deps": self.deps}
        if turn.answers:
            given["deferred_tool_results"] = _results(turn.answers)
        else:
            prompt = _prompt(turn.messages)
            given["user_prompt"] = prompt
            # If the run breaks off, the question is remembered.
            self.messages = [*self.messages, ModelRequest(parts=[UserPromptPart(prompt)])]
        async with self.agent.run_stream_events(**given) as events:
            async for item in events:
                if isinstance(item, AgentRunResultEvent):
                    self.messages = list(item.result.all_messages())
                for event in translator.feed(item):
                    yield event
        for event in translator.end():
            yield event

    def dump(self) -> bytes:
        state: bytes = ModelMessagesTypeAdapter.dump_json(self.messages)
        return state

    def load(self, state: bytes) -> None:
        self.messages = list(ModelMessagesTypeAdapter.validate_json(state))

    def restore(self, history: list[Msg]) -> None:
        if not self.messages:
            self.messages = _theirs(history)

    async def stopped(self, turn: Turn) -> None:
        # The calls that wait have no result, so no message can follow them.
        while self.messages and isinstance(self.messages[-1], ModelResponse):
            self.messages.pop()


def _results(answers: list[Answer]) -> DeferredToolResults:
    results = DeferredToolResults()
    for answer in answers:
        if answer.is_external:
            results.calls[answer.call_id] = _text(answer.output)
        elif answer.confirmed:
            results.approvals[answer.call_id] = ToolApproved(override_args=json.loads(answer.input or "{}"))
        else:
            results.approvals[answer.call_id] = ToolDenied(answer.reason or "The user denied this call.")
    return results


def _text(output: Payload) -> str:
    return output if isinstance(output, str) else "".join(part["text"] for part in output if part["type"] == "text")


def _prompt(messages: list[Msg]) -> str | Sequence[UserContent]:
    """What users said: text, or parts with their files."""
    parts: list[UserContent] = []
    has_files = False
    for block in (block for msg in messages for block in msg.content):
        if block["type"] == "text":
            parts.append(block["text"])
        elif block["type"] in ("data", "image", "audio", "video"):
            file = _file(block)
            has_files = has_files or file is not None
            parts += [file] if file is not None else []
    return parts if has_files else "\n".join(str(part) for part in parts)


def _file(block: Any) -> UserContent | None:
    source, kind = block["source"], block["source"].get("media_type") or "application/octet-stream"
    if source["type"] == "base64":
        return BinaryContent(base64.b64decode(source["data"]), media_type=kind)
    if source["type"] != "url":
        return None
    urls = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}
    return urls.get(kind.partition("/")[0], DocumentUrl)(source["url"], media_type=kind)


def _theirs(history: list[Msg]) -> list[ModelMessage]:
    """The conversation as Pydantic AI's messages."""
    messages: list[ModelMessage] = []
    for msg in history:
        if msg.role != "assistant":
            messages.append(ModelRequest(parts=[UserPromptPart(_prompt([msg]))]))
            continue
        said: list[Any] = []
        returned: list[Any] = []
        for block in msg.content:
            if block["type"] == "tool_result":
                outcome: Any = block["state"] if block["state"] in _STATES else "failed"
                output = _text(block["output"])
                returned.append(ToolReturnPart(block["name"], output, tool_call_id=block["id"], outcome=outcome))
                continue
            if returned:
                messages += [ModelResponse(parts=said), ModelRequest(parts=returned)]
                said, returned = [], []
            if block["type"] == "text":
                said.append(TextPart(block["text"]))
            elif block["type"] == "tool_call":
                said.append(ToolCallPart(block["name"], block["input"], tool_call_id=block["id"]))
        if said:
            messages.append(ModelResponse(parts=said))
        if returned:
            messages.append(ModelRequest(parts=returned))
    return messages
