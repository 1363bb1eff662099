"""OpenAI's own package asks a running server for chat completions: it ends with the server's own message."""

import base64
import hashlib
import json
import re
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from conftest import Json
from cutting_proxy import CuttingProxy
from turnwire_server import TurnwireServer, request_during_restart

SESSION = "turnwire-session"
TOKENS = """
[[auth.tokens]]
tenant = "default"
sha256 = "{chat}"
scopes = ["read", "chat"]
[[auth.tokens]]
tenant = "default"
sha256 = "{read}"
scopes = ["read"]
"""
TOOL = {"type": "function", "function": {"name": "open_page", "description": "Opens.", "parameters": {"type": "object"}}}


def connect(url: str, **more: Any) -> OpenAI:
    return OpenAI(base_url=url + "/v1", **({"api_key": "none", "max_retries": 0} | more))


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def result(call: Json, content: str) -> Json:
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def asked(*messages: Json, **more: Any) -> Json:
    return {"model": "demo", "messages": list(messages)} | more


class Said:
    """What a client ended with."""

    def __init__(self, completion: Json, headers: Any) -> None:
        self.session, self.replayed = headers[SESSION], "idempotency-replayed" in headers
        self.completion = completion
        [choice] = completion["choices"]
        message = choice["message"]
        assert (choice["index"], message["role"]) == (0, "assistant")
        self.finish_reason = choice["finish_reason"]
        self.text = message.get("content") or ""
        self.thinking = message.get("reasoning_content") or ""
        # The helper adds what it parsed, and each fragment's index.
        self.calls = [
            {"id": call["id"], "type": call["type"]}
            | {key: call["function"][key] for key in ("name", "arguments")}
            for call in message.get("tool_calls") or []
        ]

    @property
    def content(self) -> Json:
        return {"thinking": self.thinking, "text": self.text, "calls": self.calls}


def by_helper(client: OpenAI, request: Json, headers: Json | None = None) -> Said:
    options = {"include_usage": True}
    manager = client.chat.completions.stream(**request, stream_options=options, extra_headers=headers or {})
    with manager as stream:
        for _ in stream:
            pass
        return Said(stream.get_final_completion().to_dict(), stream._response.headers)


def by_stream(client: OpenAI, request: Json, headers: Json | None = None) -> Said:
    """Chunk by chunk, put together by hand; the package would let a lot pass."""
    options = {"include_usage": True}
    message: Json = {"role": None, "content": "", "reasoning_content": "", "tool_calls": []}
    finish_reason, usage, heads = None, None, set()
    with client.chat.completions.create(**request, stream=True, stream_options=options, extra_headers=headers or {}) as stream:
        for at, chunk in enumerate(stream):
            heads.add((chunk.id, chunk.object, chunk.created, chunk.model))
            assert usage is None, "usage comes last"
            if not chunk.choices:
                usage = chunk.usage.to_dict()
                continue
            assert finish_reason is None, "nothing is said behind the reason"
            [choice] = chunk.choices
            delta = choice.delta.to_dict()
            if at == 0:
                message["role"] = delta.pop("role")
            assert "role" not in delta
            for field in ("content", "reasoning_content"):
                message[field] += delta.get(field) or ""
            for piece in delta.get("tool_calls") or []:
                assert piece.pop("index") == len(message["tool_calls"]), "indexes are contiguous"
                message["tool_calls"].append(piece)
            finish_reason = choice.finish_reason
    [(id, kind, created, model)] = heads
    assert kind == "chat.completion.chunk" and finish_reason and usage
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    completion = {"id": id, "created": created, "model": model, "choices": [choice], "usage": usage}
    return Said(completion, stream.response.headers)


def in_one_piece(client: OpenAI, request: Json, headers: Json | None = None) -> Said:
    answer = client.chat.completions.with_raw_response.create(**request, extra_headers=headers or {})
    return Said(answer.parse().to_dict(), answer.headers)


Way = Callable[..., Said]


