"""The synchronous client against the real server."""

from __future__ import annotations

import hashlib
import json
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from turnwire_server import TurnwireServer, until

import turnwire
from conftest import FAST, RandomProxy, SilentProxy
from turnwire import Client, Folder, Msg, TurnwireError
from turnwire._io import SyncStop
from turnwire._view import ViewState
from turnwire.api import Asking


def asking(reply: Msg) -> Asking:
    """The call of a reply that waits."""
    [call] = [call for call in reply.get_content_blocks("tool_call") if call["state"] in ("asking", "submitted")]
    return {"reply_id": reply.id, "tool_call": call}


def folded(events: list[Any]) -> list[Any]:
    folder = Folder()
    for event in events:
        folder.push(event)
    return [msg.to_dict() for msg in folder.history()]


def test_a_question_is_answered(client: Client) -> None:
    session = client.create(title="Weather")
    reply = session.ask("How is the weather?")
    assert reply.role == "assistant"
    assert reply.finished_reason == "completed"
    assert reply.get_content_blocks("tool_call")[0]["name"] == "get_weather"
    assert session.get()["title"] == "Weather"
    assert [msg["role"] for msg in session.history()["messages"]] == ["user", "assistant"]


def test_every_event_is_delivered_and_folds_to_the_history(client: Client) -> None:
    session = client.create()
    session.send("weather")
    events = list(session.watch(until="idle"))
    assert events[-1]["type"] == "REPLY_END"
    assert folded(events) == session.history()["messages"]
    folder = Folder()
    folder.feed(session.export())
    assert [msg.to_dict() for msg in folder.history()] == session.history()["messages"]


def test_a_watch_resumes_after_any_event(client: Client) -> None:
    session = client.create()
    session.ask("hello")
    watch = session.watch(until="idle", raw=True)
    tokens = [(event["type"], watch.last_event_id) for event in watch]
    for at, (_, token) in enumerate(tokens):
        rest = [event["type"] for event in session.watch(after=token, until="idle", raw=True)]
        assert rest == [kind for kind, _ in tokens[at + 1 :]]
    assert list(session.watch(after=session.get()["last_event_id"], until="idle")) == []


def test_a_call_is_approved_with_an_edited_input(client: Client) -> None:
    session = client.create()
    reply = session.ask("please approve the trade")
    assert session.get()["status"] == "waiting"
    session.approve(asking(reply), input={"symbol": "ACME", "quantity": 7})
    list(session.watch(until="idle"))
    done = session.message(reply.id)
    assert json.loads(done.get_content_blocks("tool_call")[0]["input"])["quantity"] == 7
    assert done.get_content_blocks("tool_result")[0]["state"] == "success"
    [decision] = session.decisions()["decisions"]
    assert (decision["confirmed"], decision.get("client")) == (True, "tests")
    with pytest.raises(TurnwireError) as error:
        session.approve(asking(reply))
    assert error.value.status == 409


def test_a_call_is_denied_with_a_reason(client: Client) -> None:
    session = client.create()
    reply = session.ask("please approve the trade")
    assert client.approvals()[0]["session_id"] == session.id
    session.deny(asking(reply), "too expensive")
    list(session.watch(until="idle"))
    assert session.message(reply.id).get_content_blocks("tool_result")[0]["state"] == "denied"
    assert session.decisions()["decisions"][0].get("reason") == "too expensive"


def test_the_client_executes_a_tool(client: Client) -> None:
    session = client.create()
    reply = session.ask("use my browser")
    session.result(asking(reply), "Example Domain")
    list(session.watch(until="idle"))
    assert session.message(reply.id).get_content_blocks("tool_result")[0]["output"] == "Example Domain"


def test_a_reply_is_stopped_and_another_message_waits(start_server: Callable[..., TurnwireServer]) -> None:
    running = start_server(rate=50)
    with Client(running.url, retry=FAST) as client:
        session = client.create()
        session.send("long 100000")
        with pytest.raises(TurnwireError) as busy:
            session.send("hello")
        assert (busy.value.type, busy.value.status) == ("busy", 409)
        assert busy.value.hint
        first = session.send("hello", queue=True)
        second = session.send("hello", queue=True)
        assert [queued["message_id"] for queued in session.get()["queued"]] == [
            first["message_id"],
            second["message_id"],
        ]
        session.cancel(second["message_id"])
        session.stop()
        ends = 0
        for event in session.watch():
            ends += event["type"] == "REPLY_END"
            if ends == 2:
                break
        reasons = [msg["finished_reason"] for msg in session.history()["messages"] if msg["role"] == "assistant"]
        assert reasons == ["interrupted", "completed"]
        session.stop()


def test_a_message_is_answered_again(client: Client) -> None:
    session = client.create()
    session.ask("hello")
    question = session.history()["messages"][0]
    session.retry(question["id"], "hello again")
    list(session.watch(until="idle"))
    page = session.history()
    assert [Msg(msg).get_text_content() for msg in page["messages"] if msg["role"] == "user"] == ["hello again"]
    assert len(session.history(superseded=True)["messages"]) == 4


