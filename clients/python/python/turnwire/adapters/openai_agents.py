"""The OpenAI Agents SDK: publishes the events of a run, and hands approvals and stops back to it.

    from turnwire.adapters import openai_agents

    result = Runner.run_streamed(agent, "hello")                              # your own call, now durable
    async for event in openai_agents.publish(result, "my-session"):
        ...

    await openai_agents.serve(agent, "my-session")    # users talk to it through Turnwire

A tool that needs an approval has `needs_approval`. The SDK runs a call only with the input that the model wrote: a call
that was approved with an edited input is rejected, and the model is told to call again with that input.
"""
# The frameworks leave many of their types open.
# pyright: basic

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from agents import Agent, RunConfig, Runner, RunResultStreaming, RunState, StreamEvent
from agents.items import ToolApprovalItem, ToolCallItem, ToolCallOutputItem

from .. import agents as base
from .. import wires
from .._native import Msg
from ..agents import AgentAdapter, Answer, Turn, WritingTranslator
from ..publisher import Publisher

__all__ = ["Adapter", "Translator", "publish", "serve"]


class Translator(WritingTranslator[Any]):
    """Turns the events of `stream_events` into Turnwire's."""

    def __init__(
        self, result: RunResultStreaming, name: str | None = None, *, id: str | None = None, is_resumed: bool = False
    ) -> None:
        super().__init__(name or result.current_agent.name, id=id, is_resumed=is_resumed)
        self._result = result
        # The calls of the current response, by the id of their item; those whose input came in deltas; all names.
        self._items: dict[str, str] = {}
        self._with_input: set[str] = set()
        self._names: dict[str, str] = {}
        # Whether the current response came in deltas.
        self._has_text = False

    def write(self, item: Any) -> None:
        if item.type == "raw_response_event":
            self._raw(item.data)
        elif item.type == "run_item_stream_event":
            self._item(item.item)
        elif item.type == "agent_updated_stream_event" and item.new_agent.name != self.reply.name:
            self.reply.custom("agent_updated", {"agent": item.new_agent.name})

    def _raw(self, event: Any) -> None:
        reply, kind = self.reply, event.type
        if kind == "response.created":
            reply.model_call(getattr(event.response, "model", None) or "")
            self._has_text = False
        elif kind == "response.output_text.delta":
            self._has_text = True
            reply.text(event.delta)
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            reply.thinking(event.delta)
        elif kind == "response.output_item.added" and event.item.type == "function_call":
            self._call(event.item, "")
        elif kind == "response.function_call_arguments.delta" and event.item_id in self._items:
            self._with_input.add(self._items[event.item_id])
            reply.tool_input(self._items[event.item_id], event.delta)
        elif kind == "response.output_item.done" and event.item.type == "function_call":
            self._whole_call(event.item)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self._completed(event.response)

    def _completed(self, response: Any) -> None:
        # A model that does not stream says everything here.
        for item in response.output:
            if item.type == "message" and not self._has_text:
                for part in item.content:
                    self.reply.text(getattr(part, "text", "") or "")
            elif item.type == "function_call":
                self._whole_call(item)
        usage = response.usage
        cached = getattr(getattr(usage, "input_tokens_details", None), "cached_tokens", 0) or 0
        self.reply.model_call_end(
            input_tokens=usage.input_tokens if usage else 0,
            output_tokens=usage.output_tokens if usage else 0,
            cache_input_tokens=cached,
        )
        self._has_text = False

    def _call(self, item: Any, input: str) -> None:
        if item.call_id not in self._names:
            self._names[item.call_id] = item.name
            if item.id:
                self._items[item.id] = item.call_id
            self.reply.tool_call(item.call_id, item.name, input)

    def _whole_call(self, item: Any) -> None:
        is_new = item.call_id not in self._names
        self._call(item, item.arguments)
        if not is_new and item.call_id not in self._with_input:
            self.reply.tool_input(item.call_id, item.arguments)
        self._with_input.add(item.call_id)
        self.reply.tool_call_end(item.call_id)

    def _item(self, item: Any) -> None:
        if isinstance(item, ToolCallItem) and getattr(item.raw_item, "type", "") == "function_call":
            self._whole_call(item.raw_item)
        elif isinstance(item, ToolCallOutputItem):
            raw: Any = item.raw_item
            call = raw["call_id"] if isinstance(raw, dict) else raw.call_id
            output = item.output if isinstance(item.output, str) else json.dumps(item.output, default=str)
            self.reply.tool_result(call, self._names.get(call, ""), output, state=self._state(call))

    def _state(self, call: str) -> str:
        return "success"

    def finish(self) -> None:
        waiting = [_raw(item) for item in self._result.interruptions]
        if waiting:
            self.reply.require_confirm(*((raw["call_id"], raw["name"], raw["arguments"]) for raw in waiting))
            return
        output = self._result.final_output
        if output is None or isinstance(output, str):
            self.reply.end()
        else:
            dumped = output.model_dump(mode="json") if hasattr(output, "model_dump") else output
            self.reply.end(structured_output=dumped)


