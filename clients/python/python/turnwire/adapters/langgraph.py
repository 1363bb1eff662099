"""LangGraph: publishes the stream of a graph, and hands approvals and stops back to it.

    from turnwire.adapters import langgraph

    stream = graph.astream(inputs, config, stream_mode=["messages", "updates"])    # your own call, now durable
    async for part in langgraph.publish(stream, "my-session"):
        ...

    await langgraph.serve(graph, "my-session")    # users talk to it through Turnwire

An `interrupt` of the graph becomes a call that waits for an approval: the call that it is about, if its value names
one (`action_requests` of LangChain's middleware, or `tool_call_id`), and otherwise a call of the tool `interrupt` whose
input is the value. The graph gets what `resume` makes of the answer; by default `{"confirmed", "input", "reason"}`, and
for `action_requests` the decisions that the middleware wants. The state of the graph is in its checkpointer, under the
session as its thread: a persistent one lets an approval outlive the process.
"""
# The frameworks leave many of their types open.
# pyright: basic

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langgraph.types import Command

from .. import agents, wires
from ..agents import AgentAdapter, Answer, Turn, WritingTranslator
from ..publisher import Publisher

__all__ = ["Adapter", "Translator", "publish", "serve"]

STREAM_MODE = ["messages", "updates"]
Item = TypeVar("Item")


class Translator(WritingTranslator[Any]):
    """Turns what `astream(stream_mode=["messages", "updates"])` yields into Turnwire's events."""

    def __init__(self, name: str = "agent", *, id: str | None = None, is_resumed: bool = False) -> None:
        super().__init__(name, id=id, is_resumed=is_resumed)
        # The message that is being streamed, its calls by their index, and its tokens.
        self._message: str | None = None
        self._calls: dict[int, str] = {}
        self._usage: Any = None
        # Messages that other branches of the graph stream at the same time: they are written when this one has ended.
        self._held: list[Any] = []
        # All calls without a result: name and input, in their order.
        self.open: dict[str, tuple[str, str]] = {}
        # What the graph waits for: its interrupts, and the calls of each.
        self.interrupts: dict[str, tuple[Any, list[str]]] = {}

    def write(self, item: Any) -> None:
        # With `subgraphs=True` a namespace comes first.
        mode, data = item[-2], item[-1]
        if mode == "messages":
            self._write_message(data[0])
        elif mode == "updates":
            for update in data.values():
                self._end_updated(update)
            for interrupt in data.get("__interrupt__") or ():
                self._interrupt(interrupt)

    def _write_message(self, message: Any) -> None:
        reply = self.reply
        if self._message not in (None, message.id):
            self._held.append(message)
            return
        if isinstance(message, ToolMessage):
            name, _ = self.open.pop(message.tool_call_id, (message.name or "", ""))
            state = "error" if message.status == "error" else "success"
            reply.tool_result(message.tool_call_id, name, _text(message.content), state=state)
            return
        if not isinstance(message, AIMessage):
            return
        if self._message is None:
            self._message = message.id
            reply.model_call(str(message.response_metadata.get("model_name") or ""))
        for kind, text in _parts(message.content):
            (reply.thinking if kind == "thinking" else reply.text)(text)
        if isinstance(message, AIMessageChunk):
            for chunk in message.tool_call_chunks:
                self._write_chunk(chunk)
        else:
            for call in message.tool_calls:
                self._start(str(call["id"]), call["name"], json.dumps(call["args"]))
        self._usage = message.usage_metadata or self._usage
        if not isinstance(message, AIMessageChunk) or message.chunk_position == "last":
            self._end_message()

    def _write_chunk(self, chunk: Any) -> None:
        index = chunk.get("index") or 0
        if chunk.get("id") and chunk["id"] not in self._calls.values():
            self._calls[index] = chunk["id"]
            self._start(chunk["id"], chunk.get("name") or "", chunk.get("args") or "")
        elif index in self._calls:
            id, delta = self._calls[index], chunk.get("args") or ""
            name, input = self.open[id]
            self.open[id] = (name, input + delta)
            self.reply.tool_input(id, delta)

    def _start(self, id: str, name: str, input: str) -> None:
        self.open[id] = (name, input)
        self.reply.tool_call(id, name, input)

    def _end_message(self) -> None:
        """Ends the message that is being streamed, and writes what was held back for it."""
        if self._message is None:
            return
        usage, self._usage = self._usage or {}, None
        self._message = None
        self._calls.clear()
        cached = usage.get("input_token_details", {})
        self.reply.model_call_end(
            input_tokens=usage.get("input_tokens", 0),
            output_tokens=usage.get("output_tokens", 0),
            cache_input_tokens=cached.get("cache_read", 0) or 0,
            cache_creation_input_tokens=cached.get("cache_creation", 0) or 0,
        )
        held, self._held = self._held, []
        for message in held:
            self._write_message(message)

    def _end_updated(self, update: Any) -> None:
        """A node has ended, and with it the message that it streamed."""
        messages = update.get("messages") if isinstance(update, dict) else None
        if isinstance(messages, list) and any(getattr(message, "id", "") == self._message for message in messages):
            self._end_message()

    def _end_messages(self) -> None:
        while self._message is not None:
            self._end_message()

    def _interrupt(self, interrupt: Any) -> None:
        if interrupt.id in self.interrupts:
            return
        self._end_messages()
        value = interrupt.value
        calls = self._calls_of(value)
        if not calls:
            input = json.dumps(value if isinstance(value, dict) else {"value": value}, default=str)
            self._start(interrupt.id, "interrupt", input)
            calls = [interrupt.id]
        self.interrupts[interrupt.id] = (value, calls)

    def _calls_of(self, value: Any) -> list[str]:
        """The calls that an interrupt is about."""
        if not isinstance(value, dict):
            return []
        if value.get("tool_call_id") in self.open:
            return [str(value["tool_call_id"])]
        found: list[str] = []
        for request in value.get("action_requests") or []:
            same = (id for id, (name, _) in self.open.items() if name == request.get("name") and id not in found)
            id = next(same, None)
            if id is None:
                return []
            found.append(id)
        return found

    def finish(self) -> None:
        self._end_messages()
        waiting = [call for _, calls in self.interrupts.values() for call in calls]
        if waiting:
            self.reply.require_confirm(*((id, *self.open[id]) for id in waiting))
        else:
            self.reply.end()


