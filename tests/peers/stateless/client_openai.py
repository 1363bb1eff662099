"""The package `openai`, on both of its APIs."""

import json
from typing import Any

import openai
from openai import OpenAI

from cases import Client, History, Turn
from conversation import CHAT, RESPONSES, Json
from tools import SCHEMA, TOOLS, City


class OpenAIClient(Client):
    # How often the package itself repeats a request that failed.
    retries = 0

    def connect(self, url: str, model: str) -> None:
        self.model, self.client = model, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=self.retries, timeout=30)


class OpenAIChat(OpenAIClient):
    name, wire = "openai-chat", CHAT
    options: Json = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 12,
        "stop": ["STOP"],
        "seed": 7,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "logit_bias": {"50256": -1},
        "user": "ada",
        "metadata": {"team": "red"},
        "service_tier": "default",
        "reasoning_effort": "low",
        "verbosity": "low",
        "prompt_cache_key": "terse",
        "safety_identifier": "ada-1",
        "store": False,
    }
    cannot = {"thinking": "the API does not return it"}

    def run_turn(self, history: History, turn: Turn) -> tuple[Json, History]:
        content: Any = turn.text
        if turn.image:
            content = [{"type": "text", "text": turn.text}, {"type": "image_url", "image_url": {"url": turn.image_url}}]
        history = [*history, {"role": "user", "content": content}]
        request: Json = {"model": self.model} | turn.options
        if turn.tools:
            request["tools"] = [
                {"type": "function", "function": {"name": name, "description": tool.__doc__, "parameters": SCHEMA}}
                for name, tool in TOOLS.items()
            ]
        if turn.structured == "tool":
            request["tools"] = [openai.pydantic_function_tool(City)]
            request["tool_choice"] = {"type": "function", "function": {"name": "City"}}
        answer: Json = {"calls": [], "steps": []}
        while True:
            messages = [{"role": "system", "content": turn.system}, *history] if turn.system else history
            message, finish, usage = self.ask(request | {"messages": messages}, turn.structured, turn.stream)
            history.append(message)
            shown = message if isinstance(message, dict) else message.to_dict()
            answer["steps"].append({"text": shown.get("content"), "finish": finish, "usage": [usage.prompt_tokens, usage.completion_tokens]})
            calls = shown.get("tool_calls") or []
            answer["calls"] += [[call["function"]["name"], call["function"]["arguments"]] for call in calls]
            for call in calls:
                name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                result = TOOLS[name](**arguments) if name in TOOLS else "Noted."
                history.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            if turn.structured == "native":
                answer["parsed"] = message.parsed.model_dump()
            if not calls or turn.structured:
                return answer, history

    def ask(self, request: Json, structured: str | None, stream: bool) -> tuple[Any, str, Any]:
        completions = self.client.chat.completions
        if not stream:
            done = completions.parse(**request, response_format=City) if structured == "native" else completions.create(**request)
            return done.choices[0].message, done.choices[0].finish_reason, done.usage
        message: Json = {"role": "assistant", "content": ""}
        calls: list[Json] = []
        finish, usage = "", None
        for chunk in completions.create(**request, stream=True, stream_options={"include_usage": True}):
            if chunk.usage:
                usage = chunk.usage
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                message["content"] += choice.delta.content or ""
                for piece in choice.delta.tool_calls or []:
                    if piece.id:
                        calls.append({"id": piece.id, "type": "function"})
                        calls[-1]["function"] = {"name": piece.function.name, "arguments": ""}
                    calls[-1]["function"]["arguments"] += piece.function.arguments or ""
        return message | ({"tool_calls": calls} if calls else {}), finish, usage


class OpenAIResponses(OpenAIClient):
    name, wire = "openai-responses", RESPONSES
    options: Json = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_output_tokens": 12,
        "user": "ada",
        "metadata": {"team": "red"},
        "service_tier": "default",
        "prompt_cache_key": "terse",
        "safety_identifier": "ada-1",
        "truncation": "auto",
        "text": {"verbosity": "low"},
        "store": False,
    }
    thinking: Json = {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"], "store": False}

    def run_turn(self, history: History, turn: Turn) -> tuple[Json, History]:
        content: Any = turn.text
        if turn.image:
            content = [{"type": "input_text", "text": turn.text}, {"type": "input_image", "image_url": turn.image_url, "detail": "auto"}]
        history = [*history, {"role": "user", "content": content}]
        request: Json = {"model": self.model} | turn.options
        if turn.system:
            request["instructions"] = turn.system
        if turn.tools:
            request["tools"] = [
                {"type": "function", "name": name, "description": tool.__doc__, "parameters": SCHEMA, "strict": True}
                for name, tool in TOOLS.items()
            ]
        if turn.structured == "tool":
            parameters = City.model_json_schema() | {"additionalProperties": False}
            request["tools"] = [{"type": "function", "name": "City", "parameters": parameters, "strict": True}]
            request["tool_choice"] = {"type": "function", "name": "City"}
        answer: Json = {"calls": [], "steps": []}
        while True:
            response = self.ask(request | {"input": history}, turn.structured, turn.stream)
            history = history + response.output
            reason = response.incomplete_details and response.incomplete_details.reason
            step = {"text": response.output_text, "status": response.status, "reason": reason}
            answer["steps"].append(step | {"usage": [response.usage.input_tokens, response.usage.output_tokens]})
            calls = [item for item in response.output if item.type == "function_call"]
            answer["calls"] += [[call.name, call.arguments] for call in calls]
            for call in calls:
                result = TOOLS[call.name](**json.loads(call.arguments)) if call.name in TOOLS else "Noted."
                history.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
            if turn.structured == "native":
                answer["parsed"] = response.output_parsed.model_dump()
            if not calls or turn.structured:
                return answer, history

    def ask(self, request: Json, structured: str | None, stream: bool) -> Any:
        if structured == "native":
            return self.client.responses.parse(**request, text_format=City)
        if not stream:
            return self.client.responses.create(**request)
        last: Any = None
        for event in self.client.responses.create(**request, stream=True):
            last = event
        return last.response


CLIENTS = [OpenAIChat, OpenAIResponses]