def test_sessions_are_listed_searched_renamed_forked_and_deleted(client: Client) -> None:
    word = "zephyr" + turnwire._common.new_id()[:8]
    made = [client.create(title=f"{word} {n}") for n in range(3)]
    made[0].ask("hello")
    found = client.sessions(q=word, limit=2)
    assert len(found["sessions"]) == 2
    rest = client.sessions(q=word, limit=2, cursor=found.get("next_cursor"))
    assert len(rest["sessions"]) == 1
    assert {info["id"] for info in client.each_session(q=word)} == {session.id for session in made}
    assert made[0].rename("Other")["title"] == "Other"
    assert made[0].update(metadata={"a": 1})["metadata"] == {"a": 1}
    assert made[0].search("hello")[0]["message_id"]
    copy = made[0].fork(title="Copy")
    assert copy.history()["messages"] == made[0].history()["messages"]
    copy.delete()
    with pytest.raises(TurnwireError) as error:
        copy.get()
    assert (error.value.type, error.value.status, error.value.is_temporary) == ("not_found", 404, False)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_pages_of_messages_go_back_to_the_first(client: Client) -> None:
    session = client.create()
    for n in range(3):
        session.ask(f"hello {n}")
    messages: list[Any] = []
    before: str | None = None
    while True:
        page = session.history(limit=2, before=before)
        messages = page["messages"] + messages
        before = page.get("next_before")
        if not before:
            break
    assert messages == session.history()["messages"]
    assert len(messages) == 6
    early = session.message(messages[1]["id"], at=3)
    assert early.finished_at is None


def test_the_rest_of_the_api(client: Client) -> None:
    assert client.me()["scopes"]
    agents = client.agents(usage=True)
    assert agents["default_agent"] in [agent["name"] for agent in agents["agents"]]
    blob = client.upload(b"\x89PNG", "image/png")
    assert blob["size"] == 4
    assert client.ticket()["expires_in"] == 60
    session = client.create()
    picture = {"type": "data", "source": {"type": "url", "url": blob["url"]}}
    session.ask([{"type": "text", "text": "look"}, picture])
    session.ask(Msg.user("again", name="alice"))
    assert session.history()["messages"][2]["name"] == "alice"
    session.hint("The build is green.", source="ci")
    assert any(msg["content"][0]["type"] == "hint" for msg in session.history()["messages"])


def test_a_view_follows_a_conversation(client: Client) -> None:
    session = client.create()
    session.ask("hello")
    with session.view() as view:
        assert [msg.role for msg in view.messages] == ["user", "assistant"]
        first = view.messages[0]
        session.send("please approve the trade")
        for event in view:
            if event["type"] == "REQUIRE_USER_CONFIRM":
                break
        assert (view.status, view.streaming is not None) == ("waiting", True)
        [approval] = view.pending
        assert (approval["kind"], approval["tool_call"]["name"]) == ("confirm", "execute_trade")
        assert approval["expires_at"]
        session.approve(approval)
        for event in view:
            if event["type"] == "REPLY_END":
                break
        assert (view.status, view.streaming, view.pending, view.problem) == ("idle", None, [], None)
        assert view.messages[0] is first
        assert [msg.to_dict() for msg in view.messages] == session.history()["messages"]


def test_a_view_loads_earlier_messages_and_those_of_sub_agents(client: Client) -> None:
    session = client.create()
    session.ask("hello")
    session.ask("ask the team")
    with session.view(limit=2) as view:
        assert view.has_more
        while view.has_more:
            view.load_more()
        assert [msg.to_dict() for msg in view.messages] == session.history()["messages"]
        assert view.agents
        assert all(origin.get("parent_tool_call_id") for _, origin in view.agents)


def test_no_event_is_lost_when_connections_break_at_random(server: TurnwireServer) -> None:
    proxy = RandomProxy(server.address)
    with Client(proxy.url, retry=FAST) as client:
        session = client.create()
        session.send("weather")
        events = list(session.watch(until="idle", raw=True))
        numbers = [event.get("seq") for event in events]
        assert numbers == list(range(1, len(events) + 1))
        session.ask("long 200")
        assert proxy.cuts > 3
    proxy.close()


def test_a_connection_that_goes_silent_is_opened_again(server: TurnwireServer) -> None:
    proxy = SilentProxy(server.address)
    with Client(server.url) as client:
        name = client.create().id
        client.session(name).send("long 200")
    with Client(proxy.url, retry=FAST, silence=0.5) as client:
        session = client.session(name)
        proxy.silent_after = 2000
        states: list[str] = []
        watch = session.watch(until="idle", on_connection=lambda connection: states.append(connection.state))
        assert list(watch)[-1]["type"] == "REPLY_END"
        assert proxy.silences == 1
        assert states[:4] == ["connecting", "live", "waiting", "connecting"]
        assert states[-1] == "closed"
        assert watch.connection.error is None
    proxy.close()