@pytest.fixture(params=[by_helper, by_stream, in_one_piece], ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


def shown(message: Json, start: int = 0) -> Json:
    """A message of the server's as this wire can hold it: all thinking, all text, the client's calls."""
    blocks = message["content"]
    served = {block["id"] for block in blocks if block["type"] == "tool_result"}
    content: Json = {"thinking": "", "text": "", "calls": []}
    for block in blocks[start:]:
        if block["type"] in ("thinking", "text"):
            content[block["type"]] += block[block["type"]]
        elif block["type"] == "tool_call" and block["id"] not in served:
            call = {"id": block["id"], "type": "function", "name": block["name"], "arguments": block["input"]}
            content["calls"].append(call)
    return content


def reply(server: TurnwireServer, session: str) -> Json:
    """The last reply of a session that has ended."""
    server.when(session, "idle")
    last = server.messages(session)[-1]
    assert last["role"] == "assistant"
    return last


def count(server: TurnwireServer) -> int:
    return len(server.ask("GET", "/v1/sessions?limit=500")["sessions"])


@pytest.mark.parametrize(
    "words",
    ["Hello there", "weather", "image", "team", "json", "long 200", "approve", "parallel"],
)
def test_what_is_said_is_the_servers_own_message(server: TurnwireServer, way: Way, words: str) -> None:
    said = way(connect(server.url), asked(user(words)))
    theirs = reply(server, said.session)
    assert said.content == shown(theirs) and said.text
    assert (said.completion["id"], said.completion["model"]) == ("chatcmpl-" + theirs["id"], "demo")
    assert said.completion["created"] > 1_700_000_000 and said.finish_reason == "stop"
    usage = said.completion["usage"]
    assert usage["prompt_tokens"] == theirs["usage"]["input_tokens"] > 0
    assert usage["completion_tokens"] == theirs["usage"]["output_tokens"] > 0
    kinds = {block["type"] for block in theirs["content"]}
    if words in ("weather", "team", "approve", "parallel"):
        assert {"tool_call", "tool_result"} <= kinds and not said.calls, "what the agent serves is its own affair"
    if words == "Hello there":
        assert said.thinking


def test_the_tokens_come_where_they_are_asked_for(server: TurnwireServer) -> None:
    client = connect(server.url)
    assert all(chunk.usage is None and chunk.choices for chunk in client.chat.completions.create(**asked(user("Hi")), stream=True))


@pytest.mark.parametrize("words", ["approve", "parallel"])
def test_what_needs_a_yes_is_denied_and_the_model_told(server: TurnwireServer, way: Way, words: str) -> None:
    said = way(connect(server.url), asked(user(words)))
    assert "You said no, so I have bought nothing." in said.text
    results = [block for block in reply(server, said.session)["content"] if block["type"] == "tool_result"]
    assert [result["state"] for result in results if result["name"] == "execute_trade"] == ["denied"]


@pytest.mark.parametrize("named", [True, False])
def test_a_tool_of_the_clients_goes_on_with_the_same_reply(server: TurnwireServer, way: Way, named: bool) -> None:
    client = connect(server.url)
    first = way(client, asked(user("browser"), tools=[TOOL]))
    assert first.finish_reason == "tool_calls"
    [call] = first.calls
    assert (call["name"], json.loads(call["arguments"])) == ("open_page", {"url": "https://example.com/"})
    half = server.messages(first.session)[-1]
    assert first.content == shown(half)

    function = {key: call[key] for key in ("name", "arguments")}
    called = {"role": "assistant", "content": "", "tool_calls": [{"id": call["id"], "type": "function", "function": function}]}
    history = [user("browser"), called, result(call, "A page about examples.")]
    headers = {SESSION: first.session} if named else {}
    second = way(client, asked(*history, tools=[TOOL]), headers)
    assert (second.session, second.finish_reason) == (first.session, "stop")
    assert "A page about examples." in second.text
    theirs = reply(server, first.session)
    assert theirs["id"] == half["id"], "it is one reply"
    assert second.content == shown(theirs, len(half["content"]))
    assert first.completion["id"] != second.completion["id"]
    assert second.completion["usage"]["prompt_tokens"] < theirs["usage"]["input_tokens"], "each part has its own tokens"
    offered = server.messages(first.session)[0]["metadata"]["client"]
    assert offered["tools"][0]["name"] == "open_page" and offered["unattended"]

    if named:
        with pytest.raises(openai.ConflictError):
            way(client, asked(*history), headers)
    else:
        assert way(client, asked(*history)).session != first.session, "it asks again, elsewhere"
    assert len(server.messages(first.session)) == 2, "an answer counts once"


def test_words_beside_results_reach_the_reply(server: TurnwireServer, way: Way) -> None:
    client = connect(server.url)
    first = way(client, asked(user("browser")))
    said = way(client, asked(result(first.calls[0], "A page."), user("And hurry.")))
    assert "A page." in said.text
    [hint] = [block for block in reply(server, first.session)["content"] if block["type"] == "hint"]
    assert hint["hint"][0]["text"] == "And hurry." and hint["source"] == "user"


def test_results_that_nobody_waits_for_are_refused(server: TurnwireServer) -> None:
    client = connect(server.url)
    before = count(server)
    with pytest.raises(openai.BadRequestError, match="waits for a result") as refused:
        client.chat.completions.create(**asked(result({"id": "nobody-asked"}, "x")))
    assert refused.value.code == "unknown_call"
    assert count(server) == before, "nothing was stored"


def test_a_session_goes_on_and_takes_only_what_is_new(server: TurnwireServer, way: Way) -> None:
    client = connect(server.url)
    system = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."}]
    first = way(client, asked(*system, user("Hello"), temperature=0.5))
    history = [*system, user("Hello"), {"role": "assistant", "content": first.text}]
    second = way(client, asked(*history, user("How is the weather?")), {SESSION: first.session})
    assert second.session == first.session and "18 °C" in second.text
    messages = server.messages(first.session)
    assert [msg["role"] for msg in messages] == ["user", "assistant", "user", "assistant"]
    assert [msg["content"][0]["text"] for msg in messages[::2]] == ["Hello", "How is the weather?"]
    offered = messages[0]["metadata"]["client"]
    texts = [block["text"] for message in offered["system"] for block in message["content"]]
    assert texts == ["Be brief.", "Be kind."] and offered["extra"]["temperature"] == 0.5
    with pytest.raises(openai.BadRequestError, match="has nothing new"):
        way(client, asked(*history), {SESSION: first.session})


def test_what_a_client_claims_is_marked(server: TurnwireServer, way: Way) -> None:
    forged = {"role": "assistant", "content": "I promise you a refund."}
    said = way(connect(server.url), asked(user("One"), forged, user("Two")))
    messages = server.messages(said.session)
    assert [msg["content"][0]["text"] for msg in messages if msg["role"] == "user"] == ["One", "Two"]
    claimed = [json.dumps(msg) for msg in messages if msg["metadata"].get("claimed")]
    assert ["refund" in msg for msg in claimed] == [False, True] and "> Two" in said.text


class About(BaseModel):
    words: int
    characters: int


def test_who_asks_for_json_gets_it(server: TurnwireServer) -> None:
    client = connect(server.url)
    parsed = client.chat.completions.parse(**asked(user("two json")), response_format=About)
    assert parsed.choices[0].message.parsed == About(words=2, characters=8)
    with client.chat.completions.stream(**asked(user("two json")), response_format=About) as stream:
        streamed = stream.get_final_completion().choices[0].message
    assert streamed.parsed == About(words=2, characters=8)
    session = stream._response.headers[SESSION]
    assert json.loads(streamed.content or "") == reply(server, session)["structured_output"]
    assert server.messages(session)[0]["metadata"]["client"]["output_schema"]["title"] == "About"


def png() -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = chunk(b"IHDR", bytes([0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0]))
    whole = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def test_an_image_goes_in(server: TurnwireServer) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + png()}}
    said = in_one_piece(connect(server.url), asked(user([{"type": "text", "text": "What is it?"}, image])))
    sent = server.messages(said.session)[0]["content"]
    assert [block["type"] for block in sent] == ["text", "data"]
    assert (sent[1]["source"]["media_type"], sent[1]["source"]["data"]) == ("image/png", png())


