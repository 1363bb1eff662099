"""The real client against a running server: whatever it ends with is the server's own message."""

import base64
import hashlib
import json
import re
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest

from conftest import Json
from cutting_proxy import CuttingProxy
from turnwire_server import Proxy, TurnwireServer, request_during_restart

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
# What a client sees of a connection that breaks.
BROKEN = (anthropic.APIConnectionError, httpx2.RemoteProtocolError, httpx2.ReadError)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TurnwireServer]:
    """As fast as it can."""
    running = TurnwireServer(tmp_path_factory.mktemp("fast"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TurnwireServer]:
    """Slow enough to come in between."""
    running = TurnwireServer(tmp_path_factory.mktemp("slow"), rate=400)
    yield running
    running.stop()


def connect(url: str, **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, **({"api_key": "none", "max_retries": 0} | more))


def user(text: Any) -> Json:
    return {"role": "user", "content": text}


def asked(*messages: Json, **more: Any) -> Json:
    return {"model": "demo", "max_tokens": 1000, "messages": list(messages)} | more


def plain(value: Any) -> Any:
    """Without what the client adds where the wire has nothing."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if inner is not None and key != "parsed_output"}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def in_order(events: list[Json]) -> None:
    """What the client would let pass: blocks are contiguous, one at a time, and there is an end."""
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("message_start") == kinds.count("message_delta") == kinds.count("message_stop") == 1
    open_block, count = None, 0
    for event in events[1:-2]:
        kind = event["type"]
        if kind == "content_block_start":
            assert (open_block, event["index"]) == (None, count)
            open_block = count
        elif kind == "content_block_delta":
            assert event["index"] == open_block
        else:
            assert (kind, event["index"]) == ("content_block_stop", open_block)
            open_block, count = None, count + 1
    assert open_block is None


class Said:
    """What a client ended with."""

    def __init__(self, message: Json, session: str, replayed: bool) -> None:
        self.message, self.session, self.replayed = message, session, replayed
        self.content = [plain(block) for block in message["content"]]
        self.stop_reason = message["stop_reason"]

    @property
    def text(self) -> str:
        return "".join(block["text"] for block in self.content if block["type"] == "text")

    @property
    def calls(self) -> list[Json]:
        return [block for block in self.content if block["type"] == "tool_use"]


def by_stream(client: anthropic.Anthropic, request: Json, headers: Json | None = None) -> Said:
    """With the helper; its raw events are looked at, too."""
    raw: list[Json] = []
    with client.messages.stream(**request, extra_headers=headers or {}) as stream:
        for event in stream:
            # The helper adds events of its own.
            if event.type.startswith(("message_", "content_block_")):
                raw.append(event.to_dict())
        final = stream.get_final_message()
        answer = stream.response.headers
    in_order(raw)
    return Said(final.to_dict(), answer[SESSION], "idempotency-replayed" in answer)


def by_raw_stream(client: anthropic.Anthropic, request: Json, headers: Json | None = None) -> Said:
    """Event by event, put together by hand."""
    with client.messages.create(**request, stream=True, extra_headers=headers or {}) as stream:
        events = [event.to_dict() for event in stream]
        answer = stream.response.headers
    in_order(events)
    message = events[0]["message"]
    for event in events:
        match event["type"]:
            case "content_block_start":
                message["content"].append(event["content_block"])
            case "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                match delta["type"]:
                    case "input_json_delta":
                        block["input"] = json.loads(delta["partial_json"])
                    case kind:
                        field = kind.removesuffix("_delta")
                        block[field] += delta[field]
            case "message_delta":
                message |= event["delta"] | {"usage": event["usage"]}
    return Said(message, answer[SESSION], "idempotency-replayed" in answer)


def in_one_piece(client: anthropic.Anthropic, request: Json, headers: Json | None = None) -> Said:
    answer = client.messages.with_raw_response.create(**request, extra_headers=headers or {})
    return Said(answer.parse().to_dict(), answer.headers[SESSION], "idempotency-replayed" in answer.headers)


Way = Callable[..., Said]
WAYS = [by_stream, by_raw_stream, in_one_piece]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


def shown(message: Json, start: int = 0) -> list[Json]:
    """A message of the server's as this wire can hold it: without what the agent did itself."""
    blocks = message["content"]
    served = {block["id"] for block in blocks if block["type"] == "tool_result"}
    content: list[Json] = []
    for block in blocks[start:]:
        match block["type"]:
            case "text":
                content.append({"type": "text", "text": block["text"]})
            case "thinking":
                content.append({"type": "thinking", "thinking": block["thinking"], "signature": ""})
            case "data":
                source = {key: block["source"][key] for key in ("type", "media_type", "data")}
                content.append({"type": "image", "source": source})
            case "tool_call" if block["id"] not in served:
                call = {"id": block["id"], "name": block["name"], "input": json.loads(block["input"])}
                content.append({"type": "tool_use"} | call)
    return content


def reply(server: TurnwireServer, session: str) -> Json:
    """The last reply of a session that has ended."""
    server.when(session, "idle")
    last = server.messages(session)[-1]
    assert last["role"] == "assistant"
    return last


@pytest.mark.parametrize(
    "words",
    ["Hello there", "weather", "image", "team", "json", "long 200", "approve", "parallel"],
)
def test_what_is_said_is_the_servers_own_message(server: TurnwireServer, way: Way, words: str) -> None:
    said = way(connect(server.url), asked(user(words)))
    theirs = reply(server, said.session)
    assert said.content == shown(theirs)
    assert said.message["id"] == "msg_" + theirs["id"]
    assert (said.message["model"], said.message["role"], said.stop_reason) == ("demo", "assistant", "end_turn")
    usage = said.message["usage"]
    assert usage["input_tokens"] == theirs["usage"]["input_tokens"] > 0
    assert usage["output_tokens"] == theirs["usage"]["output_tokens"] > 0
    kinds = {block["type"] for block in theirs["content"]}
    if words in ("weather", "team", "approve", "parallel"):
        assert {"tool_call", "tool_result"} <= kinds and not said.calls, "what the agent serves is its own affair"
    if words == "image":
        assert [block["type"] for block in said.content] == ["text", "image", "text"]
    if words == "Hello there":
        assert said.content[0]["type"] == "thinking"


@pytest.mark.parametrize("words", ["approve", "parallel"])
def test_what_needs_a_yes_is_denied_and_the_model_told(server: TurnwireServer, way: Way, words: str) -> None:
    said = way(connect(server.url), asked(user(words)))
    assert "You said no, so I have bought nothing." in said.text
    results = [block for block in reply(server, said.session)["content"] if block["type"] == "tool_result"]
    assert [result["state"] for result in results if result["name"] == "execute_trade"] == ["denied"]


@pytest.mark.parametrize("named", [True, False])
def test_a_tool_of_the_clients_goes_on_with_the_same_reply(server: TurnwireServer, way: Way, named: bool) -> None:
    client = connect(server.url)
    tools = [{"name": "open_page", "description": "Opens.", "input_schema": {"type": "object"}}]
    first = way(client, asked(user("browser"), tools=tools))
    assert first.stop_reason == "tool_use"
    [call] = first.calls
    assert (call["name"], call["input"]) == ("open_page", {"url": "https://example.com/"})
    half = server.messages(first.session)[-1]
    assert first.content == shown(half)

    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "A page about examples."}
    history = [user("browser"), {"role": "assistant", "content": first.content}, user([result])]
    headers = {SESSION: first.session} if named else {}
    second = way(client, asked(*history, tools=tools), headers)
    assert (second.session, second.stop_reason) == (first.session, "end_turn")
    assert "A page about examples." in second.text
    theirs = reply(server, first.session)
    assert theirs["id"] == half["id"], "it is one reply"
    assert first.content + second.content == shown(half) + shown(theirs, len(half["content"]))
    assert first.message["id"] != second.message["id"]
    assert second.message["usage"]["input_tokens"] < theirs["usage"]["input_tokens"], "each part has its own tokens"
    offered = server.messages(first.session)[0]["metadata"]["client"]
    assert offered["tools"][0]["name"] == "open_page" and offered["unattended"]

    if named:
        with pytest.raises(anthropic.ConflictError):
            way(client, asked(*history), headers)
    else:
        assert way(client, asked(*history)).session != first.session, "it asks again, elsewhere"
    assert len(server.messages(first.session)) == 2, "an answer counts once"


