"""AgentScope's own agent, on a model and with tools that do what a scenario says."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from agentscope.agent import Agent, InjectionConfig, ModelConfig, ReActConfig
from agentscope.credential import CredentialBase
from agentscope.event import (
    AgentEvent,
    ConfirmResult,
    ExternalExecutionResultEvent,
    UserConfirmResultEvent,
    UserInterruptEvent,
)
from agentscope.formatter import FormatterBase
from agentscope.message import (
    Base64Source,
    DataBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolCallState,
    ToolResultBlock,
    ToolResultState,
    UserMsg,
)
from agentscope.model import ChatModelBase, ChatResponse, ChatUsage
from agentscope.permission import PermissionBehavior, PermissionDecision, PermissionRule
from agentscope.tool import FunctionTool, ToolBase, ToolChunk, Toolkit

Json = dict[str, Any]

SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ALLOWED = PermissionDecision(behavior=PermissionBehavior.ALLOW, message="")


class Overloaded(Exception):
    """What the scripted model fails with."""


class Formatter(FormatterBase):
    async def format(self, *args: Any, **kwargs: Any) -> list[Json]:
        return []


class Scripted(ChatModelBase):
    """Says what it was told to say, one answer for each call, a chunk for each delta."""

    formatter = Formatter()

    def __init__(self, answers: list[list[Any]]) -> None:
        super().__init__(CredentialBase(), "script", self.Parameters(), max_retries=0)
        self.answers = iter(answers)

    async def _call_api(self, *args: Any, **kwargs: Any) -> AsyncGenerator[ChatResponse, None]:
        lines = next(self.answers, [])
        if lines and "fail" in lines[0]:
            raise Overloaded(lines[0]["fail"])
        return self.chunks(lines)

    async def chunks(self, lines: list[Any]) -> AsyncGenerator[ChatResponse, None]:
        tokens = 0
        for at, line in enumerate(lines):
            if "fail" in line:
                raise Overloaded(line["fail"])
            if line == "wait":
                await asyncio.Event().wait()
            for block in blocks(f"block {at}", line):
                tokens += 1
                yield ChatResponse(content=[block], is_last=False)
        yield ChatResponse(content=[], is_last=False, usage=ChatUsage(1, tokens, 0.0))


def blocks(id: str, line: Any) -> Iterator[TextBlock | ThinkingBlock | ToolCallBlock]:
    match line:
        case {"text": deltas}:
            yield from (TextBlock(id=id, text=delta) for delta in deltas)
        case {"thinking": deltas}:
            yield from (ThinkingBlock(id=id, thinking=delta) for delta in deltas)
        case {"call": [call, name, deltas]}:
            yield from (ToolCallBlock(id=call, name=name, input=delta) for delta in deltas)


class External(ToolBase):
    """A tool that the client executes."""

    description = ""
    input_schema = SCHEMA
    is_concurrency_safe = True
    is_read_only = False
    is_external_tool = True

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    async def check_permissions(self, *args: Any, **kwargs: Any) -> PermissionDecision:
        return ALLOWED

    async def call(self, *args: Any, **kwargs: Any) -> ToolChunk:
        raise NotImplementedError("the client executes it")


def tool(name: str, plan: Json) -> ToolBase:
    if plan.get("external"):
        return External(name)

    async def run(city: str) -> AsyncGenerator[ToolChunk, None]:
        for text in plan["says"]:
            yield ToolChunk(content=[TextBlock(text=text)])
        if shows := plan.get("shows"):
            data = base64.b64encode(shows.encode()).decode()
            source = Base64Source(data=data, media_type="image/png")
            yield ToolChunk(content=[DataBlock(source=source)])
        if plan.get("hangs"):
            await asyncio.Event().wait()
        if why := plan.get("fails"):
            raise RuntimeError(why)

    allowed = None if plan.get("behavior") == "ask" else ALLOWED
    return FunctionTool(run, name, "", SCHEMA, permission=allowed)


def played(scenario: Json, tools: dict[str, Json]) -> tuple[list[AgentEvent], Msg | None]:
    """The events of a reply, to its end; and the message that the agent itself keeps of it."""
    return asyncio.run(play(scenario, tools))


async def play(scenario: Json, tools: dict[str, Json]) -> tuple[list[AgentEvent], Msg | None]:
    agent = Agent(
        "friday",
        "",
        Scripted(scenario["answers"]),
        Toolkit([tool(name, plan) for name, plan in tools.items()]),
        model_config=ModelConfig(max_retries=0),
        react_config=ReActConfig(max_iters=scenario.get("max_iterations", 10)),
        # What time it is, and more of the kind, is told to the model in hints of its own.
        injection_config=InjectionConfig(inject_runtime_state=False),
    )
    for name, plan in tools.items():
        if plan.get("behavior") == "deny":
            deny = PermissionBehavior.DENY
            rule = PermissionRule(tool_name=name, rule_content=None, behavior=deny, source="test")
            agent._engine.add_rule(rule)
    events: list[AgentEvent] = []
    stop_at = scenario.get("stop_at")
    inputs: Any = UserMsg("ann", "Well?")
    while inputs is not None:
        try:
            async for event in agent.reply_stream(inputs):
                events.append(event)
                if event.type == stop_at and (reader := asyncio.current_task()):
                    # Whoever reads is cancelled, once, and with it what the agent waits for.
                    stop_at = None
                    reader.cancel()
        except Overloaded:
            break
        inputs = answer(agent, scenario, events)
    kept = [msg for msg in agent.state.context if msg.id == agent.state.reply_id]
    return events, kept[-1] if kept else None


def answer(agent: Agent, scenario: Json, events: list[AgentEvent]) -> Any:
    """What the person or the client says to what waits. Nobody to say it: the reply is given up."""
    waiting = agent.state.get_awaiting_tool_calls(agent.name)
    if not waiting or events[-1].type == "REPLY_END":
        return None
    reply_id = agent.state.reply_id
    decisions, results = scenario.get("decisions", {}), scenario.get("results", {})
    asked = [call for call in waiting if call.state == ToolCallState.ASKING]
    confirm = [
        ConfirmResult(
            confirmed=bool(said),
            tool_call=call.model_copy(update={"input": said} if isinstance(said, str) else {}),
        )
        for call in asked
        if (said := decisions.get(call.id)) is not None
    ]
    if confirm:
        return UserConfirmResultEvent(reply_id=reply_id, confirm_results=confirm)
    done = [
        ToolResultBlock(
            id=call.id, name=call.name, output=results[call.id], state=ToolResultState.SUCCESS
        )
        for call in waiting
        if call.id in results
    ]
    if done:
        return ExternalExecutionResultEvent(reply_id=reply_id, execution_results=done)
    return UserInterruptEvent(reply_id=reply_id)