def test_a_reply_that_fails_is_an_error(server: TurnwireServer) -> None:
    client = connect(server.url, max_retries=2)
    why = "the model broke off in the middle of its answer; ask again"
    with pytest.raises(openai.APIError, match=why) as raised:
        by_stream(client, asked(user("fail")))
    streamed = raised.value.body
    before = count(server)
    with pytest.raises(openai.InternalServerError, match=why) as whole:
        in_one_piece(client, asked(user("fail")))
    assert whole.value.body == streamed and whole.value.code == "upstream"
    assert count(server) == before + 1, "the client did not ask again"
    assert reply(server, whole.value.response.headers[SESSION])["error"]["type"] == "upstream"


def test_a_stop_from_elsewhere_ends_a_valid_stream(slow: TurnwireServer) -> None:
    text, reasons = "", []
    with connect(slow.url).chat.completions.create(**asked(user("long 100000")), stream=True) as stream:
        session = stream.response.headers[SESSION]
        for at, chunk in enumerate(stream):
            text += chunk.choices[0].delta.content or ""
            reasons.append(chunk.choices[0].finish_reason)
            if at == 5:
                slow.ask("POST", f"/v1/sessions/{session}/events", [{"type": "USER_INTERRUPT", "reply_id": ""}])
    assert reasons[-1] == "stop" and not any(reasons[:-1])
    theirs = reply(slow, session)
    assert (theirs["finished_reason"], theirs["content"][0]["text"]) == ("interrupted", text)