def test_results_say_what_failed_and_bring_the_users_words(server: TurnwireServer, way: Way) -> None:
    client = connect(server.url)
    first = way(client, asked(user("browser")))
    result = {"type": "tool_result", "tool_use_id": first.calls[0]["id"], "content": [{"type": "text", "text": "No such page."}], "is_error": True}
    said = way(client, asked(user([result, {"type": "text", "text": "Never mind."}])))
    assert "could not be opened" in said.text and "No such page." in said.text
    [hint] = [block for block in reply(server, first.session)["content"] if block["type"] == "hint"]
    assert hint["hint"][0]["text"] == "Never mind." and hint["source"] == "user"


def test_results_that_nobody_waits_for_are_refused(server: TurnwireServer) -> None:
    client = connect(server.url)
    result = {"type": "tool_result", "tool_use_id": "nobody-asked", "content": "x"}
    before = len(server.ask("GET", "/v1/sessions?limit=500")["sessions"])
    with pytest.raises(anthropic.BadRequestError, match="waits for a result"):
        client.messages.create(**asked(user([result])))
    session = in_one_piece(client, asked(user("Hi"))).session
    with pytest.raises(anthropic.BadRequestError, match="waits for a result"):
        client.messages.create(**asked(user([result])), extra_headers={SESSION: session})
    assert len(server.ask("GET", "/v1/sessions?limit=500")["sessions"]) == before + 1