class _ResumedTranslator(Translator):
    """The translator of a run that goes on: it knows what the user denied."""

    def __init__(self, result: RunResultStreaming, turn: Turn, name: str) -> None:
        super().__init__(result, name, id=turn.reply_id, is_resumed=True)
        self._denied = {answer.call_id for answer in turn.answers if not answer.confirmed}
        for block in turn.history[-1].get_content_blocks("tool_call"):
            self._names[block["id"]] = block["name"]
            self._with_input.add(block["id"])

    def _state(self, call: str) -> str:
        return "denied" if call in self._denied else "success"

    def _whole_call(self, item: Any) -> None:
        # The SDK repeats the calls that waited.
        if item.call_id not in self._names:
            super()._whole_call(item)


def _raw(item: ToolApprovalItem) -> dict[str, Any]:
    raw: Any = item.raw_item
    fields: dict[str, Any] = raw if isinstance(raw, dict) else raw.model_dump()
    return {
        "call_id": fields.get("call_id") or fields.get("id") or "",
        "name": item.tool_name or fields.get("name") or "",
        "arguments": fields.get("arguments") or "",
    }


async def publish(
    result: RunResultStreaming, to: Publisher | str, *, name: str | None = None, **options: Any
) -> AsyncGenerator[StreamEvent, None]:
    """Publishes what `result.stream_events()` yields while it passes through: to a publisher, or a session. Options are
    those of `Publisher`."""
    async for event in base.publish_stream(result.stream_events(), Translator(result, name), to, **options):
        yield event


async def serve(agent: Agent[Any], session: str, *, run_config: RunConfig | None = None, **options: Any) -> None:
    """Lets the users of a session talk to the agent; options are those of `turnwire.agents.serve`."""
    await base.serve(Adapter(agent, run_config=run_config), session, **options)


class Adapter(AgentAdapter):
    """An agent for `turnwire.agents.serve`. It keeps the items of one conversation."""

    def __init__(self, agent: Agent[Any], *, run_config: RunConfig | None = None) -> None:
        self.agent = agent
        self.run_config = run_config
        self.name = agent.name
        self.items: list[Any] = []
        # Of a run that waits for approvals.
        self.waiting: str | None = None

    async def run(self, turn: Turn) -> AsyncIterator[dict[str, Any]]:
        if turn.answers and self.waiting is not None:
            state: RunState[Any, Agent[Any]] = await RunState.from_string(self.agent, self.waiting)
            answers = {answer.call_id: answer for answer in turn.answers}
            for item in state.get_interruptions():
                _answer(state, item, answers.get(_raw(item)["call_id"]))
            result = Runner.run_streamed(self.agent, state, run_config=self.run_config)
            translator: Translator = _ResumedTranslator(result, turn, self.name)
        else:
            if turn.answers:
                # The call that waited ends without a result, and the conversation goes on.
                self.items = wires.write_messages("openai-responses", base.closed(turn.history))
                raise RuntimeError("the run that waited is not in the store: pass the same `store` to `serve`")
            self.items = [*self.items, *wires.write_messages("openai-responses", turn.messages)]
            result = Runner.run_streamed(self.agent, list(self.items), run_config=self.run_config)
            translator = Translator(result, self.name, id=turn.reply_id)
        self.waiting = None
        try:
            async for item in result.stream_events():
                for event in translator.feed(item):
                    yield event
        finally:
            if not result.is_complete:
                result.cancel()
        self.items = result.to_input_list()
        if result.interruptions:
            self.waiting = result.to_state().to_string()
        for event in translator.end():
            yield event

    def dump(self) -> bytes:
        return json.dumps({"items": self.items, "waiting": self.waiting}).encode()

    def load(self, state: bytes) -> None:
        loaded = json.loads(state)
        self.items, self.waiting = loaded["items"], loaded["waiting"]

    def restore(self, history: list[Msg]) -> None:
        if not self.items:
            self.items = wires.write_messages("openai-responses", history)

    async def stopped(self, turn: Turn) -> None:
        self.waiting = None
        # In the history, the calls that waited have a result.
        self.items = wires.write_messages("openai-responses", turn.history)


def _answer(state: RunState[Any, Agent[Any]], item: ToolApprovalItem, answer: Answer | None) -> None:
    asked = _raw(item)["arguments"]
    if answer is None or not answer.confirmed:
        reason = answer.reason if answer is not None else ""
        state.reject(item, rejection_message=reason or "The user denied this call.")
    elif json.loads(answer.input or "{}") != json.loads(asked or "{}"):
        answer.confirmed = False
        state.reject(item, rejection_message=f"The user wants this input instead: {answer.input}. Call again with it.")
    else:
        state.approve(item)
