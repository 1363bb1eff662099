"""The publisher against the real server: nothing is lost, doubled or reordered, whoever dies."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from turnwire_server import TurnwireServer, until

from conftest import FAST, RandomProxy
from turnwire import Client, Folder, Publisher, ReplyWriter, TurnwireError


@pytest.fixture
def session(client: Client) -> str:
    return client.create(agent="external").id


@pytest.fixture
def publish(server: TurnwireServer) -> Iterator[Callable[..., Publisher]]:
    made: list[Publisher] = []

    def publish(session: str, **options: Any) -> Publisher:
        made.append(Publisher(session, **{"url": server.url, "retry": FAST, **options}))
        return made[-1]

    yield publish
    for one in made:
        if one.error is None:
            one.close(10)


def story(send: Callable[[Any], object], words: int = 50, id: str | None = None) -> ReplyWriter:
    """A reply with a text of so many words."""
    reply = ReplyWriter(send, name="friday", id=id)
    for at in range(words):
        reply.text(f"word{at} ")
    return reply


def texts(client: Client, session: str) -> list[str | None]:
    folder = Folder()
    folder.feed(client.session(session).export())
    return [msg.get_text_content() for msg in folder.history()]


def whole(words: int) -> str:
    return "".join(f"word{at} " for at in range(words))


def test_a_reply_is_durable_when_flush_returns(client: Client, publish: Callable[..., Publisher], session: str) -> None:
    publisher = publish(session)
    reply = story(publisher.send)
    reply.thinking("hm")
    reply.tool_call("c1", "search", {"q": "x"})
    reply.model_call_end(input_tokens=3, output_tokens=4)
    reply.tool_result("c1", "search", [{"type": "text", "text": "found"}])
    reply.end(structured_output={"a": 1})
    publisher.flush(10)
    msg = client.session(session).message(reply.id)
    assert [block["type"] for block in msg.content] == ["text", "thinking", "tool_call", "tool_result"]
    assert msg.get_text_content() == whole(50)
    assert (msg.finished_reason, msg.structured_output, msg.name) == ("completed", {"a": 1}, "friday")
    assert msg.usage is not None
    assert (msg.usage["input_tokens"], msg.usage["output_tokens"]) == (3, 4)
    assert publisher.last_event_id == client.session(session).get()["last_event_id"]
    assert publisher.stored == client.session(session).get()["last_seq"]


def test_the_session_is_created_by_the_first_event(client: Client, publish: Callable[..., Publisher]) -> None:
    name = client.create().id + "-new"
    publisher = publish(name)
    story(publisher.send).end()
    publisher.close(10)
    assert client.session(name).get()["agent"] == "external"
    assert texts(client, name) == [whole(50)]
    with pytest.raises(RuntimeError, match="closed"):
        publisher.send({"type": "CUSTOM", "name": "x", "value": 1})


def test_a_session_that_is_deleted_does_not_come_back(
    client: Client, publish: Callable[..., Publisher], session: str
) -> None:
    publisher = publish(session)
    reply = story(publisher.send)
    publisher.flush(10)
    client.session(session).delete()
    reply.end()
    with pytest.raises(TurnwireError) as error:
        publisher.flush(10)
    assert error.value.type == "not_found"
    with pytest.raises(TurnwireError):
        client.session(session).get()


def test_connections_that_break_neither_lose_nor_double_an_event(
    client: Client, server: TurnwireServer, publish: Callable[..., Publisher], session: str
) -> None:
    proxy = RandomProxy(server.address)
    proxy.longest = 600
    publisher = publish(session, url=proxy.url)
    for at in range(20):
        story(publisher.send, 100).end()
        if at % 3 == 0:
            publisher.flush(30)
    publisher.flush(30)
    assert texts(client, session) == [whole(100)] * 20
    assert proxy.cuts > 2
    proxy.close()


def test_a_killed_server_loses_nothing(start_server: Callable[..., TurnwireServer]) -> None:
    running = start_server()
    with Client(running.url, retry=FAST) as client, Publisher("s", url=running.url, retry=FAST) as publisher:
        stop = threading.Event()

        def kill() -> None:
            while not stop.wait(0.2):
                running.crash()

        killer = threading.Thread(target=kill)
        killer.start()
        for _ in range(60):
            story(publisher.send, 100).end()
            publisher.flush(60)
        stop.set()
        killer.join()
        assert texts(client, "s") == [whole(100)] * 60


PROGRAM = """
    import sys, turnwire
    url, spool = sys.argv[1:]
    publisher = turnwire.Publisher("s", url=url, producer="worker", fence=7, spool=spool)
    reply = turnwire.ReplyWriter(publisher.send, name="friday", id="r")
    for at in range(5000):
        reply.text(f"word{at} ")
        if at == 3000:
            print("written", flush=True)
            sys.stdin.readline()
