"""Single requests with what clients send more rarely: the provider gets them from Turnwire as it gets them from the client.

Each request is sent as it stands, without a package. Known failures are in `expected_failures.txt`.
"""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import expected_failures
from cases import PIXEL
from compare import same_wire
from conversation import ANTHROPIC, CHAT, RESPONSES, Json
from fake_provider import PATHS, FakeProvider
from harness import MODELS, settings_of
from tools import SCHEMA
from turnwire_server import TurnwireServer

PNG = base64.b64encode(PIXEL).decode()
PNG_URL = f"data:image/png;base64,{PNG}"
PDF = base64.b64encode(b"%PDF-1.4\n%%EOF\n").decode()
MARK = {"cache_control": {"type": "ephemeral"}}
HI = {"role": "user", "content": "Hello."}
FUNCTION = {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}
CHAT_TOOL = {"type": "function", "function": FUNCTION}
CHAT_CALL = {"id": "call_7f3a9c51d2e84b60a1c3", "type": "function"} | {
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}
}
TOOL = {"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}
USE = {"type": "tool_use", "id": "toolu_7f3a9c51d2e84b60a1c3", "name": "get_weather", "input": {"city": "Paris"}}
ITEM = {"type": "function_call", "call_id": "call_7f3a9c51d2e84b60a1c3", "name": "get_weather", "arguments": '{"city":"Paris"}'}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}


def chat(*messages: Json, **more: Any) -> Json:
    return {"messages": list(messages or [HI])} | more


def responses(*items: Json, **more: Any) -> Json:
    return {"input": list(items or [HI])} | more


def anthropic(*messages: Json, **more: Any) -> Json:
    return {"max_tokens": 1000, "messages": list(messages or [HI])} | more


def user(*parts: Json) -> Json:
    return {"role": "user", "content": list(parts)}


def assistant(content: Any, **more: Any) -> Json:
    return {"role": "assistant", "content": content} | more


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words} | more