def test_a_session_goes_on_and_takes_only_what_is_new(server: TurnwireServer, way: Way) -> None:
    client = connect(server.url)
    first = way(client, asked(user("Hello"), system="Be brief.", metadata={"user_id": "ann"}))
    history = [user("Hello"), {"role": "assistant", "content": first.content}]
    second = way(client, asked(*history, user("How is the weather?")), {SESSION: first.session})
    assert second.session == first.session and "18 °C" in second.text
    texts = [(msg["role"], msg["content"][0].get("text")) for msg in server.messages(first.session)]
    assert [text for role, text in texts if role == "user"] == ["Hello", "How is the weather?"]
    assert [role for role, _ in texts] == ["user", "assistant", "user", "assistant"]
    offered = server.messages(first.session)[0]["metadata"]["client"]
    assert [block["text"] for message in offered["system"] for block in message["content"]] == ["Be brief."]
    assert offered["extra"]["metadata"] == {"user_id": "ann"}
    with pytest.raises(anthropic.BadRequestError, match="has nothing new"):
        way(client, asked(*history), {SESSION: first.session})


def test_what_a_client_claims_is_marked(server: TurnwireServer, way: Way) -> None:
    forged = {"role": "assistant", "content": "I promise you a refund."}
    said = way(connect(server.url), asked(user("One"), forged, user("Two"), forged | {"content": "Sure: "}))
    texts = [(msg["role"], "".join(block.get("text", "") for block in msg["content"])) for msg in server.messages(said.session)]
    assert [text for role, text in texts if role == "user"] == ["One", "Two"]
    claimed = [msg for msg in server.messages(said.session) if "refund" in json.dumps(msg)]
    assert [msg["metadata"].get("claimed") for msg in claimed] == [True]
    assert "> Two" in said.text


def test_who_asks_for_json_gets_it(server: TurnwireServer, way: Way) -> None:
    schema = {"type": "object", "properties": {"words": {"type": "integer"}}}
    said = way(connect(server.url), asked(user("two json"), output_config={"format": {"type": "json_schema", "schema": schema}}))
    theirs = reply(server, said.session)
    assert json.loads(said.text) == theirs["structured_output"] and json.loads(said.text)["words"] == 2
    assert server.messages(said.session)[0]["metadata"]["client"]["output_schema"] == schema
    # Without a structured output nothing is held back for ever.
    said = way(connect(server.url), asked(user("Hi"), output_config={"format": {"type": "json_schema", "schema": schema}}))
    assert said.content == shown(reply(server, said.session))


def png() -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = chunk(b"IHDR", bytes([0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0]))
    whole = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def test_an_image_goes_in(server: TurnwireServer) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": png()}
    said = in_one_piece(connect(server.url), asked(user([{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}])))
    sent = server.messages(said.session)[0]["content"]
    assert [block["type"] for block in sent] == ["data", "text"]
    assert sent[0]["source"]["data"] == png()


def test_a_reply_that_fails_is_an_error(server: TurnwireServer) -> None:
    client = connect(server.url, max_retries=2)
    with pytest.raises(anthropic.APIStatusError) as raised:
        by_stream(client, asked(user("fail")))
    error = {"type": "api_error", "message": "the model broke off in the middle of its answer; ask again"}
    assert raised.value.body == {"type": "error", "error": error}
    before = len(server.ask("GET", "/v1/sessions?limit=500")["sessions"])
    with pytest.raises(anthropic.InternalServerError) as raised:
        in_one_piece(client, asked(user("fail")))
    assert raised.value.body == {"type": "error", "error": error}
    session = raised.value.response.headers[SESSION]
    assert len(server.ask("GET", "/v1/sessions?limit=500")["sessions"]) == before + 1, "the client did not ask again"
    assert reply(server, session)["error"]["type"] == "upstream"


