"""A model provider for tests: OpenAI chat completions, OpenAI Responses and Anthropic Messages, streamed and not.

It logs each request, and its answer follows from the conversation that it is shown: a lost turn changes the answer.

| the request | the answer |
|---|---|
| ends with tool results | text that quotes them; or the forced tool, if a tool is required |
| forces a tool (`required`, or a name) | a call of that tool, with an input that fits its schema |
| the last user message says `[NAME VALUE]`, once or several times, and NAME is offered | these calls; those after ", then " follow the results of those before |
| asks for JSON | JSON that fits the schema |
| anything else | text with the number of items, their digest, and what the user said; images are named by their size |

`max_tokens` (in words) and stop sequences cut the text. The same request again gets an answer that says so. A request that
a real provider refuses (a result without its call, a call without its result) is refused.

By hand: `python fake_provider.py 4010`, then `GET /log` for what it saw, `DELETE /log` to forget it.
"""

import base64
import hashlib
import json
import re
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from conversation import ANTHROPIC, CHAT, RESPONSES, Conversation, Invalid, Json, read_request

PATHS = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": ANTHROPIC}
# The headers of a request that change what a provider does.
HEADERS = ["anthropic-beta", "anthropic-version", "openai-beta", "authorization", "x-api-key", "user-agent"]
# Elements that programs add to user messages and results.
CONTEXT_TAGS = ["system-reminder", "environment_context", "turn_context"]
# What the model thinks, where the request turns thinking on.
THOUGHT = "The user wants an answer."


@dataclass
class Call:
    name: str
    arguments: str
    id: str = field(default_factory=lambda: secrets.token_hex(12))


@dataclass
class Answer:
    """What the model says, on no wire yet."""

    text: str
    calls: list[Call]
    # stop, length, tool_calls, or stop_sequence (Anthropic's wire alone tells it from stop).
    finish: str
    stop_sequence: str | None
    input_tokens: int
    output_tokens: int
    thinking: str = ""
    id: str = field(default_factory=lambda: secrets.token_hex(12))