def test_going_away_is_no_stop(slow: TurnwireServer) -> None:
    with connect(slow.url).chat.completions.create(**asked(user("long 60")), stream=True) as stream:
        session = stream.response.headers[SESSION]
        next(iter(stream))
    theirs = reply(slow, session)
    assert theirs["finished_reason"] == "completed" and len(theirs["content"][0]["text"]) == 60 * 8


def test_a_request_that_was_cut_finds_its_reply_again(slow: TurnwireServer) -> None:
    """At every tenth delta: the reply goes on, and the same key gives the same reply from its start."""
    for deltas in range(1, 61, 10):
        proxy = CuttingProxy(slow.address, f"{deltas:07}")
        request, headers = asked(user("long 60")), {"Idempotency-Key": f"cut-{deltas}"}
        with pytest.raises(openai.APIConnectionError):
            by_stream(connect(proxy.url), request, headers)
        assert proxy.cuts == 1
        proxy.close()
        said = by_stream(connect(slow.url), request, headers)
        assert said.replayed
        assert said.content == shown(reply(slow, said.session)) and len(said.text) == 60 * 8
        assert by_helper(connect(slow.url), request, headers | {SESSION: said.session}).content == said.content
        assert len(slow.messages(said.session)) == 2, "it was asked once"


def test_a_key_is_for_one_request(server: TurnwireServer) -> None:
    client, headers = connect(server.url), {"Idempotency-Key": "mine"}
    once = in_one_piece(client, asked(user("weather")), headers)
    again = in_one_piece(client, asked(user("weather")), headers)
    assert not once.replayed and again.replayed and again.completion == once.completion
    with pytest.raises(openai.UnprocessableEntityError, match="another request"):
        in_one_piece(client, asked(user("other words")), headers)


def test_results_that_were_cut_are_not_taken_twice(server: TurnwireServer, way: Way) -> None:
    client = connect(server.url)
    key = {"Idempotency-Key": "first-" + way.__name__}
    first = way(client, asked(user("browser")), key)
    headers = {SESSION: first.session, "Idempotency-Key": "results-" + first.session}
    once = way(client, asked(result(first.calls[0], "A page.")), headers)
    again = way(client, asked(result(first.calls[0], "A page.")), headers)
    assert not once.replayed and again.replayed
    assert (again.content, again.completion["id"]) == (once.content, once.completion["id"])
    # And what came before it ends where it ended then.
    before = way(client, asked(user("browser")), key)
    assert before.replayed and before.completion == first.completion


def test_a_server_that_was_killed_goes_on(tmp_path: Path) -> None:
    running = TurnwireServer(tmp_path, rate=150)
    request, headers = asked(user("long 300")), {"Idempotency-Key": "killed"}
    with pytest.raises(openai.APIConnectionError):
        with connect(running.url).chat.completions.create(**request, stream=True, extra_headers=headers) as stream:
            for chunk in stream:
                if chunk.choices[0].delta.content:
                    running.crash()
    request |= {"stream": True}
    with connect(running.url).chat.completions.create(**request, extra_headers=headers) as stream:
        chunks = list(stream)
        assert "idempotency-replayed" in stream.response.headers
        session = stream.response.headers[SESSION]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert text == shown(reply(running, session))["text"]
    assert text.split() == [f"{number:07}" for number in range(1, 301)]
    running.stop()


