"""Reads a request of any wire into one form: what was said, the tools that are offered, and the options.

The fake provider answers from this form, and requests on different wires are compared in it. Only the standard library
is used: the Node clients' tests start the fake provider too.
"""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic"
WIRES = [CHAT, RESPONSES, ANTHROPIC]


class Invalid(Exception):
    """A request that a real provider answers with 400."""


@dataclass
class Conversation:
    # What was said, in order. `kind` is system, user, image, file, thinking, text (the assistant's), audio, call,
    # result or other.
    items: list[Json] = field(default_factory=list)
    tools: list[Json] = field(default_factory=list)
    options: Json = field(default_factory=dict)
    # The number of each call id: ids differ between two runs, their order does not.
    calls: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, **fields: Any) -> None:
        self.items.append({"kind": kind} | fields)

    def add_text(self, kind: str, text: str) -> None:
        """Adjacent texts of one kind are one text: clients join and split them."""
        if text and self.items and self.items[-1]["kind"] == kind and kind != "system":
            self.items[-1]["text"] += text
        elif text:
            self.add(kind, text=text)

    def add_system(self, content: Any) -> None:
        """A system prompt may be several blocks, which are lines of one text on a wire that has only text there."""
        texts = [content or ""] if content is None or isinstance(content, str) else [read_text([part]) for part in content]
        self.add_text("system", " ".join(" ".join(texts).split()))

    def add_call(self, id: str, name: str, arguments: Any) -> None:
        number = self.calls[id] = len([item for item in self.items if item["kind"] == "call"]) + 1
        self.add("call", call=number, name=name, input=parse(arguments))

    def add_result(self, id: str, text: str) -> None:
        if id not in self.calls:
            raise Invalid(f"a result for the call {id}, which is not in the conversation before it")
        self.add("result", call=self.calls[id], text=text)

    @property
    def said(self) -> list[Json]:
        """Without system prompts and thinking."""
        return [item for item in self.items if item["kind"] not in ("system", "thinking")]

    def check_results(self) -> None:
        """Every call has its result before anything else is said."""
        waiting: list[int] = []
        for item in self.items:
            if item["kind"] == "call":
                waiting.append(item["call"])
            elif item["kind"] == "result":
                if item["call"] not in waiting:
                    raise Invalid(f"call {item['call']} has two results")
                waiting.remove(item["call"])
            elif item["kind"] == "user" and waiting:
                raise Invalid(f"calls without a result: {waiting}")
        if waiting:
            raise Invalid(f"calls without a result: {waiting}")


def parse(arguments: Any) -> Any:
    """A call's input: JSON text on OpenAI's wires, which may be written with other white space."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def describe_bytes(data: str, media_type: str | None) -> str:
    raw = base64.b64decode(data)
    return f"{media_type}, {len(raw)} bytes, {hashlib.sha256(raw).hexdigest()[:8]}"


def describe_url(url: str) -> str:
    if not url.startswith("data:"):
        return url
    head, data = url.removeprefix("data:").split(",", 1)
    return describe_bytes(data, head.removesuffix(";base64"))


def describe_file(part: Json) -> str:
    return part["file_id"] if "file_id" in part else describe_url(part["file_data"])


def read_request(wire: str, body: Json) -> Conversation:
    found = Conversation()
    {CHAT: read_chat, RESPONSES: read_responses, ANTHROPIC: read_anthropic}[wire](body, found)
    found.options = {key: value for key, value in found.options.items() if value is not None}
    found.check_results()
    return found


def read_text(content: Any) -> str:
    """The text of a string or of a list of blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text") or part.get("refusal") or f"({part['type']})" for part in content)


# ---- chat completions ----


def read_chat(body: Json, found: Conversation) -> None:
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        if role in ("system", "developer"):
            found.add_system(content)
        elif role == "user":
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                read_chat_part(part, found)
        elif role == "assistant":
            found.add_text("thinking", message.get("reasoning_content") or "")
            found.add_text("text", read_text(content) or message.get("refusal") or "")
            if message.get("audio"):
                found.add("audio", audio=message["audio"]["id"])
            for call in message.get("tool_calls") or []:
                made = call[call["type"]]
                found.add_call(call["id"], made["name"], made["arguments"] if "arguments" in made else {"text": made["input"]})
        elif role == "tool":
            found.add_result(message["tool_call_id"], read_text(content))
        else:
            raise Invalid(f"unknown role {role}")
    for tool in body.get("tools") or []:
        function = tool[tool["type"]]
        found.tools.append(describe_tool(function["name"], function.get("description"), function.get("parameters")))
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        choice = {"name": choice[choice["type"]]["name"]}
    written = body.get("response_format") or {}
    form: Any = {"type": written.get("type")} if written else None
    if form and written["type"] == "json_schema":
        form |= {key: written["json_schema"].get(key) for key in ("name", "schema", "strict")}
    stop = body.get("stop")
    found.options = {key: body.get(key) for key in SHARED_OPTIONS} | {
        "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens"),
        "stop": [stop] if isinstance(stop, str) else stop,
        "tool_choice": choice,
        "format": form,
        "effort": body.get("reasoning_effort"),
        "verbosity": body.get("verbosity"),
    }


def read_chat_part(part: Json, found: Conversation) -> None:
    if part["type"] == "text":
        found.add_text("user", part["text"])
    elif part["type"] == "image_url":
        found.add("image", image=describe_url(part["image_url"]["url"]))
    elif part["type"] == "file":
        found.add("file", file=describe_file(part["file"]))
    else:
        found.add("file", file=part["type"])