"""


def test_a_killed_process_loses_nothing_that_it_has_sent(
    start_server: Callable[..., TurnwireServer], tmp_path: Path
) -> None:
    running = start_server()
    spool = tmp_path / "spool"
    # The server is away for as long as the process lives: all is in its file.
    running.process.send_signal(signal.SIGSTOP)
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), running.url, str(spool)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"written\n"
        with pytest.raises(TurnwireError, match="is in use"):
            Publisher("s", url=running.url, spool=spool)
        process.kill()
    running.process.send_signal(signal.SIGCONT)
    with Client(running.url, retry=FAST) as client:
        again = Publisher("s", url=running.url, producer="worker", fence=7, spool=spool, retry=FAST)
        again.flush(30)
        assert client.session("s").message("r").get_text_content() == whole(3001)
        # It goes on where it was.
        story(again.send, 2, id="r2")
        again.close(30)
        assert client.session("s").get()["status"] == "running"
    assert spool.read_bytes() == b""


def test_half_a_line_at_the_end_of_a_spool_is_left_out(
    client: Client, publish: Callable[..., Publisher], session: str, tmp_path: Path
) -> None:
    events: list[dict[str, Any]] = []
    story(events.append).end()
    lines = [json.dumps({"id": f"e{at}", **event}) for at, event in enumerate(events)]
    spool = tmp_path / "spool"
    spool.write_text("\n".join(lines) + '\n{"id": "half')
    publish(session, spool=spool).flush(10)
    assert texts(client, session) == [whole(50)]


def test_the_end_of_a_program_waits_for_its_events(server: TurnwireServer, client: Client, session: str) -> None:
    program = """
        import sys, turnwire
        publisher = turnwire.Publisher(sys.argv[1], url=sys.argv[2])
        reply = turnwire.ReplyWriter(publisher.send)
        for at in range(2000):
            reply.text(f"word{at} ")
        reply.end()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), session, server.url], check=True, timeout=60)
    assert texts(client, session) == [whole(2000)]


def test_a_later_run_takes_over_and_fences_the_earlier_one_out(
    client: Client, publish: Callable[..., Publisher], session: str
) -> None:
    old = publish(session, producer="worker", fence=1)
    reply = story(old.send)
    old.flush(10)
    new = publish(session, producer="worker", fence=2)
    for event in [{"type": "TEXT_BLOCK_END", "reply_id": reply.id, "block_id": "?"}]:
        new.send(event)
    new.flush(10)
    assert new.skipped[0]["type"] == "TEXT_BLOCK_END"
    reply.text("late")
    with pytest.raises(TurnwireError) as error:
        old.flush(10)
    assert error.value.type == "fenced"
    with pytest.raises(TurnwireError):
        reply.text("later")
    assert old.error is error.value
    assert texts(client, session) == [whole(50)]


def test_another_producer_waits_until_the_reply_has_ended(
    client: Client, publish: Callable[..., Publisher], session: str
) -> None:
    first, second = publish(session, producer="a"), publish(session, producer="b")
    reply = story(first.send)
    first.flush(10)
    story(second.send, 3).end()
    with pytest.raises(TimeoutError, match="events are not stored"):
        second.flush(0.2)
    reply.end()
    first.flush(10)
    second.flush(10)
    assert texts(client, session) == [whole(50), whole(3)]


