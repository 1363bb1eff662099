"""The framework `openai-agents`, on both of OpenAI's APIs."""

import asyncio
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from cases import Client, History, Turn
from conversation import CHAT, RESPONSES, Json
from tools import TOOLS, City

set_tracing_disabled(True)


def describe_city(name: str, population: int) -> str:
    """Describes a city."""
    return f"{name} has {population} people."


class OpenAIAgents(Client):
    model_class: Any

    def run_turn(self, history: History, turn: Turn) -> tuple[Json, History]:
        settings = dict(turn.options)
        offered = [function_tool(tool) for tool in TOOLS.values()] if turn.tools else []
        if turn.structured == "tool":
            offered, settings["tool_choice"] = [function_tool(describe_city)], "describe_city"
        agent = Agent(
            name="assistant",
            instructions=turn.system,
            model_settings=ModelSettings(**settings),
            tools=offered,
            output_type=City if turn.structured == "native" else None,
            tool_use_behavior="stop_on_first_tool" if turn.structured == "tool" else "run_llm_again",
        )
        content: Any = turn.text
        if turn.image:
            content = [{"type": "input_text", "text": turn.text}, {"type": "input_image", "image_url": turn.image_url, "detail": "auto"}]
        return asyncio.run(self.ask(agent, [*history, {"role": "user", "content": content}], turn.stream))

    async def ask(self, agent: Any, given: list[Any], stream: bool) -> tuple[Json, History]:
        async with AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=30) as client:
            agent.model = self.model_class(model=self.model, openai_client=client)
            if stream:
                result: Any = Runner.run_streamed(agent, given)
                async for _ in result.stream_events():
                    pass
            else:
                result = await Runner.run(agent, given)
        items = [item for response in result.raw_responses for item in response.output]
        output = result.final_output
        answer = {
            "output": output.model_dump() if isinstance(output, City) else output,
            "calls": [[item.name, item.arguments] for item in items if item.type == "function_call"],
            "usage": [[response.usage.input_tokens, response.usage.output_tokens] for response in result.raw_responses],
        }
        return answer, result.to_input_list()


class OpenAIAgentsChat(OpenAIAgents):
    name, wire, model_class = "openai-agents-chat", CHAT, OpenAIChatCompletionsModel
    options: Json = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 12,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.1,
        "metadata": {"team": "red"},
        "verbosity": "low",
        "store": False,
        "extra_body": {"seed": 7, "stop": ["STOP"]},
    }
    cannot = {"thinking": "the API does not return it"}


class OpenAIAgentsResponses(OpenAIAgents):
    name, wire, model_class = "openai-agents-responses", RESPONSES, OpenAIResponsesModel
    options: Json = {
        "temperature": 0.2,
        "top_p": 0.9,
        # An answer that is cut off is an error for it.
        "max_tokens": 1200,
        "truncation": "auto",
        "metadata": {"team": "red"},
        "verbosity": "low",
        "store": False,
    }
    thinking: Json = {"reasoning": {"effort": "low"}, "response_include": ["reasoning.encrypted_content"], "store": False}


CLIENTS = [OpenAIAgentsChat, OpenAIAgentsResponses]