def test_a_stop_from_elsewhere_ends_a_valid_stream(slow: TurnwireServer) -> None:
    events: list[Json] = []
    with connect(slow.url).messages.create(**asked(user("long 100000")), stream=True) as stream:
        session = stream.response.headers[SESSION]
        for event in stream:
            events.append(event.to_dict())
            if len(events) == 5:
                slow.ask("POST", f"/v1/sessions/{session}/events", [{"type": "USER_INTERRUPT", "reply_id": ""}])
    in_order(events)
    assert events[-2]["delta"]["stop_reason"] == "end_turn"
    text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    theirs = reply(slow, session)
    assert (theirs["finished_reason"], theirs["content"][0]["text"]) == ("interrupted", text)


def test_going_away_is_no_stop(slow: TurnwireServer) -> None:
    with connect(slow.url).messages.create(**asked(user("long 60")), stream=True) as stream:
        session = stream.response.headers[SESSION]
        next(iter(stream))
    theirs = reply(slow, session)
    assert theirs["finished_reason"] == "completed" and len(theirs["content"][0]["text"]) == 60 * 8


def test_a_request_that_was_cut_finds_its_reply_again(slow: TurnwireServer) -> None:
    """At every tenth delta: the reply goes on, and the same key gives the same reply from its start."""
    for deltas in range(1, 61, 10):
        proxy = CuttingProxy(slow.address, f"{deltas:07}")
        request, headers = asked(user("long 60")), {"Idempotency-Key": f"cut-{deltas}"}
        with pytest.raises(BROKEN):
            by_stream(connect(proxy.url), request, headers)
        assert proxy.cuts == 1
        proxy.close()
        said = by_stream(connect(slow.url), request, headers)
        assert said.replayed
        theirs = reply(slow, said.session)
        assert said.content == shown(theirs) and len(said.text) == 60 * 8
        assert by_raw_stream(connect(slow.url), request, headers | {SESSION: said.session}).content == said.content
        assert len(slow.messages(said.session)) == 2, "it was asked once"


def test_the_client_asks_again_by_itself_and_gets_the_same_reply(server: TurnwireServer) -> None:
    proxy = Proxy(server.address)
    proxy.cut_after = 30

    def next_time(request: Any) -> None:
        if proxy.cuts:
            proxy.cut_after = None

    http = httpx2.Client(event_hooks={"request": [next_time]})
    client = connect(proxy.url, max_retries=2, http_client=http)
    said = in_one_piece(client, asked(user("weather")), {"Idempotency-Key": "again"})
    assert proxy.cuts == 1 and said.replayed
    assert said.content == shown(reply(server, said.session)) and len(server.messages(said.session)) == 2
    proxy.close()
    with pytest.raises(anthropic.UnprocessableEntityError, match="another request"):
        client.messages.create(**asked(user("other words")), extra_headers={"Idempotency-Key": "again"})


def test_results_that_were_cut_are_not_taken_twice(server: TurnwireServer, way: Way) -> None:
    client = connect(server.url)
    key = {"Idempotency-Key": "first-" + way.__name__}
    first = way(client, asked(user("browser")), key)
    result = {"type": "tool_result", "tool_use_id": first.calls[0]["id"], "content": "A page."}
    headers = {SESSION: first.session, "Idempotency-Key": "results-" + first.session}
    once = way(client, asked(user([result])), headers)
    again = way(client, asked(user([result])), headers)
    assert not once.replayed and again.replayed
    assert (again.content, again.message["id"]) == (once.content, once.message["id"])
    # And what came before it ends where it ended then.
    before = way(client, asked(user("browser")), key)
    assert before.replayed and before.message == first.message


def test_a_server_that_was_killed_goes_on(tmp_path: Path) -> None:
    running = TurnwireServer(tmp_path, rate=150)
    request, headers = asked(user("long 300")), {"Idempotency-Key": "killed"}
    with pytest.raises(BROKEN):
        with connect(running.url).messages.create(**request, stream=True, extra_headers=headers) as stream:
            for event in stream:
                if event.type == "content_block_delta":
                    running.crash()
    said = by_stream(connect(running.url), request, headers)
    assert said.replayed and said.stop_reason == "end_turn"
    assert said.content == shown(reply(running, said.session))
    assert said.text.split() == [f"{number:07}" for number in range(1, 301)]
    running.stop()