def _text(content: Any) -> str:
    return "".join(text for _, text in _parts(content))


def _parts(content: Any) -> list[tuple[str, str]]:
    """Text and thinking of a content: a string, or a list of blocks."""
    if isinstance(content, str):
        return [("text", content)]
    parts: list[tuple[str, str]] = []
    for block in content:
        if isinstance(block, str):
            parts.append(("text", block))
        elif block.get("type") == "text":
            parts.append(("text", block.get("text") or ""))
        elif block.get("type") in ("thinking", "reasoning"):
            parts.append(("thinking", block.get("thinking") or block.get("reasoning") or ""))
    return parts


def publish(
    stream: AsyncIterable[Item], to: Publisher | str, *, name: str = "agent", **options: Any
) -> AsyncGenerator[Item, None]:
    """Publishes what `graph.astream(…, stream_mode=["messages", "updates"])` yields while it passes through: to a
    publisher, or a session. Options are those of `Publisher`."""
    return agents.publish_stream(stream, Translator(name), to, **options)


async def serve(
    graph: Any,
    session: str,
    *,
    config: dict[str, Any] | None = None,
    resume: Callable[[Any, list[Answer]], Any] | None = None,
    **options: Any,
) -> None:
    """Lets the users of a session talk to a graph over messages; options are those of `turnwire.agents.serve`. `resume`
    makes of an interrupt's value and the answers to its calls what the graph continues with."""
    await agents.serve(Adapter(graph, session, config=config, resume=resume), session, **options)