# Each one has a history of its own: one that another has, too, would be recognised, and only the log's form of it sent.
DETAILS: dict[str, dict[str, Json]] = {
    CHAT: {
        "system_in_the_middle": chat(
            {"role": "developer", "content": "Be terse."},
            {"role": "system", "content": "Be kind."},
            HI,
            assistant("Hello!"),
            {"role": "system", "content": "Be formal."},
            HI,
        ),
        "names": chat({"role": "user", "name": "ada", "content": "Hello."}),
        "several_texts": chat(user(text("One. "), text("Two."))),
        "ends_with_the_assistant": chat(HI, assistant("Hello, my")),
        "refusal": chat(HI, assistant(None, refusal="I cannot."), HI),
        "image_detail": chat(user(text("Look."), {"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}})),
        "audio": chat(user(text("Listen."), {"type": "input_audio", "input_audio": {"data": PDF, "format": "wav"}})),
        "file": chat(
            user(text("Read."), {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}})
        ),
        "file_id": chat(user(text("Read it."), {"type": "file", "file": {"file_id": "file-7f3a"}})),
        "result_in_parts": chat(
            HI,
            assistant(None, tool_calls=[CHAT_CALL]),
            {"role": "tool", "tool_call_id": CHAT_CALL["id"], "content": [text("Sunny"), text(" and warm")]},
            tools=[CHAT_TOOL],
        ),
        "user_after_results": chat(
            HI,
            assistant(None, tool_calls=[CHAT_CALL]),
            {"role": "tool", "tool_call_id": CHAT_CALL["id"], "content": "Sunny"},
            HI,
            tools=[CHAT_TOOL],
        ),
        "max_completion_tokens": chat(max_completion_tokens=500),
        "json_object": chat(response_format={"type": "json_object"}),
        "logprobs": chat(logprobs=True, top_logprobs=2),
        "custom_tool": chat(tools=[{"type": "custom", "custom": {"name": "run", "description": "Runs.", "format": GRAMMAR}}]),
        "tool_strict": chat(tools=[{"type": "function", "function": FUNCTION | {"strict": True}}], tool_choice="auto"),
        "parallel_calls": chat(tools=[CHAT_TOOL], parallel_tool_calls=True, tool_choice="auto"),
        "unknown_option": chat(vendor_option={"a": 1}),
        "cache_marks": chat({"role": "system", "content": [text("Be terse.") | MARK]}, HI),
    },
    RESPONSES: {
        "system_in_the_middle": responses(
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be terse."}]},
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
            HI,
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello!"}]},
            {"role": "system", "content": "Be formal."},
            HI,
            instructions="You are Friday.",
        ),
        "string": {"input": "Hello."},
        "file": responses(
            user({"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"})
        ),
        "file_id": responses(
            user(
                {"type": "input_text", "text": "Read them."},
                {"type": "input_file", "file_id": "file-7f3a"},
                {"type": "input_image", "file_id": "file-9c51", "detail": "low"},
            )
        ),
        "file_id_in_a_result": responses(
            {"role": "user", "content": "Fetch it."},
            ITEM,
            {"type": "function_call_output", "call_id": ITEM["call_id"], "output": [{"type": "input_file", "file_id": "file-7f3a"}]},
            tools=[{"type": "function", "strict": False} | FUNCTION],
        ),
        "local_shell_call": responses(
            {"role": "user", "content": "List."},
            {"type": "local_shell_call", "id": "lsh_1", "call_id": ITEM["call_id"], "status": "completed"}
            | {"action": {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": None}},
            {"type": "local_shell_call_output", "id": "lsh_1", "output": "a.txt"},
            tools=[{"type": "local_shell"}],
        ),
        "apply_patch_call": responses(
            {"role": "user", "content": "Patch."},
            {"type": "apply_patch_call", "id": "apc_1", "call_id": ITEM["call_id"], "status": "completed"}
            | {"operation": {"type": "delete_file", "path": "a.txt"}},
            {"type": "apply_patch_call_output", "call_id": ITEM["call_id"], "status": "completed"},
            tools=[{"type": "apply_patch"}],
        ),
        "image_detail": responses(user({"type": "input_image", "image_url": PNG_URL, "detail": "low"})),
        "result_with_image": responses(
            HI,
            ITEM,
            {"type": "function_call_output", "call_id": ITEM["call_id"], "output": [{"type": "input_image", "image_url": PNG_URL}]},
            tools=[{"type": "function", "strict": False} | FUNCTION],
        ),
        "user_after_results": responses(
            HI,
            ITEM,
            {"type": "function_call_output", "call_id": ITEM["call_id"], "output": "Sunny"},
            HI,
            tools=[{"type": "function", "strict": False} | FUNCTION],
        ),
        # Reasoning is not compared: another conversation with these words would be continued without it.
        "reasoning_items": responses(
            user({"type": "input_text", "text": "Think."}),
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "A greeting."}], "encrypted_content": "sealed"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello!"}]},
            HI,
            store=False,
            include=["reasoning.encrypted_content"],
            reasoning={"effort": "low", "summary": "auto"},
        ),
        "custom_tool": responses(
            HI,
            {"type": "custom_tool_call", "call_id": ITEM["call_id"], "name": "run", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": ITEM["call_id"], "output": "a.txt"},
            tools=[{"type": "custom", "name": "run", "description": "Runs.", "format": GRAMMAR}],
        ),
        "namespace": responses(
            tools=[{"type": "namespace", "name": "agents", "description": "Others.", "tools": [{"type": "function"} | FUNCTION]}]
        ),
        "web_search": responses(tools=[{"type": "web_search", "external_web_access": True}]),
        "local_shell": responses(tools=[{"type": "local_shell"}]),
        "json_object": responses(text={"format": {"type": "json_object"}}),
        "logprobs": responses(top_logprobs=2, include=["message.output_text.logprobs"]),
        "limits": responses(max_tool_calls=3, max_output_tokens=500, truncation="auto", tools=[{"type": "function"} | FUNCTION]),
        "unknown_option": responses(vendor_option={"a": 1}),
        "unknown_item": responses({"type": "vendor_item", "value": 1}, HI),
        "client_metadata": responses(prompt_cache_key="abc", client_metadata={"thread_id": "abc"}),
    },
    ANTHROPIC: {
        "system_in_the_middle": anthropic(
            HI, assistant("Hello!"), {"role": "system", "content": [text("Be formal.")]}, HI, system=[text("A."), text("B.")]
        ),
        "cache_marks": anthropic(
            HI, assistant("Hello!"), user(text("Hi.", **MARK)), system=[text("Be terse.", **MARK)], tools=[TOOL | MARK]
        ),
        "several_texts": anthropic(user(text("One. "), text("Two."))),
        "users_in_a_row": anthropic(HI, HI),
        "ends_with_the_assistant": anthropic(HI, assistant("Hello, my")),
        "document": anthropic(
            user(
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}, "title": "A"}
                | {"citations": {"enabled": True}},
                text("Read."),
            )
        ),
        "file_id": anthropic(user({"type": "document", "source": {"type": "file", "file_id": "file_7f3a"}}, text("Read it."))),
        "failed_result": anthropic(
            HI, assistant([USE]), user({"type": "tool_result", "tool_use_id": USE["id"], "is_error": True, "content": "No."}), tools=[TOOL]
        ),
        "result_with_image": anthropic(
            HI,
            assistant([USE]),
            user(
                {"type": "tool_result", "tool_use_id": USE["id"]}
                | {"content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]}
            ),
            tools=[TOOL],
        ),
        "user_after_results": anthropic(
            HI, assistant([USE]), user({"type": "tool_result", "tool_use_id": USE["id"], "content": "Sunny"}, text("And?")), tools=[TOOL]
        ),
        "thinking_in_history": anthropic(
            HI,
            assistant([{"type": "thinking", "thinking": "A greeting.", "signature": "signed"}, text("Hello, you!")]),
            HI,
            thinking={"type": "adaptive", "display": "summarized"},
        ),
        "redacted_thinking": anthropic(HI, assistant([{"type": "redacted_thinking", "data": "sealed"}, text("Hello, friend!")]), HI),
        "effort": anthropic(output_config={"effort": "low"}),
        "context_management": anthropic(context_management={"edits": [{"type": "clear_tool_uses_20250919"}]}),
        "deferred_tool": anthropic(tools=[TOOL | {"defer_loading": True}]),
        "web_search": anthropic(tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]),
        "unknown_option": anthropic(vendor_option={"a": 1}),
    },
}  # fmt: skip


# They share the scene.
pytestmark = pytest.mark.xdist_group("wire details")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[FakeProvider, str]]]:
    """A provider, and for each wire a Turnwire in front of it."""
    provider, servers = FakeProvider(), []
    provider.counts_attempts = False
    found = {"": (provider, provider.url)}
    for wire in DETAILS:
        servers.append(TurnwireServer(tmp_path_factory.mktemp(wire), settings=settings_of(wire, MODELS[wire], provider.url)))
        found[wire] = (provider, servers[-1].url)
    yield found
    for server in servers:
        server.stop()
    provider.close()


