"""The framework `pydantic-ai`, on three wires."""

import asyncio
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, BinaryContent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from cases import Client, History, Turn
from conversation import ANTHROPIC, CHAT, RESPONSES, Json
from tools import TOOLS, City

STRUCTURED: Json = {"native": NativeOutput(City), "tool": ToolOutput(City), None: str}
SHARED: Json = {"temperature": 0.2, "top_p": 0.9, "max_tokens": 12, "extra_body": {"vendor_option": 1}}


class PydanticAI(Client):
    make_client: Any
    make_model: Any

    def run_turn(self, history: History, turn: Turn) -> tuple[Json, History]:
        agent: Any = Agent(
            tools=list(TOOLS.values()) if turn.tools else [],
            instructions=turn.system,
            output_type=STRUCTURED[turn.structured],
            model_settings=turn.options,
            retries=0,
        )
        prompt: Any = [turn.text, BinaryContent(turn.image, media_type="image/png")] if turn.image else turn.text
        return asyncio.run(self.ask(agent, prompt, history, turn.stream))

    async def ask(self, agent: Any, prompt: Any, history: History, stream: bool) -> tuple[Json, History]:
        async with self.make_client(self.url) as client:
            model = self.make_model(self.model, client)
            if stream:
                async with agent.run_stream(prompt, message_history=history, model=model) as result:
                    output = await result.get_output()
            else:
                result = await agent.run(prompt, message_history=history, model=model)
                output = result.output
        parts = [part for message in result.new_messages() for part in message.parts]
        reasons = [message.finish_reason for message in result.new_messages() if message.kind == "response"]
        usage = result.usage
        answer = {
            "output": output.model_dump() if isinstance(output, City) else output,
            "parts": [
                [part.part_kind, getattr(part, "content", None) or getattr(part, "args", None)]
                for part in parts
                if part.part_kind in ("text", "thinking", "tool-call", "tool-return")
            ],
            "finish": reasons,
            "usage": [usage.requests, usage.input_tokens, usage.output_tokens],
        }
        return answer, result.all_messages()


def openai_client(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30)


def anthropic_client(url: str) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=url, api_key="none", max_retries=0, timeout=30)


class PydanticAIChat(PydanticAI):
    name, wire = "pydantic-ai-chat", CHAT
    options: Json = SHARED | {
        "stop_sequences": ["STOP"],
        "seed": 7,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "logit_bias": {"50256": -1},
        "openai_user": "ada",
        "openai_reasoning_effort": "low",
        "openai_service_tier": "default",
        "openai_prompt_cache_key": "terse",
    }
    cannot = {"thinking": "the API does not return it"}
    make_client = staticmethod(openai_client)
    make_model = staticmethod(lambda name, client: OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client)))


class PydanticAIResponses(PydanticAI):
    name, wire = "pydantic-ai-responses", RESPONSES
    options: Json = SHARED | {"openai_user": "ada", "openai_service_tier": "default", "openai_truncation": "auto"}
    thinking: Json = {"openai_reasoning_effort": "low"}
    make_client = staticmethod(openai_client)
    make_model = staticmethod(lambda name, client: OpenAIResponsesModel(name, provider=OpenAIProvider(openai_client=client)))


class PydanticAIAnthropic(PydanticAI):
    name, wire = "pydantic-ai-anthropic", ANTHROPIC
    options: Json = SHARED | {"stop_sequences": ["STOP"], "anthropic_metadata": {"user_id": "ada"}}
    thinking: Json = {"anthropic_thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
    make_client = staticmethod(anthropic_client)
    make_model = staticmethod(lambda name, client: AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client)))


CLIENTS = [PydanticAIChat, PydanticAIResponses, PydanticAIAnthropic]
