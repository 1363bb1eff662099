"""The packages `langchain-openai`, on both of OpenAI's APIs, and `langchain-anthropic`."""

from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI

from cases import Client, History, Turn
from conversation import ANTHROPIC, CHAT, RESPONSES, Json
from tools import TOOLS, City


class LangChain(Client):
    def make_model(self, options: Json) -> Any:
        raise NotImplementedError

    def run_turn(self, history: History, turn: Turn) -> tuple[Json, History]:
        content: Any = turn.text
        if turn.image:
            picture = {"type": "image", "base64": turn.image_base64, "mime_type": "image/png"}
            content = [{"type": "text", "text": turn.text}, picture]
        history = [*history, HumanMessage(content)]
        options = dict(turn.options)
        binding = {key: options.pop(key) for key in ("tool_choice", "parallel_tool_calls") if key in options}
        model = self.make_model(options)
        before = [SystemMessage(turn.system)] if turn.system else []
        if turn.structured:
            method = "json_schema" if turn.structured == "native" else "function_calling"
            done = model.with_structured_output(City, method=method, include_raw=True).invoke(before + history)
            raw = done["raw"]
            history += [raw, *(ToolMessage("Noted.", tool_call_id=call["id"]) for call in raw.tool_calls)]
            return {"parsed": done["parsed"].model_dump(), "steps": [describe(raw)]}, history
        if turn.tools:
            model = model.bind_tools(list(TOOLS.values()), **binding)
        steps = []
        while True:
            message = self.stream(model, before + history) if turn.stream else model.invoke(before + history)
            history.append(message)
            steps.append(describe(message))
            for call in message.tool_calls:
                history.append(ToolMessage(TOOLS[call["name"]](**call["args"]), tool_call_id=call["id"]))
            if not message.tool_calls:
                return {"steps": steps}, history

    def stream(self, model: Any, messages: list[Any]) -> AIMessage:
        whole: Any = None
        for chunk in model.stream(messages):
            whole = chunk if whole is None else whole + chunk
        return whole


def describe(message: Any) -> Json:
    about = message.response_metadata
    finish = about.get("finish_reason") or about.get("stop_reason") or about.get("status")
    usage = message.usage_metadata
    return {
        "text": str(message.text),
        "calls": [[call["name"], call["args"]] for call in message.tool_calls],
        "finish": finish,
        "usage": [usage["input_tokens"], usage["output_tokens"]],
    }


class LangChainChat(LangChain):
    name, wire = "langchain-openai-chat", CHAT
    options: Json = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 12,
        "stop": ["STOP"],
        "seed": 7,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "logit_bias": {"50256": -1},
        "service_tier": "default",
        "model_kwargs": {"user": "ada"},
    }
    cannot = {"thinking": "the API does not return it"}

    def make_model(self, options: Json) -> Any:
        return ChatOpenAI(
            model=self.model, base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=30, stream_usage=True, **options
        )


class LangChainResponses(LangChain):
    name, wire = "langchain-openai-responses", RESPONSES
    options: Json = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 12,
        "service_tier": "default",
        "truncation": "auto",
        "store": False,
        "model_kwargs": {"user": "ada"},
    }
    thinking: Json = {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"], "store": False}

    def make_model(self, options: Json) -> Any:
        return ChatOpenAI(
            model=self.model, base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=30, use_responses_api=True, **options
        )


class LangChainAnthropic(LangChain):
    name, wire = "langchain-anthropic", ANTHROPIC
    options: Json = {"temperature": 0.2, "top_p": 0.9, "top_k": 5, "max_tokens": 12, "stop": ["STOP"]}
    no_tools: Json = {"tool_choice": {"type": "none"}}
    thinking: Json = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}

    def make_model(self, options: Json) -> Any:
        return ChatAnthropic(model=self.model, base_url=self.url, api_key="none", max_retries=0, timeout=30, **options)


CLIENTS = [LangChainChat, LangChainResponses, LangChainAnthropic]
