"""`examples/fastapi-agentscope`: the real service, with AgentScope's own model at a fake provider."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from example import Example
from fake_provider import FakeProvider
from turnwire_server import TurnwireServer, until

import turnwire


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    running = FakeProvider()
    yield running
    if running.hold:
        running.hold.set()
    running.close()


@pytest.fixture
def service(server: TurnwireServer, provider: FakeProvider, tmp_path: Path) -> Iterator[Example]:
    env = {"TURNWIRE_URL": server.url, "OPENAI_API_KEY": "key", "OPENAI_BASE_URL": f"{provider.url}/v1"}
    example = Example("fastapi-agentscope", tmp_path, **env)
    example.start()
    yield example
    example.stop()


@pytest.fixture
def chat(service: Example, client: turnwire.Client) -> turnwire.Session:
    return create_chat(service, client)


def create_chat(service: Example, client: turnwire.Client) -> turnwire.Session:
    with post_chat(service, "application/json") as response:
        assert response.status == 201
        made = json.load(response)
    assert made["url"] == f"{client.url}/v1/sessions/{made['id']}"
    return client.session(made["id"])


def post_chat(service: Example, content_type: str) -> Any:
    headers = {"content-type": content_type}
    return urllib.request.urlopen(urllib.request.Request(f"{service.url}/chats", b'{"title": "Notes"}', headers))


def notes(service: Example) -> list[str]:
    file = service.folder / "notes.txt"
    return file.read_text().splitlines() if file.exists() else []


def wait_idle(chat: turnwire.Session, messages: int) -> list[turnwire.Msg]:
    """The messages, when there are so many and no reply is open."""

    def done() -> Any:
        page = chat.history(limit=100)
        found = [turnwire.Msg(msg) for msg in page["messages"]]
        is_done = page["status"] == "idle" and len(found) >= messages and found[-1].role == "assistant"
        return is_done and found

    found: list[turnwire.Msg] = until(done, f"there are never {messages} messages")
    assert len(found) == messages
    return found


def check_log(chat: turnwire.Session) -> None:
    """Nothing is missing from the log, or in it twice, and it folds to the messages."""
    body = chat.export()
    events = [json.loads(line) for line in body.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    ids = [event["id"] for event in events]
    assert len(set(ids)) == len(ids)
    ends = [event["reply_id"] for event in events if event["type"] == "REPLY_END"]
    assert len(set(ends)) == len(ends)
    folder = turnwire.Folder()
    folder.feed(body)
    assert [msg.to_dict() for msg in folder.history()] == chat.history(limit=100)["messages"]


def hold_reply(chat: turnwire.Session, provider: FakeProvider, words: str) -> threading.Event:
    """Has the provider wait in the middle of its answer, when the first half is stored."""
    provider.hold = hold = threading.Event()
    held = provider.held
    sent = chat.send(words)
    until(lambda: provider.held > held, "the provider is not asked")
    with chat.watch(after=sent["last_event_id"]) as watch:
        next(event for event in watch if event["type"] == "TEXT_BLOCK_DELTA")
    return hold


def test_clients_talk_to_the_agent_through_turnwire(chat: turnwire.Session, provider: FakeProvider) -> None:
    reply = chat.ask("hello")
    assert (reply.name, reply.finished_reason) == ("friday", "completed")
    assert reply.get_text_content() == provider.log[0]["answer"]["text"]
    reply = chat.ask("Please [get_time Europe/Oslo]")
    [result] = reply.get_content_blocks("tool_result")
    assert result["state"] == "success"
    # The agent remembers what was said.
    assert "hello" in json.dumps(provider.log[-1]["body"])
    check_log(chat)


def test_each_chat_has_an_agent_of_its_own(
    service: Example, client: turnwire.Client, chat: turnwire.Session, provider: FakeProvider
) -> None:
    chat.ask("my secret")
    create_chat(service, client).ask("hello")
    assert "secret" not in json.dumps(provider.log[-1]["body"])


def test_a_page_of_another_origin_creates_no_chat(service: Example, client: turnwire.Client) -> None:
    # Of the types of JSON, browsers send only this one without a preflight, which the service does not answer.
    with pytest.raises(urllib.error.HTTPError, match="422") as refused:
        post_chat(service, "text/plain")
    refused.value.close()
    assert list(client.each_session()) == []


def test_an_approval_outlives_the_service(service: Example, chat: turnwire.Session) -> None:
    reply = chat.ask("Please [add_note plants]")
    [call] = reply.get_content_blocks("tool_call")
    assert call["state"] == "asking"
    service.kill()
    chat.approve({"reply_id": reply.id, "tool_call": call}, input={"note": "the plants"})
    assert notes(service) == []
    service.start()
    _, answered = wait_idle(chat, 2)
    assert (answered.id, answered.finished_reason) == (reply.id, "completed")
    assert notes(service) == ["the plants"]
    check_log(chat)


def test_a_killed_service_loses_and_repeats_nothing(
    service: Example, chat: turnwire.Session, provider: FakeProvider
) -> None:
    chat.ask("Please [get_time Europe/Oslo]")
    hold = hold_reply(chat, provider, "one")
    service.kill()
    provider.hold = None
    hold.set()
    chat.send("two", queue=True)
    service.start()
    *_, broken, second, answer = wait_idle(chat, 6)
    whole = provider.log[2]["answer"]["text"]
    said = broken.get_text_content()
    assert broken.finished_reason == "interrupted"
    assert said
    assert whole.startswith(said)
    assert said != whole
    assert second.get_text_content() == "two"
    assert answer.finished_reason == "completed"
    assert answer.get_text_content() == provider.log[-1]["answer"]["text"]
    # One request for each call of the model: nothing was asked again.
    assert len(provider.log) == 4
    check_log(chat)


def test_messages_that_came_while_the_service_was_away_are_answered(
    service: Example, chat: turnwire.Session, provider: FakeProvider
) -> None:
    service.kill()
    chat.send("hello")
    service.start()
    _, answer = wait_idle(chat, 2)
    assert "hello" in (answer.get_text_content() or "")
    # Killed again, it does not answer again.
    service.kill()
    service.start()
    assert "again" in (chat.ask("again").get_text_content() or "")
    assert len(provider.log) == 2
    check_log(chat)


def test_a_killed_turnwire_loses_and_repeats_nothing(
    server: TurnwireServer, chat: turnwire.Session, provider: FakeProvider
) -> None:
    hold = hold_reply(chat, provider, "hello")
    server.crash()
    provider.hold = None
    hold.set()
    _, answer = wait_idle(chat, 2)
    assert answer.finished_reason == "completed"
    assert answer.get_text_content() == provider.log[0]["answer"]["text"]
    check_log(chat)


def test_a_service_that_is_stopped_ends_its_replies(
    service: Example, chat: turnwire.Session, provider: FakeProvider
) -> None:
    hold = hold_reply(chat, provider, "hello")
    service.stop()
    hold.set()
    _, answer = wait_idle(chat, 2)
    assert answer.finished_reason == "interrupted"


def test_a_deleted_chat_does_not_come_back(service: Example, client: turnwire.Client, chat: turnwire.Session) -> None:
    chat.ask("hello")
    chat.delete()
    until(lambda: "no such session" in service.log.read_text(), "the service does not notice")
    service.kill()
    service.start()
    assert list(client.each_session()) == []
