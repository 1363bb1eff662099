"""Compares what a provider saw straight from a client with what it saw from Turnwire, request by request.

On one wire the bodies have to be equal but for what `normalise` lists. On two wires both are read into the form of
`conversation.py`, and compared in what both wires can hold.
"""

from collections.abc import Iterator
from typing import Any

from conversation import ANTHROPIC, CHAT, OPTIONS, RESPONSES, Conversation, Json, parse, read_request

# How an answer is transported is between Turnwire and the provider: it always streams.
TRANSPORT = ["stream", "stream_options"]
# Turnwire keeps the conversation itself: it sends all of it, and has the provider store nothing.
STORAGE = ["previous_response_id", "conversation", "background"]


def normalise(wire: str, body: Json) -> Json:
    """The body without what may differ: transport, storage, ids, fields that are null, empty lists, a string instead of one text block,
    white space in the JSON text of a call's input, defaults that OpenAI's types write out."""
    body = {key: value for key, value in body.items() if key not in TRANSPORT + STORAGE and value != []}
    body = without_nulls(body)
    ids = Ids()
    if wire == CHAT:
        body["messages"] = [normal_chat_message(message, ids) for message in body["messages"]]
    elif wire == RESPONSES:
        given = body["input"]
        given = [{"role": "user", "content": given}] if isinstance(given, str) else given
        body["input"] = [normal_item(item, ids) for item in given]
        if body.get("text") == {"format": {"type": "text"}}:
            del body["text"]
    else:
        if isinstance(body.get("system"), str):
            body["system"] = [{"type": "text", "text": body["system"]}]
        body["messages"] = [normal_anthropic_message(message, ids) for message in body["messages"]]
    return body


class Ids(dict[str, str]):
    """Call ids in the order in which they come."""

    def __missing__(self, id: str) -> str:
        self[id] = f"call {len(self) + 1}"
        return self[id]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def as_blocks(content: Any, kind: str) -> list[Json]:
    return [{"type": kind, "text": content}] if isinstance(content, str) else content


def normal_chat_message(message: Json, ids: Ids) -> Json:
    message = dict(message)
    if "content" in message:
        message["content"] = as_blocks(message["content"], "text")
    if calls := message.get("tool_calls"):
        message["tool_calls"] = [normal_chat_call(call, ids) for call in calls]
    if "tool_call_id" in message:
        message["tool_call_id"] = ids[message["tool_call_id"]]
    return {key: value for key, value in message.items() if value != []}


def normal_chat_call(call: Json, ids: Ids) -> Json:
    call = call | {"id": ids[call["id"]]}
    if call["type"] == "function":
        call["function"] = call["function"] | {"arguments": parse(call["function"]["arguments"])}
    return call


def normal_item(item: Json, ids: Ids) -> Json:
    item = {key: value for key, value in item.items() if key not in ("id", "status")}
    item.setdefault("type", "message")
    if item["type"] == "message":
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        item["content"] = [
            {key: value for key, value in part.items() if value != [] and (key, value) != ("detail", "auto")}
            for part in as_blocks(item["content"], kind)
        ]
    if "call_id" in item:
        item["call_id"] = ids[item["call_id"]]
    if "arguments" in item:
        item["arguments"] = parse(item["arguments"])
    if item["type"] in ("function_call_output", "custom_tool_call_output"):
        item["output"] = as_blocks(item["output"], "input_text")
    return item


def normal_anthropic_message(message: Json, ids: Ids) -> Json:
    blocks = []
    for block in as_blocks(message["content"], "text"):
        if block["type"] == "tool_use":
            block = block | {"id": ids[block["id"]]}
        elif block["type"] == "tool_result":
            block = block | {"tool_use_id": ids[block["tool_use_id"]]}
            if "content" in block:
                block["content"] = as_blocks(block["content"], "text")
            if block.get("is_error") is False:
                del block["is_error"]
        blocks.append(block)
    return message | {"content": blocks}


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted({*wanted, *found}):
            place = f"{path}.{key}".removeprefix(".")
            if key not in found:
                yield f"{place} is missing, it was {brief(wanted[key])}"
            elif key not in wanted:
                yield f"{place} was added: {brief(found[key])}"
            else:
                yield from differences(wanted[key], found[key], place)
    elif isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            yield f"{path} has {len(found)} elements instead of {len(wanted)}"
        for index, (one, other) in enumerate(zip(wanted, found)):
            yield from differences(one, other, f"{path}[{index}]")
    elif wanted != found or isinstance(wanted, bool) != isinstance(found, bool):
        yield f"{path} is {brief(found)} instead of {brief(wanted)}"


def brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."


def same_wire(wanted: Json, found: Json) -> list[str]:
    """How a request through Turnwire differs from the one without, both on one wire."""
    wire = wanted["wire"]
    one, other = normalise(wire, wanted["body"]), normalise(wire, found["body"])
    # Where the client leaves it to the provider whether to store, Turnwire may say no.
    if "store" not in one:
        other.pop("store", None)
    said = list(differences(one, other))
    for header in ("anthropic-beta", "openai-beta"):
        if (beta := wanted["headers"].get(header)) != found["headers"].get(header) and beta:
            said.append(f"the header {header} is {found['headers'].get(header)} instead of {beta}")
    return said


def cross_wire(wanted: Json, found: Json) -> list[str]:
    """How a request through Turnwire differs from the one without, on two wires: in what both can hold."""
    both = OPTIONS[wanted["wire"]] & OPTIONS[found["wire"]]
    one, other = held(wanted, both), held(found, both)
    if ANTHROPIC in (wanted["wire"], found["wire"]):
        # That wire has no name and no strictness of a schema.
        for form in (one["options"].get("format"), other["options"].get("format")):
            for key in ("name", "strict") if form else ():
                form.pop(key, None)
    for form in (one["options"].get("format"), other["options"].get("format")):
        # The default, written out.
        if form and form.get("strict") is False:
            form["strict"] = None
    # Anthropic requires objects of a form to have no other fields.
    if found["wire"] == ANTHROPIC and "format" in one["options"]:
        one["options"]["format"] = closed(one["options"]["format"])
    # Anthropic's wire requires a limit: where the client has none, Turnwire has its own.
    if found["wire"] == ANTHROPIC and "max_tokens" not in one["options"]:
        other["options"].pop("max_tokens", None)
    return list(differences(one, other))


def closed(schema: Any) -> Any:
    """A schema whose objects have no other fields."""
    if isinstance(schema, list):
        return [closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    more = {"additionalProperties": False} if schema.get("type") == "object" else {}
    return {key: closed(inner) for key, inner in schema.items()} | more


def held(entry: Json, options: set[str]) -> Json:
    seen = read_request(entry["wire"], entry["body"])
    kept = {key: value for key, value in seen.options.items() if key in options}
    # The provider's defaults, written out.
    if kept.get("tool_choice") == "auto":
        del kept["tool_choice"]
    if kept.get("parallel_tool_calls") is True:
        del kept["parallel_tool_calls"]
    items = [item for item in seen.items if item["kind"] != "thinking"]
    return {"items": items, "tools": seen.tools, "options": kept}


def read_session(messages: list[Json]) -> list[Json]:
    """What was said in a session of Turnwire, in the form of `Conversation.said`."""
    found = Conversation()
    for message in messages:
        for block in message["content"]:
            kind = block["type"]
            if kind == "text" and message["role"] != "system":
                found.add_text("user" if message["role"] == "user" else "text", block["text"])
            elif kind == "hint":
                # What the user says beside the results of calls reaches the reply so.
                hint = block["hint"]
                found.add_text("user", hint if isinstance(hint, str) else "".join(part.get("text", "") for part in hint))
            elif kind == "data":
                media = block["source"]["media_type"]
                found.add("image" if media.startswith("image/") else "file", media_type=media)
            elif kind == "tool_call":
                found.add_call(block["id"], block["name"], block["input"])
            elif kind == "tool_result":
                output = block["output"]
                text = output if isinstance(output, str) else "".join(part.get("text", "") for part in output)
                found.add_result(block["id"], text)
    return found.said


def expected_session(entry: Json) -> list[Json]:
    """What has to be in a session whose last model call is this entry of the provider's log."""
    found = read_request(entry["wire"], entry["body"])
    found.add_text("text", entry["answer"]["text"])
    for index, (name, arguments) in enumerate(entry["answer"]["calls"]):
        found.add_call(f"new {index}", name, arguments)
    said = []
    for item in found.said:
        about = item.get("image") or item.get("file")
        said.append({"kind": item["kind"], "media_type": about.split(",")[0]} if about else item)
    return said