class Adapter(AgentAdapter):
    """A graph for `turnwire.agents.serve`. It needs a checkpointer."""

    def __init__(
        self,
        graph: Any,
        thread: str,
        *,
        config: dict[str, Any] | None = None,
        resume: Callable[[Any, list[Answer]], Any] | None = None,
    ) -> None:
        self.graph = graph
        self.name = getattr(graph, "name", None) or "agent"
        self.resume = resume or resume_with
        config = config or {}
        self.config = {**config, "configurable": {"thread_id": thread, **config.get("configurable", {})}}

    async def run(self, turn: Turn) -> AsyncIterator[dict[str, Any]]:
        translator = Translator(self.name, id=turn.reply_id, is_resumed=bool(turn.answers))
        if turn.answers:
            inputs: Any = await self._command(turn, translator)
            for event in translator._taken():
                yield event
        else:
            interrupted = _interrupted((await self.graph.aget_state(self.config)).values)
            inputs = {"messages": [*interrupted, *wires.write_messages("openai-chat", turn.messages)]}
        async for item in self.graph.astream(inputs, self.config, stream_mode=STREAM_MODE):
            for event in translator.feed(item):
                yield event
        for event in translator.end():
            yield event

    async def _command(self, turn: Turn, translator: Translator) -> Any:
        """What the graph continues with: an answer to each of its interrupts."""
        state = await self.graph.aget_state(self.config)
        blocks = {block["id"]: block for block in turn.history[-1].get_content_blocks("tool_call")}
        results = {block["id"] for block in turn.history[-1].get_content_blocks("tool_result")}
        known = Translator()
        known.open = {id: (block["name"], block["input"]) for id, block in blocks.items() if id not in results}
        translator.open = dict(known.open)
        answers = {answer.call_id: answer for answer in turn.answers}
        resumed: dict[str, Any] = {}
        for interrupt in state.interrupts:
            calls = known._calls_of(interrupt.value) or [interrupt.id]
            given = [answers[call] for call in calls if call in answers]
            resumed[interrupt.id] = self.resume(interrupt.value, given)
            for answer in given:
                # Nothing else says the result of a call that is only an interrupt.
                if answer.call_id == interrupt.id:
                    said = "success" if answer.confirmed else "denied"
                    translator.reply.tool_result(answer.call_id, "interrupt", answer.reason, state=said)
                    translator.open.pop(answer.call_id, None)
        return Command(resume=resumed)


def _interrupted(values: Any) -> list[ToolMessage]:
    """Results for the calls of a run that was stopped: model providers refuse a call without one."""
    messages = values.get("messages") if isinstance(values, dict) else None
    results: list[ToolMessage] = []
    known = {message.tool_call_id for message in messages or () if isinstance(message, ToolMessage)}
    for message in messages or ():
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            if call["id"] not in known:
                result = ToolMessage(
                    "The call was interrupted.", tool_call_id=call["id"], name=call["name"], status="error"
                )
                results.append(result)
    return results


def resume_with(value: Any, answers: list[Answer]) -> Any:
    """What a graph continues with, unless `serve` was given something else."""
    if isinstance(value, dict) and value.get("action_requests"):
        pairs = zip(answers, value["action_requests"], strict=True)
        return {"decisions": [_decision(answer, request) for answer, request in pairs]}
    answer = answers[0]
    return {"confirmed": answer.confirmed, "input": json.loads(answer.input or "{}"), "reason": answer.reason}


def _decision(answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    if not answer.confirmed:
        return {"type": "reject", "message": answer.reason or "The user denied this call."}
    edited = json.loads(answer.input or "{}")
    if edited != (request.get("args") or request.get("arguments")):
        return {"type": "edit", "edited_action": {"name": request["name"], "args": edited}}
    return {"type": "approve"}