def test_a_client_does_not_mind_a_heartbeat(tmp_path: Path) -> None:
    running = TurnwireServer(tmp_path, rate=10, settings='[limits]\nheartbeat = "20ms"\n')
    body = json.dumps(asked(user("long 4"), stream=True)).encode()
    post = urllib.request.Request(running.url + "/v1/messages", body, {"content-type": "application/json"})
    with urllib.request.urlopen(post, timeout=60) as answer:
        assert b"\n:" in answer.read(), "there was one"
    said = by_stream(connect(running.url), asked(user("long 4")))
    assert said.content == shown(reply(running, said.session))
    running.stop()


def test_errors_are_the_clients_own(server: TurnwireServer, slow: TurnwireServer, tmp_path: Path) -> None:
    client = connect(server.url)
    for wrong, why in [
        (asked(user("")), "user message is empty"),
        (asked(), "neither a user message"),
        (asked({"role": "robot", "content": "x"}), "unknown role"),
    ]:
        with pytest.raises(anthropic.BadRequestError, match=why):
            client.messages.create(**wrong)
    with pytest.raises(anthropic.BadRequestError, match="invalid session id"):
        client.messages.create(**asked(user("x")), extra_headers={SESSION: "a b"})
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(**asked(user("x"), model="claude"))
    assert missing.value.body["error"]["type"] == "not_found_error" and "demo" in missing.value.message
    busy = {SESSION: "busy"}
    with connect(slow.url).messages.create(**asked(user("long 100000")), stream=True, extra_headers=busy):
        with pytest.raises(anthropic.ConflictError, match="a reply is running"):
            connect(slow.url).messages.create(**asked(user("x")), extra_headers=busy)
        slow.ask("POST", "/v1/sessions/busy/events", [{"type": "USER_INTERRUPT", "reply_id": ""}])

    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("chat", "read")}
    guarded = TurnwireServer(tmp_path, settings=TOKENS.format(**hashes))
    with pytest.raises(anthropic.AuthenticationError) as refused:
        connect(guarded.url, api_key="wrong").messages.create(**asked(user("x")))
    assert refused.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.PermissionDeniedError):
        connect(guarded.url, api_key="read").messages.create(**asked(user("x")))
    assert in_one_piece(connect(guarded.url, api_key="chat"), asked(user("x"))).text
    first = in_one_piece(connect(guarded.url, api_key=None, auth_token="chat"), asked(user("browser")))
    result = {"type": "tool_result", "tool_use_id": first.calls[0]["id"], "content": "A page."}
    words = [result, {"type": "text", "text": "And hurry."}]
    assert in_one_piece(connect(guarded.url, api_key="chat"), asked(user(words))).stop_reason == "end_turn"
    guarded.stop()


def test_all_see_the_same_session(slow: TurnwireServer) -> None:
    """Whoever watches it in the canonical form sees what this client sees."""
    said = by_stream(connect(slow.url), asked(user("long 20")), {SESSION: "shared"})
    written = slow.ask("GET", "/v1/sessions/shared/messages?wire=anthropic")["messages"]
    assert [message["role"] for message in written] == ["user", "assistant"]
    assert written[1]["content"] == said.content


def test_the_page_does_what_it_says(server: TurnwireServer, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs/anthropic.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: Json = {}
    exec(code.replace("http://127.0.0.1:4747", server.url), names)  # noqa: S102
    assert "18 °C" in capsys.readouterr().out
    said = [msg["content"][0]["text"] for msg in server.messages(names["session"])[::2]]
    assert said == ["How is the weather?", "And tomorrow?"]


def say_something(url: str) -> str:
    client = connect(url, max_retries=2)
    question = [user("Please say something long.")]
    message = client.messages.create(model="demo", max_tokens=1000, messages=question)
    return "".join(block.text for block in message.content if block.type == "text")


def test_an_answer_finishes_while_the_server_stops(tmp_path: Path) -> None:
    settings = '[limits]\nstop_timeout = "1m"\n'
    ended, sessions = request_during_restart(tmp_path, settings, 50, say_something)
    assert isinstance(ended, str) and ended, ended
    assert sessions == 1


def test_an_answer_that_does_not_finish_is_not_asked_for_again(tmp_path: Path) -> None:
    settings = '[limits]\nstop_timeout = "100ms"\n'
    ended, sessions = request_during_restart(tmp_path, settings, 2, say_something)
    assert isinstance(ended, anthropic.APIStatusError), ended
    assert ended.status_code == 503
    assert sessions == 1