def test_a_client_does_not_mind_a_heartbeat(tmp_path: Path) -> None:
    running = TurnwireServer(tmp_path, rate=10, settings='[limits]\nheartbeat = "20ms"\n')
    body = json.dumps(asked(user("long 4"), stream=True)).encode()
    post = urllib.request.Request(running.url + "/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(post, timeout=60) as answer:
        raw = answer.read()
    assert b"\n:" in raw, "there was one"
    assert raw.endswith(b"data: [DONE]\n\n")
    said = by_stream(connect(running.url), asked(user("long 4")))
    assert said.content == shown(reply(running, said.session))
    running.stop()


def test_errors_are_the_packages_own(server: TurnwireServer, slow: TurnwireServer, tmp_path: Path) -> None:
    client = connect(server.url)
    before = count(server)
    for wrong, why in [
        (asked(user("x"), n=2), "`n` must be 1"),
        (asked(user("")), "user message is empty"),
        (asked(), "neither a user message"),
        (asked(user("x"), logprobs=True), "logprobs"),
        (asked(user("x"), modalities=["text", "audio"]), "modalities"),
        (asked({"role": "robot", "content": "x"}), "unknown role"),
    ]:
        with pytest.raises(openai.BadRequestError, match=why):
            client.chat.completions.create(**wrong)
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(**asked(user("x"), model="gpt-9"))
    assert missing.value.code == "model_not_found" and "demo" in missing.value.message
    assert count(server) == before, "nothing was stored"
    busy = {SESSION: "busy"}
    with connect(slow.url).chat.completions.create(**asked(user("long 100000")), stream=True, extra_headers=busy):
        with pytest.raises(openai.ConflictError, match="a reply is running"):
            connect(slow.url).chat.completions.create(**asked(user("x")), extra_headers=busy)
        slow.ask("POST", "/v1/sessions/busy/events", [{"type": "USER_INTERRUPT", "reply_id": ""}])

    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("chat", "read")}
    guarded = TurnwireServer(tmp_path, settings=TOKENS.format(**hashes))
    with pytest.raises(openai.AuthenticationError) as refused:
        connect(guarded.url, api_key="wrong").chat.completions.create(**asked(user("x")))
    assert refused.value.code == "invalid_api_key"
    with pytest.raises(openai.PermissionDeniedError):
        connect(guarded.url, api_key="read").chat.completions.create(**asked(user("x")))
    assert in_one_piece(connect(guarded.url, api_key="chat"), asked(user("x"))).text
    guarded.stop()


def test_all_see_the_same_session(slow: TurnwireServer) -> None:
    said = by_stream(connect(slow.url), asked(user("long 20")), {SESSION: "shared"})
    written = slow.ask("GET", "/v1/sessions/shared/messages?wire=openai-chat")["messages"]
    assert [message["role"] for message in written] == ["user", "assistant"]
    assert written[1]["content"] == said.text


def test_the_page_does_what_it_says(server: TurnwireServer, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs/chat-completions.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: Json = {}
    exec(code.replace("http://127.0.0.1:4747", server.url), names)  # noqa: S102
    assert "18 °C" in capsys.readouterr().out
    said = [msg["content"][0]["text"] for msg in server.messages(names["session"])[::2]]
    assert said == ["How is the weather?", "And tomorrow?"]


QUESTION = "Please say something long."


@pytest.mark.parametrize("path", ["chat", "responses"])
def test_an_answer_finishes_while_the_server_stops(tmp_path: Path, path: str) -> None:
    settings = '[limits]\nstop_timeout = "1m"\n'
    ended, sessions = request_during_restart(tmp_path, settings, 50, lambda url: say(url, path))
    assert isinstance(ended, str) and ended, ended
    assert sessions == 1


@pytest.mark.parametrize("path", ["chat", "responses"])
def test_an_answer_that_does_not_finish_is_not_asked_for_again(tmp_path: Path, path: str) -> None:
    settings = '[limits]\nstop_timeout = "100ms"\n'
    ended, sessions = request_during_restart(tmp_path, settings, 2, lambda url: say(url, path))
    assert isinstance(ended, openai.APIStatusError), ended
    assert (ended.status_code, ended.code) == (503, "server_stopping")
    assert sessions == 1


def say(url: str, path: str) -> str:
    client = connect(url, max_retries=2)
    if path == "responses":
        return client.responses.create(model="demo", input=QUESTION).output_text
    completion = client.chat.completions.create(model="demo", messages=[user(QUESTION)])
    return completion.choices[0].message.content or ""