def test_a_watch_survives_a_killed_server(start_server: Callable[..., TurnwireServer]) -> None:
    running = start_server(rate=200)
    with Client(running.url, retry=FAST) as client:
        session = client.create()
        session.send("long 200")
        events: list[Any] = []
        for event in session.watch(until="idle", raw=True):
            events.append(event)
            if len(events) == 50:
                running.crash()
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert folded(events) == session.history()["messages"]
        assert folded(events)[1]["finished_reason"] == "completed"


def test_a_session_that_is_created_again_begins_again(client: Client) -> None:
    session = client.create()
    session.ask("hello")
    token = session.get()["last_event_id"]
    session.delete()
    again = client.create(session.id)
    again.ask("weather")
    events = list(again.watch(after=token, until="idle"))
    assert events[0]["type"] == "RESET"
    assert folded(events) == again.history()["messages"]


def test_a_watch_that_cannot_continue_raises(client: Client) -> None:
    watch = client.session("missing").watch()
    with pytest.raises(TurnwireError) as error:
        next(watch)
    assert error.value.type == "not_found"
    assert watch.connection.error is error.value


def test_another_thread_ends_a_watch(client: Client) -> None:
    session = client.create()
    watch = session.watch()
    live = threading.Event()
    seen: list[Any] = []

    def read() -> None:
        for event in watch:
            seen.append(event)
        live.set()

    thread = threading.Thread(target=read)
    thread.start()
    session.ask("hello")
    until(lambda: seen and seen[-1]["type"] == "REPLY_END", "the thread sees no end")
    watch.close()
    thread.join(10)
    assert not thread.is_alive()
    assert watch.connection == turnwire.Connection("closed")


def test_a_watch_that_is_closed_gives_its_connection_back(client: Client) -> None:
    session = client.create()
    session.ask("hello")
    with session.watch() as watch:
        next(watch)
        assert client.http.stops
    assert watch.connection == turnwire.Connection("closed")
    assert not client.http.stops
    assert list(watch) == []


def test_a_view_that_is_read_misses_nothing_of_another_thread(client: Client) -> None:
    """A thread folds the last event exactly while another one copies the messages."""
    session = client.create()
    session.ask("hello")
    *events, last = session.watch(until="idle")
    view, folding = ViewState(), threading.Thread(target=lambda: view._fold(last))
    for event in events:
        view._fold(event)

    class Slow:
        def __init__(self, folder: Folder) -> None:
            self.folder = folder

        def __getattr__(self, name: str) -> Any:
            return getattr(self.folder, name)

        def get(self, id: str) -> Msg | None:
            found = self.folder.get(id)
            if found is not None and found.role == "assistant" and not folding.ident:
                folding.start()
                # It ends now, or waits until the messages are copied.
                folding.join(0.5)
            return found

    view._folder = Slow(view._folder)  # type: ignore[assignment]
    assert len(view.messages) == 2
    folding.join()
    assert [msg.to_dict() for msg in view.messages] == session.history()["messages"]


def test_a_pause_that_is_ended_exactly_when_it_begins_ends() -> None:
    stop = SyncStop()

    class Racing(threading.Event):
        def clear(self) -> None:
            # Another thread closes the watch now.
            stop.set()
            super().clear()

    stop._woken = Racing()
    pause = threading.Thread(target=stop.wait, args=(60,), daemon=True)
    pause.start()
    pause.join(10)
    assert not pause.is_alive()


def test_threads_share_a_client(client: Client) -> None:
    replies: list[str | None] = []

    def work() -> None:
        replies.append(client.create().ask("hello").get_text_content())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(replies) == 8
    assert all(replies)


def test_a_server_that_is_away_is_an_error_that_says_so() -> None:
    with Client("http://127.0.0.1:9", retry=FAST, patience=0.2) as client:
        with pytest.raises(TurnwireError, match=r"no response from http://127\.0\.0\.1:9") as error:
            client.me()
        assert (error.value.type, error.value.status, error.value.is_temporary) == ("lost", 0, True)


def test_the_token_is_asked_for_before_each_request(
    start_server: Callable[..., TurnwireServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(b"secret-secret-secret").hexdigest()
    running = start_server(
        settings=f'[[auth.tokens]]\ntenant = "default"\nsha256 = "{digest}"\nscopes = ["read", "chat"]\n'
    )
    tokens = iter(["wrong-wrong-wrong-wrong", "secret-secret-secret"])
    client = Client(running.url, token=lambda: next(tokens))
    with pytest.raises(TurnwireError) as error:
        client.me()
    assert error.value.type == "unauthorized"
    assert client.me()["scopes"] == ["read", "chat"]
    client.close()
    monkeypatch.setenv("TURNWIRE_URL", running.url)
    monkeypatch.setenv("TURNWIRE_TOKEN", "secret-secret-secret")
    with Client() as client:
        assert client.me()["tenant"]
