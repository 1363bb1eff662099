"""The package `anthropic`."""

from typing import Any

from anthropic import Anthropic

from cases import Client, History, Turn
from conversation import ANTHROPIC, Json
from tools import SCHEMA, TOOLS, City


class AnthropicMessages(Client):
    name, wire = "anthropic", ANTHROPIC
    options: Json = {
        "max_tokens": 12,
        "stop_sequences": ["STOP"],
        "metadata": {"user_id": "ada"},
        "service_tier": "auto",
        # The newest models take none of these, so the package has no names for them.
        "extra_body": {"temperature": 0.2, "top_p": 0.9, "top_k": 5},
    }
    no_tools: Json = {"tool_choice": {"type": "none"}}
    one_at_a_time: Json = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    thinking: Json = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
    # How often the package itself repeats a request that failed.
    retries = 0

    def connect(self, url: str, model: str) -> None:
        self.model, self.client = model, Anthropic(base_url=url, api_key="none", max_retries=self.retries, timeout=30)

    def run_turn(self, history: History, turn: Turn) -> tuple[Json, History]:
        content: Any = turn.text
        if turn.image:
            source = {"type": "base64", "media_type": "image/png", "data": turn.image_base64}
            content = [{"type": "image", "source": source}, {"type": "text", "text": turn.text}]
        if history and history[-1]["role"] == "user":
            # The results of calls that nobody continued: the text is sent with them.
            history = [*history[:-1], {"role": "user", "content": [*history[-1]["content"], {"type": "text", "text": turn.text}]}]
        else:
            history = [*history, {"role": "user", "content": content}]
        request: Json = {"model": self.model, "max_tokens": 1000} | turn.options
        if turn.system:
            request["system"] = turn.system
        if turn.tools:
            request["tools"] = [
                {"name": name, "description": tool.__doc__, "input_schema": SCHEMA} for name, tool in TOOLS.items()
            ]
        if turn.structured == "tool":
            request["tools"] = [{"name": "City", "description": City.__doc__, "input_schema": City.model_json_schema()}]
            request["tool_choice"] = {"type": "tool", "name": "City"}
        answer: Json = {"calls": [], "steps": []}
        while True:
            message = self.ask(request | {"messages": history}, turn.structured, turn.stream)
            history = [*history, {"role": "assistant", "content": message.content}]
            said = [[block.type, getattr(block, block.type, None)] for block in message.content if block.type != "tool_use"]
            step = {"content": said, "finish": message.stop_reason, "stop_sequence": message.stop_sequence}
            usage = {"input": message.usage.input_tokens, "output": message.usage.output_tokens}
            answer["steps"].append(step | {"usage": usage})
            calls = [block for block in message.content if block.type == "tool_use"]
            answer["calls"] += [[call.name, call.input] for call in calls]
            if calls:
                results = [
                    {"type": "tool_result", "tool_use_id": call.id}
                    | {"content": TOOLS[call.name](**call.input) if call.name in TOOLS else "Noted."}
                    for call in calls
                ]
                history.append({"role": "user", "content": results})
            if turn.structured == "native":
                answer["parsed"] = message.parsed_output.model_dump()
            if not calls or turn.structured:
                return answer, history

    def ask(self, request: Json, structured: str | None, stream: bool) -> Any:
        if structured == "native":
            return self.client.messages.parse(**request, output_format=City)
        if not stream:
            return self.client.messages.create(**request)
        with self.client.messages.stream(**request) as events:
            return events.get_final_message()


CLIENTS = [AnthropicMessages]