def sample(schema: Json, name: str, root: Json) -> Any:
    """A value that fits a schema: the same for the same schema."""
    if "$ref" in schema:
        target: Any = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        return sample(target, name, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return sample(schema[key][0], name, root)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        return {key: sample(value, key, root) for key, value in schema.get("properties", {}).items()}
    if kind == "array":
        return [sample(schema.get("items", {}), name, root)]
    return {"integer": 7, "number": 1.5, "boolean": True, "null": None}.get(str(kind), f"some {name}")


def without_context(text: str) -> str:
    """A text without the elements that programs add."""
    return re.sub(rf"\s*<({'|'.join(CONTEXT_TAGS)})>.*?</\1>", "", text, flags=re.DOTALL)


def next_calls(said: list[Json], offered: Json) -> list[Call]:
    """The calls that the last user message asks for and that were not made yet."""
    users = [index for index, item in enumerate(said) if item["kind"] == "user"]
    if not users:
        return []
    made = len([item for item in said[users[-1] :] if item["kind"] == "call"])
    for step in said[users[-1]]["text"].split(", then "):
        wanted = [(name, value) for name, value in re.findall(r"\[(\w+) ([^\]]*)\]", step) if name in offered]
        if wanted and made <= 0:
            return [Call(name, json.dumps(call_input(offered[name], value))) for name, value in wanted]
        made -= len(wanted)
    return []


def call_input(schema: Json, value: str) -> Json:
    """An input whose first required field has this value."""
    fields = schema.get("properties", {"value": {}})
    required = schema.get("required") or list(fields)[:1]
    others = {name: sample(fields[name], name, schema) for name in required[1:]}
    return {required[0]: value} | others


def compose(shown: list[Json], seen: Conversation, attempt: int, stable: Callable[[str], str]) -> Answer:
    """The answer depends on the items that are `shown`. `stable` replaces what differs from run to run."""
    digest = hashlib.sha256(stable(json.dumps(shown, sort_keys=True)).encode()).hexdigest()[:8]
    said = [item | {"text": without_context(item["text"])} if item["kind"] == "user" else item for item in seen.said]
    said = [item for item in said if item["kind"] != "user" or item["text"].strip()]
    last = said[-1] if said else {"kind": "nothing"}
    results = []
    for item in reversed(said):
        if item["kind"] != "result":
            break
        results.insert(0, without_context(item["text"]))
    words = last.get("text", "") if last["kind"] == "user" else ""
    if last["kind"] in ("image", "file"):
        words = " ".join(item["text"] for item in said[-3:] if item["kind"] == "user")

    offered = {tool["name"]: tool["schema"] for tool in seen.tools}
    choice = seen.options.get("tool_choice", "auto" if offered else "none")
    if isinstance(choice, dict) and choice["name"] not in offered:
        raise Invalid(f"tool_choice names {choice['name']}, which is not among the tools")
    if choice == "required" and not offered:
        raise Invalid("tool_choice needs tools")
    calls, text = [], ""
    if choice != "none":
        calls = next_calls(said, offered)
        if isinstance(choice, dict):
            calls = [call for call in calls if call.name == choice["name"]] or [forced(choice["name"], offered)]
        elif choice == "required" and not calls:
            calls = [forced(list(offered)[-1], offered)]
    if seen.options.get("parallel_tool_calls") is False:
        calls = calls[:1]

    form = seen.options.get("format")
    if calls:
        text = f"Calling {len(calls)} ({digest})." if choice == "auto" else ""
    elif form and form["type"] == "json_schema":
        text = json.dumps(sample(form["schema"], "value", form["schema"]))
    elif form and form["type"] == "json_object":
        text = json.dumps({"items": len(shown), "digest": digest})
    elif results:
        text = f"The results are {' and '.join(results)}. Seen {len(shown)} items, {digest}."
    else:
        files = [item.get("image") or item.get("file") for item in said if item["kind"] in ("image", "file")]
        text = f"Seen {len(shown)} items, {digest}. You said: {words}"
        text += "".join(f" There is {file}." for file in files)
    if attempt > 1 and not form and not calls:
        text += f" This is answer {attempt}."

    finish, hit = "tool_calls" if calls else "stop", None
    if not calls:
        for stop in seen.options.get("stop") or []:
            if stop in text:
                text, finish, hit = text[: text.index(stop)], "stop_sequence", stop
        pieces = re.findall(r"\S+\s*", text)
        limit = seen.options.get("max_tokens") or len(pieces)
        if len(pieces) > limit:
            text, finish, hit = "".join(pieces[:limit]).rstrip(), "length", None
    size = sum(len(json.dumps(item)) for item in shown) + sum(len(tool["name"]) for tool in seen.tools)
    made = len(text.split()) + sum(len(call.arguments) for call in calls)
    thinking = THOUGHT if (seen.options.get("thinking") or {}).get("type") in ("enabled", "adaptive") else ""
    return Answer(text, calls, finish, hit, size // 4, made, thinking)


def forced(name: str, offered: Json) -> Call:
    return Call(name, json.dumps(sample(offered[name], "value", offered[name])))


def pieces_of(text: str) -> list[str]:
    """A text as a model streams it: one word and a half at a time, so that cuts fall into words."""
    return [text[at : at + 9] for at in range(0, len(text), 9)]


def logprobs_of(text: str, count: int) -> list[Json]:
    """The log probabilities of a text: a piece is a token, and there are `count` alternatives."""
    tokens = []
    for piece in pieces_of(text):
        token = {"token": piece, "logprob": -len(piece) / 16, "bytes": list(piece.encode())}
        tokens.append(token | {"top_logprobs": [token | {"token": f"{piece}{index}"} for index in range(count)]})
    return tokens


# ---- chat completions ----


def chat_logprobs(text: str, body: Json) -> Json | None:
    if not body.get("logprobs") or not text:
        return None
    return {"content": logprobs_of(text, body.get("top_logprobs") or 0), "refusal": None}


def chat_body(answer: Answer, body: Json) -> Json:
    message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.calls:
        message["tool_calls"] = [
            {"id": f"call_{call.id}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ]
    if speaks(body):
        message |= {"content": None, "audio": spoken(answer)}
    choice = {"index": 0, "message": message, "logprobs": chat_logprobs(answer.text, body), "finish_reason": chat_finish(answer)}
    return chat_head(answer, body, "chat.completion") | {"choices": [choice], "usage": chat_usage(answer)}


def speaks(body: Json) -> bool:
    return "audio" in (body.get("modalities") or [])


def spoken(answer: Answer) -> Json:
    """The answer as audio. Its bytes are the text."""
    digest = hashlib.sha256(answer.text.encode()).hexdigest()[:12]
    data = base64.b64encode(answer.text.encode()).decode()
    return {"id": f"audio_{digest}", "expires_at": 1790003600, "data": data, "transcript": answer.text}


def chat_head(answer: Answer, body: Json, kind: str) -> Json:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": 1790000000, "model": body["model"]}


def chat_finish(answer: Answer) -> str:
    return "stop" if answer.finish == "stop_sequence" else answer.finish


def chat_usage(answer: Answer) -> Json:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }


def chat_stream(answer: Answer, body: Json) -> Iterator[tuple[str | None, Json | str]]:
    head = chat_head(answer, body, "chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> tuple[None, Json]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        if logprobs := chat_logprobs(delta.get("content") or "", body):
            choice["logprobs"] = logprobs
        return None, head | {"choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    if speaks(body):
        audio = spoken(answer)
        yield chunk({"audio": {"id": audio["id"]}})
        for at, piece in enumerate(pieces_of(audio["transcript"])):
            yield chunk({"audio": {"transcript": piece}})
            yield chunk({"audio": {"data": audio["data"][at * 12 : at * 12 + 12]}})
        yield chunk({"audio": {"expires_at": audio["expires_at"]}})
    for piece in pieces_of("" if speaks(body) else answer.text):
        yield chunk({"content": piece})
    for index, call in enumerate(answer.calls):
        start = {"index": index, "id": f"call_{call.id}", "type": "function"}
        yield chunk({"tool_calls": [start | {"function": {"name": call.name, "arguments": ""}}]})
        for piece in pieces_of(call.arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, chat_finish(answer))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield None, head | {"choices": [], "usage": chat_usage(answer)}
    yield None, "[DONE]"


# ---- Responses ----


def responses_logprobs(text: str, body: Json) -> list[Json]:
    if "message.output_text.logprobs" not in (body.get("include") or []):
        return []
    return logprobs_of(text, body.get("top_logprobs") or 0)


def responses_output(answer: Answer, body: Json) -> list[Json]:
    output: list[Json] = []
    if (body.get("reasoning") or {}).get("effort"):
        item = {"id": f"rs_{answer.id}", "type": "reasoning", "summary": []}
        if "reasoning.encrypted_content" in (body.get("include") or []):
            item["encrypted_content"] = f"sealed {answer.input_tokens}"
        output.append(item)
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        content[0]["logprobs"] = responses_logprobs(answer.text, body)
        message = {"id": f"msg_{answer.id}", "type": "message", "status": "completed", "role": "assistant"}
        output.append(message | {"content": content})
    for call in answer.calls:
        item = {"id": f"fc_{call.id}", "type": "function_call", "status": "completed", "call_id": f"call_{call.id}"}
        output.append(item | {"name": call.name, "arguments": call.arguments})
    return output


def responses_body(answer: Answer, body: Json, output: list[Json] | None = None, status: str = "") -> Json:
    cut = answer.finish == "length"
    status = status or ("incomplete" if cut else "completed")
    usage = {
        "input_tokens": answer.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": 1790000000,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut and status != "in_progress" else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": body["model"],
        "output": responses_output(answer, body) if output is None else output,
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": body.get("previous_response_id"),
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
        "truncation": body.get("truncation", "disabled"),
        "usage": None if status == "in_progress" else usage,
        "user": body.get("user"),
    }


def responses_stream(answer: Answer, body: Json) -> Iterator[tuple[str | None, Json | str]]:
    number = 0

    def event(kind: str, **fields: Any) -> tuple[str, Json]:
        nonlocal number
        number += 1
        return kind, {"type": kind, "sequence_number": number - 1} | fields

    for kind in ("response.created", "response.in_progress"):
        yield event(kind, response=responses_body(answer, body, [], "in_progress"))
    for index, item in enumerate(responses_output(answer, body)):
        place = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            yield event("response.output_item.added", output_index=index, item=item | {"status": "in_progress", "content": []})
            [part] = item["content"]
            place["content_index"] = 0
            yield event("response.content_part.added", **place, part=part | {"text": ""})
            for piece in pieces_of(part["text"]):
                yield event("response.output_text.delta", **place, delta=piece, logprobs=responses_logprobs(piece, body))
            yield event("response.output_text.done", **place, text=part["text"], logprobs=part["logprobs"])
            yield event("response.content_part.done", **place, part=part)
        elif item["type"] == "function_call":
            started = item | {"status": "in_progress", "arguments": ""}
            yield event("response.output_item.added", output_index=index, item=started)
            for piece in pieces_of(item["arguments"]):
                yield event("response.function_call_arguments.delta", **place, delta=piece)
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield event("response.function_call_arguments.done", **place, **done)
        else:
            yield event("response.output_item.added", output_index=index, item=item)
        yield event("response.output_item.done", output_index=index, item=item)
    whole = responses_body(answer, body)
    yield event(f"response.{whole['status']}", response=whole)


# ---- Anthropic Messages ----


def anthropic_content(answer: Answer) -> list[Json]:
    content: list[Json] = []
    if answer.thinking:
        content.append({"type": "thinking", "thinking": answer.thinking, "signature": f"signed{answer.input_tokens}"})
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        content.append({"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": json.loads(call.arguments)})
    return content


def anthropic_body(answer: Answer, body: Json) -> Json:
    reasons = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "stop_sequence": "stop_sequence"}
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": anthropic_content(answer),
        "stop_reason": reasons[answer.finish],
        "stop_sequence": answer.stop_sequence,
        "usage": {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens},
    }


def anthropic_stream(answer: Answer, body: Json) -> Iterator[tuple[str | None, Json | str]]:
    def event(kind: str, **fields: Any) -> tuple[str, Json]:
        return kind, {"type": kind} | fields

    whole = anthropic_body(answer, body)
    usage = {"input_tokens": answer.input_tokens, "output_tokens": 1}
    empty = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield event("message_start", message=whole | empty)
    yield event("ping")
    for index, block in enumerate(whole["content"]):
        if block["type"] == "tool_use":
            start = block | {"input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces_of(json.dumps(block["input"]))]
        elif block["type"] == "thinking":
            start = block | {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces_of(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        else:
            start = block | {"text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces_of(block["text"])]
        yield event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}
    yield event("message_delta", delta=delta, usage=whole["usage"])
    yield event("message_stop")


WRITERS = {
    CHAT: (chat_body, chat_stream),
    RESPONSES: (responses_body, responses_stream),
    ANTHROPIC: (anthropic_body, anthropic_stream),
}


class FakeProvider:
    """Listens on a port of this machine. `log` has each request: its wire, its body, some headers, and what was answered."""

    def __init__(self, port: int = 0) -> None:
        # Whether the same request again gets another answer.
        self.counts_attempts = True
        # Replaces what differs in the same conversation from run to run: answers do not depend on it.
        self.stable: Callable[[str], str] = str
        # Answers do not depend on thinking: clients may leave it out, and other wires cannot hold it.
        self.unseen = {"thinking"}
        # Whether the next stream breaks in its middle.
        self.cuts_next = False
        # An event at which each stream waits in its middle.
        self.hold: threading.Event | None = None
        # How many streams have waited so.
        self.held = 0
        self.log: list[Json] = []
        self.attempts: dict[str, int] = {}
        # What `previous_response_id` and `item_reference` name: the input and output of each response, and each item of it.
        self.responses: dict[str, list[Json]] = {}
        self.items: dict[str, Json] = {}
        self.lock = threading.Lock()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                provider.handle(self, self.rfile.read(length))

            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                if path == "/log":
                    write_json(self, 200, provider.log)
                elif path == "/v1/models":
                    write_json(self, 200, {"object": "list", "data": []})
                else:
                    write_json(self, 404, {"error": {"message": f"no route {path}", "type": "not_found_error"}})

            def do_DELETE(self) -> None:
                provider.forget()
                write_json(self, 200, {})

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def forget(self) -> None:
        with self.lock:
            self.log.clear()
            self.attempts.clear()
            self.responses.clear()
            self.items.clear()

    def resolve(self, body: Json) -> Json:
        """A request to the Responses API with all that it refers to by id."""
        given = body["input"]
        given = [{"role": "user", "content": given}] if isinstance(given, str) else given
        with self.lock:
            before = self.responses[body["previous_response_id"]] if body.get("previous_response_id") else []
            given = [self.items[item["id"]] if item.get("type") == "item_reference" else item for item in given]
        return body | {"input": before + given}

    def handle(self, request: BaseHTTPRequestHandler, data: bytes) -> None:
        wire = PATHS.get(request.path.split("?")[0])
        if wire is None:
            write_json(request, 404, {"error": {"message": f"no route {request.path}", "type": "not_found_error"}})
            return
        body = json.loads(data)
        try:
            if wire == RESPONSES:
                body = self.resolve(body)
            headers = {name: request.headers[name] for name in HEADERS if name in request.headers}
            with self.lock:
                entry: Json = {"wire": wire, "body": body, "headers": headers}
                self.log.append(entry)
            seen = read_request(wire, body)
            with self.lock:
                key = json.dumps([seen.items, seen.tools, seen.options], sort_keys=True)
                attempt = self.attempts[key] = self.attempts.get(key, 0) + 1
            shown = [item for item in seen.items if item["kind"] not in self.unseen]
            answer = compose(shown, seen, attempt if self.counts_attempts else 1, self.stable)
            entry["answer"] = {"text": answer.text, "calls": [[call.name, json.loads(call.arguments)] for call in answer.calls]}
        except (Invalid, KeyError, TypeError, ValueError) as error:
            message = str(error) if isinstance(error, Invalid) else f"invalid request: {error!r}"
            about = {"message": f"fake provider: {message}", "type": "invalid_request_error"}
            write_json(request, 400, {"type": "error", "error": about | {"param": None, "code": None}})
            return
        if wire == RESPONSES:
            output = responses_output(answer, body)
            with self.lock:
                self.responses[f"resp_{answer.id}"] = body["input"] + output
                self.items |= {item["id"]: item for item in output}
        whole, stream = WRITERS[wire]
        if not body.get("stream"):
            write_json(request, 200, whole(answer, body))
            return
        request.send_response(200)
        request.send_header("content-type", "text/event-stream")
        request.send_header("transfer-encoding", "chunked")
        request.end_headers()
        frames = list(stream(answer, body))
        cut, self.cuts_next = self.cuts_next, False
        for index, (name, frame) in enumerate(frames):
            if (hold := self.hold) and index == len(frames) // 2:
                self.held += 1
                hold.wait(60)
            if cut and index == len(frames) // 2:
                request.connection.shutdown(socket.SHUT_RDWR)
                request.close_connection = True
                return
            text = frame if isinstance(frame, str) else json.dumps(frame)
            event = (f"event: {name}\n" if name else "") + f"data: {text}\n\n"
            encoded = event.encode()
            try:
                request.wfile.write(f"{len(encoded):x}\r\n".encode() + encoded + b"\r\n")
            except OSError:
                request.close_connection = True
                return
        request.wfile.write(b"0\r\n\r\n")


def write_json(request: BaseHTTPRequestHandler, status: int, value: Any) -> None:
    data = json.dumps(value).encode()
    request.send_response(status)
    request.send_header("content-type", "application/json")
    request.send_header("content-length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)


if __name__ == "__main__":
    provider = FakeProvider(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(provider.url, flush=True)
    provider.thread.join()