# ---- Responses ----


def read_responses(body: Json, found: Conversation) -> None:
    found.add_system(body.get("instructions"))
    given = body["input"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        read_responses_item(item, found)
    for tool in body.get("tools") or []:
        found.tools.append(describe_tool(tool.get("name", tool["type"]), tool.get("description"), tool.get("parameters")))
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        choice = {"name": choice["name"]}
    text, reasoning = body.get("text") or {}, body.get("reasoning") or {}
    form = text.get("format")
    if form:
        form = {"type": form["type"]} | {key: form.get(key) for key in ("name", "schema", "strict") if "schema" in form}
    found.options = {key: body.get(key) for key in SHARED_OPTIONS} | {
        "max_tokens": body.get("max_output_tokens"),
        "tool_choice": choice,
        "format": None if form == {"type": "text"} else form,
        "effort": reasoning.get("effort"),
        "verbosity": text.get("verbosity"),
    }


def read_responses_item(item: Json, found: Conversation) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        role, content = item["role"], item["content"]
        if role in ("system", "developer"):
            found.add_system(content)
        elif role == "assistant":
            found.add_text("text", read_text(content))
        else:
            for part in [{"type": "input_text", "text": content}] if isinstance(content, str) else content:
                if part["type"] == "input_text":
                    found.add_text("user", part["text"])
                elif part["type"] == "input_image":
                    found.add("image", image=part.get("file_id") or describe_url(part["image_url"]))
                elif part["type"] == "input_file":
                    found.add("file", file=describe_file(part))
                else:
                    found.add("other", type=part["type"])
    elif kind == "function_call":
        found.add_call(item["call_id"], item["name"], item["arguments"])
    elif kind == "custom_tool_call":
        found.add_call(item["call_id"], item["name"], {"text": item["input"]})
    elif kind in ("function_call_output", "custom_tool_call_output"):
        found.add_result(item["call_id"], read_text(item["output"]))
    elif kind == "reasoning":
        found.add_text("thinking", "".join(part["text"] for part in item.get("summary") or []))
    else:
        found.add("other", type=kind)


# ---- Anthropic Messages ----


def read_anthropic(body: Json, found: Conversation) -> None:
    if "max_tokens" not in body:
        raise Invalid("max_tokens: field required")
    found.add_system(body.get("system"))
    for message in body["messages"]:
        role, content = message["role"], message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            read_anthropic_block(role, block, found)
    for tool in body.get("tools") or []:
        found.tools.append(describe_tool(tool["name"], tool.get("description"), tool.get("input_schema")))
    choice = body.get("tool_choice") or {}
    kinds = {"auto": "auto", "none": "none", "any": "required", "tool": {"name": choice.get("name")}}
    config = body.get("output_config") or {}
    form = config.get("format") or body.get("output_format")
    single = choice.get("disable_parallel_tool_use")
    found.options = {key: body.get(key) for key in ("temperature", "top_p", "top_k", "max_tokens", "service_tier")} | {
        "stop": body.get("stop_sequences"),
        "tool_choice": kinds[choice["type"]] if choice else None,
        "parallel_tool_calls": None if single is None else not single,
        "format": form and {"type": form["type"], "name": None, "schema": form.get("schema"), "strict": None},
        "effort": config.get("effort"),
        "user": (body.get("metadata") or {}).get("user_id"),
        "thinking": body.get("thinking"),
    }


def read_anthropic_block(role: str, block: Json, found: Conversation) -> None:
    kind = block["type"]
    if role == "system":
        found.add_system([block])
    elif kind == "text":
        found.add_text("user" if role == "user" else "text", block["text"])
    elif kind in ("image", "document"):
        source = block["source"]
        if source["type"] == "file":
            about = source["file_id"]
        else:
            about = source["url"] if source["type"] == "url" else describe_bytes(source["data"], source["media_type"])
        found.add("image" if kind == "image" else "file", **{"image" if kind == "image" else "file": about})
    elif kind == "tool_use":
        found.add_call(block["id"], block["name"], block["input"])
    elif kind == "tool_result":
        found.add_result(block["tool_use_id"], read_text(block.get("content")))
    elif kind == "thinking":
        if not block.get("signature"):
            raise Invalid("thinking without its signature")
        found.add_text("thinking", block["thinking"])
    else:
        found.add("other", type=kind)


def describe_tool(name: str, description: str | None, schema: Json | None) -> Json:
    return {"name": name, "description": description or "", "schema": schema or {}}


# Options of both OpenAI wires that have the same name and meaning.
SHARED_OPTIONS = [
    "temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "parallel_tool_calls", "user",
    "metadata", "service_tier", "prompt_cache_key", "safety_identifier",
]  # fmt: skip

# The options that each wire can hold: two requests on different wires are compared in what both can hold.
OPTIONS = {
    CHAT: {*SHARED_OPTIONS, "max_tokens", "stop", "tool_choice", "format", "effort", "verbosity"},
    RESPONSES: {
        "temperature", "top_p", "parallel_tool_calls", "user", "metadata", "service_tier", "prompt_cache_key",
        "safety_identifier", "max_tokens", "tool_choice", "format", "effort", "verbosity",
    },  # fmt: skip
    ANTHROPIC: {
        "temperature", "top_p", "top_k", "max_tokens", "stop", "tool_choice", "parallel_tool_calls", "format", "effort",
        "user", "thinking",
    },  # fmt: skip
}  # fmt: skip