def test_an_event_that_does_not_fit_is_left_out_or_an_error(
    client: Client,
    publish: Callable[..., Publisher],
    session: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong = {"type": "TEXT_BLOCK_DELTA", "reply_id": "r", "block_id": "missing", "delta": "x"}
    tolerant = publish(session)
    reply = story(tolerant.send, 5, id="r")
    with caplog.at_level(logging.WARNING):
        tolerant.send(wrong)
        reply.end()
        tolerant.flush(10)
    assert [(one["type"], tolerant.skipped_count) for one in tolerant.skipped] == [("TEXT_BLOCK_DELTA", 1)]
    assert "UnknownBlock" in caplog.text
    strict = publish(session, tolerant=False)
    strict.send({**wrong, "reply_id": "r2"})
    with pytest.raises(TurnwireError) as error:
        strict.flush(10)
    assert error.value.status == 422
    assert texts(client, session) == [whole(5)]


def test_memory_is_bounded_while_the_server_is_away(
    start_server: Callable[..., TurnwireServer],
) -> None:
    running = start_server()
    running.process.send_signal(signal.SIGSTOP)
    publisher = Publisher("s", url=running.url, max_bytes=20_000, retry=FAST)
    done = threading.Event()

    def write() -> None:
        story(publisher.send, 2000).end()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    until(lambda: publisher._bytes > 19_000, "the buffer does not fill")
    assert not done.wait(0.3)
    assert publisher._bytes <= 20_000
    running.process.send_signal(signal.SIGCONT)
    writer.join(30)
    publisher.close(30)
    with Client(running.url) as client:
        assert texts(client, "s") == [whole(2000)]


def test_a_server_that_stays_away_is_an_error_at_last() -> None:
    publisher = Publisher("s", url="http://127.0.0.1:9", patience=0.2, retry=FAST)
    publisher.send({"type": "CUSTOM", "name": "x", "value": 1})
    with pytest.raises(TurnwireError, match="no response from"):
        publisher.flush(10)
    with pytest.raises(TurnwireError):
        publisher.send({"type": "CUSTOM", "name": "x", "value": 1})


@pytest.mark.anyio
async def test_coroutines_publish(client: Client, publish: Callable[..., Publisher], session: str) -> None:
    events: list[dict[str, Any]] = []
    story(events.append, 3000).end()
    async with publish(session, max_bytes=50_000) as publisher:
        for event in events:
            await publisher.asend(event)
        await publisher.aflush(30)
    assert texts(client, session) == [whole(3000)]


def test_many_publishers_at_once(client: Client, publish: Callable[..., Publisher]) -> None:
    names = [client.create(agent="external").id for _ in range(30)]
    publishers = [publish(name) for name in names]
    for publisher in publishers:
        story(publisher.send).end()
    for publisher in publishers:
        publisher.flush(30)
    assert [texts(client, name) for name in names] == [[whole(50)]] * 30


def test_text_that_is_no_unicode_is_published(client: Client, publish: Callable[..., Publisher], session: str) -> None:
    publisher = publish(session)
    reply = ReplyWriter(publisher.send)
    reply.text("héllo 🙂")
    reply.end()
    publisher.send({"type": "CUSTOM", "name": "half", "value": "\ud800"})
    publisher.flush(10)
    assert texts(client, session) == ["héllo 🙂"]


def test_events_as_text_get_ids_like_those_of_dictionaries(
    client: Client, publish: Callable[..., Publisher], session: str
) -> None:
    publisher = publish(session)
    events: list[dict[str, Any]] = []
    story(events.append, 5).end()
    for at, event in enumerate(events):
        text = json.dumps(event, indent=2 if at % 2 else None)
        publisher.send(text if at % 3 else text.encode())
    publisher.flush(10)
    assert (texts(client, session), publisher.skipped_count) == ([whole(5)], 0)
    for wrong in ("{oops", "[]", b"1"):
        with pytest.raises(ValueError, match=r"Expecting|JSON object"):
            publisher.send(wrong)


def test_an_event_that_cannot_be_read_is_left_out_alone(
    client: Client, publish: Callable[..., Publisher], session: str
) -> None:
    publisher = publish(session)
    reply = story(publisher.send, 20)
    publisher.send({"type": "TEXT_BLOCK_DELTA", "reply_id": 5})
    reply.text("the end")
    reply.end()
    publisher.flush(10)
    assert texts(client, session) == [whole(20) + "the end"]
    assert [one["type"] for one in publisher.skipped] == ["TEXT_BLOCK_DELTA"]
    strict = publish(session, tolerant=False)
    strict.send({"type": "TEXT_BLOCK_DELTA", "reply_id": 5})
    with pytest.raises(TurnwireError) as error:
        strict.flush(10)
    assert error.value.type == "not_an_event"


def test_batches_grow_again_after_an_event_that_is_too_large(
    client: Client, publish: Callable[..., Publisher], session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = publish(session, linger=1.0, max_bytes=1 << 30)
    batches: list[int] = []
    post = publisher._post
    monkeypatch.setattr(publisher, "_post", lambda batch: (batches.append(len(batch)), post(batch))[1])
    reply = story(publisher.send, 500)
    reply.text("x" * (64 << 20))
    for at in range(500):
        reply.text(f"word{at} ")
    reply.end()
    publisher.flush(60)
    assert (texts(client, session), publisher.skipped_count) == ([whole(500) * 2], 1)
    assert batches[-1] > 100
    assert len(batches) < 50


@pytest.mark.anyio
async def test_publishers_that_wait_leave_the_executor_to_others(start_server: Callable[..., TurnwireServer]) -> None:
    running = start_server()
    running.process.send_signal(signal.SIGSTOP)
    publishers = [Publisher(f"s{at}", url=running.url, max_bytes=100, retry=FAST) for at in range(100)]
    custom = {"type": "CUSTOM", "name": "x", "value": "y" * 100}
    for publisher in publishers:
        publisher.send(custom)
    waiting = [asyncio.create_task(publisher.asend(custom)) for publisher in publishers]
    waiting += [asyncio.create_task(publisher.aflush()) for publisher in publishers]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 10) == "free"
    assert not any(task.done() for task in waiting)
    with pytest.raises(TimeoutError, match="2 events are not stored"):
        await publishers[0].aflush(0.1)
    running.process.send_signal(signal.SIGCONT)
    await asyncio.gather(*waiting)
    assert {publisher.stored for publisher in publishers} == {2}
    for publisher in publishers:
        await publisher.aclose(10)


@pytest.mark.anyio
async def test_an_event_whose_task_was_cancelled_keeps_its_place(start_server: Callable[..., TurnwireServer]) -> None:
    running = start_server()
    running.process.send_signal(signal.SIGSTOP)
    events: list[dict[str, Any]] = []
    story(events.append, 3).end()
    with Publisher("s", url=running.url, max_bytes=1, retry=FAST) as publisher:
        publisher.send(events[0])
        waiting = [asyncio.create_task(publisher.asend(event)) for event in events[1:]]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert all(task.cancelled() for task in waiting)
        running.process.send_signal(signal.SIGCONT)
        await publisher.aflush(30)
    with Client(running.url) as client:
        assert (texts(client, "s"), publisher.skipped_count) == ([whole(3)], 0)


def test_what_is_left_when_a_publisher_closes_is_sent_later(
    start_server: Callable[..., TurnwireServer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = start_server()
    running.process.send_signal(signal.SIGSTOP)
    spool = tmp_path / "spool"
    publisher = Publisher("s", url=running.url, spool=spool, retry=FAST)
    story(publisher.send).end()
    with pytest.raises(TimeoutError):
        publisher.close(0.05)
    running.process.send_signal(signal.SIGCONT)
    until(lambda: publisher.error or not spool.read_bytes(), "the events are not sent")
    with Client(running.url) as client:
        assert texts(client, "s") == [whole(50)]
    assert publisher.error is None
    # The file is free for the next one.
    until(lambda: publisher._spool and publisher._spool._file.closed, "the file stays open")
    Publisher("s", url=running.url, spool=spool).close(10)
    assert caplog.text == ""


FORKS = """
    import os, sys, turnwire
    url, session = sys.argv[1:]

    def story(name):
        with turnwire.Publisher(f"{session}-{name}", url=url) as publisher:
            for _ in range(20):
                reply = turnwire.ReplyWriter(publisher.send)
                for at in range(20):
                    reply.text(f"word{at} ")
                reply.end()
                publisher.flush()

    client = turnwire.Client(url)
    client.me()
    story("before")
    kept = turnwire.Publisher(session, url=url)
    kept.send({"type": "CUSTOM", "name": "of the parent", "value": {}})
    children = []
    for at in range(3):
        child = os.fork()
        if child == 0:
            story(at)
            assert client.me()["scopes"]
            sys.exit()
        children.append(child)
    story("parent")
    assert client.me()["scopes"]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_processes_that_are_forked_do_not_share_connections(
    client: Client, server: TurnwireServer, session: str
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(FORKS), server.url, session]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    for name in ("before", "parent", 0, 1, 2):
        assert texts(client, f"{session}-{name}") == [whole(20)] * 20
    # The children do not send what their parent has.
    assert client.session(session).get()["last_seq"] == 1


FULL = """
    import resource, sys, turnwire
    url, spool = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    publisher = turnwire.Publisher("s", url=url, spool=spool, producer="worker", fence=1)
    try:
        for at in range(100):
            publisher.send({"type": "CUSTOM", "name": f"event {at}", "value": {}})
    except OSError:
        print(at, flush=True)
        sys.stdin.readline()
"""


def test_a_full_disk_leaves_no_half_of_an_event(start_server: Callable[..., TurnwireServer], tmp_path: Path) -> None:
    running = start_server()
    running.process.send_signal(signal.SIGSTOP)
    spool = tmp_path / "spool"
    command = [sys.executable, "-c", textwrap.dedent(FULL), running.url, str(spool)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        stored = int(process.stdout.readline())
        process.kill()
    running.process.send_signal(signal.SIGCONT)
    assert 2 < stored < 100
    assert spool.read_bytes().endswith(b"\n")
    Publisher("s", url=running.url, spool=spool, producer="worker", fence=1, retry=FAST).close(30)
    with Client(running.url) as client:
        names = [json.loads(line)["name"] for line in client.session("s").export().splitlines()]
    assert names == [f"event {at}" for at in range(stored)]


def test_an_address_without_a_protocol_is_refused_at_once() -> None:
    for make in (Client, lambda url: Publisher("s", url=url)):
        with pytest.raises(ValueError, match="begins with http"):
            make("localhost:4747")