def post(url: str, wire: str, body: Json) -> tuple[int, Json]:
    [path] = [path for path, of in PATHS.items() if of == wire]
    data = json.dumps({"model": MODELS[wire]} | body).encode()
    headers = {"content-type": "application/json"}
    if "context_management" in body:
        headers["anthropic-beta"] = "context-management-2025-06-27"
    request = urllib.request.Request(url + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def cells() -> list[Any]:
    found = []
    for wire, details in DETAILS.items():
        for name in details:
            cell = f"{wire} {name} {wire} detail"
            found.append(pytest.param(wire, name, id=cell.replace(" ", "/"), marks=expected_failures.marks_of(cell)))
    return found


@pytest.mark.parametrize(("wire", "name"), cells())
def test_a_detail_reaches_the_provider(wire: str, name: str, scene: Any, record_property: Any) -> None:
    record_property("cell", f"{wire} {name} {wire} detail")
    provider, straight = scene[""]
    provider.forget()
    wanted_status, wanted = post(straight, wire, DETAILS[wire][name])
    [control] = provider.log
    provider.forget()
    status, found = post(scene[wire][1], wire, DETAILS[wire][name])
    assert status == wanted_status, f"status {status} instead of {wanted_status}: {found.get('error') or found}"
    assert len(provider.log) == 1, f"the provider gets {len(provider.log)} requests instead of 1"
    problems = same_wire(control, provider.log[0])
    problems += [] if says(wire, found) == says(wire, wanted) else [f"the answer is {says(wire, found)}"]
    assert not problems, "\n".join(problems)


def says(wire: str, answer: Json) -> Any:
    """The text of an answer, and its log probabilities."""
    if wire == CHAT:
        [choice] = answer["choices"]
        return choice["message"].get("content"), choice.get("logprobs")
    blocks = answer["content"] if wire == ANTHROPIC else [part for item in answer["output"] for part in item.get("content") or []]
    return [(block.get("text"), block.get("logprobs")) for block in blocks]


def test_the_provider_takes_every_detail(scene: Any) -> None:
    provider, straight = scene[""]
    provider.forget()
    for wire, details in DETAILS.items():
        for name, body in details.items():
            status, answer = post(straight, wire, body)
            assert status == 200, f"{wire} {name}: {answer}"
