"""`publish` and `serve` with an agent of no framework: what they do for every framework."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from turnwire_server import TurnwireServer

from conftest import FAST, ended, last_reply
from turnwire import AsyncClient, AsyncSession, Folder, Msg, Publisher, ReplyWriter, TurnwireError, agents
from turnwire.agents import AgentAdapter, Turn, WritingTranslator, publish_stream, serving

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


class Echo(AgentAdapter):
    """Repeats all that it was told. Asks before it acts."""

    name = "friday"

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.acted: list[str] = []
        self.never = asyncio.Event()
        self.paused = asyncio.Event()

    async def run(self, turn: Turn) -> AsyncIterator[Json]:
        events: list[Json] = []
        reply = ReplyWriter(events.append, name=self.name, id=turn.reply_id, is_resumed=bool(turn.answers))
        self.heard += [msg.get_text_content() or "" for msg in turn.messages]
        reply.start()
        for event in events:
            yield event
        events.clear()
        if turn.answers:
            self.acted += [answer.call_id for answer in turn.answers]
            for answer in turn.answers:
                reply.tool_result(answer.call_id, answer.name, "done")
        last = self.heard[-1]
        if "act" in last and not turn.answers:
            reply.tool_call("c1", "act", "{}")
            reply.tool_call("c2", "act", "{}")
            reply.require_confirm(("c1", "act", "{}"), ("c2", "act", "{}"))
        else:
            reply.text(f"You said: {' '.join(self.heard)}")
            if "fail" in last:
                raise TurnwireError("a client of the agent has failed", type="lost")
            if "forever" in last:
                for event in events:
                    yield event
                self.paused.set()
                await self.never.wait()
            reply.end()
        for event in events:
            yield event

    def dump(self) -> bytes:
        return json.dumps(self.heard).encode()

    def load(self, state: bytes) -> None:
        self.heard = json.loads(state)

    def restore(self, history: list[Msg]) -> None:
        self.heard = [msg.get_text_content() or "" for msg in history if msg.role == "user"]


def pending(reply: Msg) -> list[Any]:
    return [{"reply_id": reply.id, "tool_call": call} for call in reply.get_content_blocks("tool_call")]


# ---- approvals, and processes that die ----

WORKER = """
    import asyncio, sys
    from turnwire.agents import AgentAdapter, serve
    url, session, acted = sys.argv[1:]

    class Worker(AgentAdapter):
        name = "friday"

        async def run(self, turn):
            common = {"reply_id": turn.reply_id}
            with open(acted, "a") as file:
                for answer in turn.answers:
                    print(answer.call_id, file=file)
            print("acts", flush=True)
            await asyncio.Event().wait()
            yield {}

    asyncio.run(serve(Worker(), session, url=url))
"""


async def test_what_was_approved_is_done_once_although_the_process_dies(
    server: TurnwireServer, session: AsyncSession, tmp_path: Path
) -> None:
    async with serving(Echo(), session.id, url=server.url, retry=FAST):
        reply = await session.ask("act")
    for call in pending(reply):
        await session.approve(call)
    acted = tmp_path / "acted"
    command = [sys.executable, "-c", textwrap.dedent(WORKER), server.url, session.id, str(acted)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout
    assert await process.stdout.readline() == b"acts\n"
    process.kill()
    await process.wait()
    agent = Echo()
    async with serving(agent, session.id, url=server.url, retry=FAST):
        await ended(session)
        broken = await last_reply(session)
        again = await session.ask("hello")
    assert (acted.read_text().split(), agent.acted) == (["c1", "c2"], [])
    assert (broken.id, broken.finished_reason) == (reply.id, "interrupted")
    assert {block["state"] for block in broken.get_content_blocks("tool_result")} == {"interrupted"}
    assert again.get_text_content() == "You said: act hello"


async def test_a_reply_goes_on_when_all_its_calls_are_answered(server: TurnwireServer, session: AsyncSession) -> None:
    async with serving(Echo(), session.id, url=server.url, retry=FAST):
        reply = await session.ask("act")
        first, second = pending(reply)
        await session.approve(first)
    agent = Echo()
    async with serving(agent, session.id, url=server.url, retry=FAST):
        await session.deny(second, "no")
        await ended(session)
    assert sorted(agent.acted) == ["c1", "c2"]
    assert (await last_reply(session)).finished_reason == "completed"


async def test_a_reply_that_broke_off_is_in_the_memory_of_the_next_process(
    server: TurnwireServer, session: AsyncSession
) -> None:
    store: dict[str, bytes] = {}
    async with serving(Echo(), session.id, url=server.url, store=store, retry=FAST):
        await session.ask("one")
    # The next process dies in the middle of a reply, and stores nothing of it.
    await session.send("two")
    with Publisher(session.id, url=server.url, producer="friday", retry=FAST) as publisher:
        reply = ReplyWriter(publisher.send)
        reply.text("half a wo")
        reply.tool_call("c1", "act", "{}")
        reply.tool_call_end("c1")
    async with serving(Echo(), session.id, url=server.url, store=store, retry=FAST):
        await ended(session, replies=2)
        assert (await last_reply(session)).finished_reason == "interrupted"
        assert (await session.ask("three")).get_text_content() == "You said: one two three"
    # What is stored now is whole again.
    async with serving(Echo(), session.id, url=server.url, store=store, retry=FAST):
        assert (await session.ask("four")).get_text_content() == "You said: one two three four"


async def test_the_replies_of_sub_agents_end_with_the_one_that_broke_off(
    server: TurnwireServer, session: AsyncSession
) -> None:
    with Publisher(session.id, url=server.url, producer="friday", retry=FAST) as publisher:
        reply = ReplyWriter(publisher.send)
        reply.tool_call("c1", "ask", "{}")
        reply.tool_result_start("c1", "ask")
        sub = ReplyWriter(publisher.send, agent_path="main/helper", parent_tool_call_id="c1")
        sub.text("half a wo")
    async with serving(Echo(), session.id, url=server.url, retry=FAST):
        await ended(session, replies=2)
        async with session.view() as view:
            [(msg, origin)] = view.agents
            assert (msg.finished_reason, origin) == (
                "interrupted",
                {"agent_path": "main/helper", "parent_tool_call_id": "c1"},
            )
            assert view.status == "idle"
    ends = [event for event in map(json.loads, (await session.export()).splitlines()) if event["type"] == "REPLY_END"]
    assert [event.get("parent_tool_call_id") for event in ends] == ["c1", None]


async def test_a_reply_that_was_stopped_is_in_the_memory_of_the_next_process(
    server: TurnwireServer, session: AsyncSession
) -> None:
    store: dict[str, bytes] = {}
    agent = Echo()
    async with serving(agent, session.id, url=server.url, store=store, retry=FAST):
        await session.send("think forever")
        await agent.paused.wait()
        await session.stop()
        await ended(session)
    # The state says more than the messages do.
    head, _, state = store[session.id].partition(b"\n")
    store[session.id] = head + b"\n" + state.replace(b"forever", b"long")
    async with serving(Echo(), session.id, url=server.url, store=store, retry=FAST):
        assert (await session.ask("hello")).get_text_content() == "You said: think long hello"


async def test_a_process_that_was_replaced_learns_it_before_its_agent_acts(
    server: TurnwireServer, session: AsyncSession
) -> None:
    class Acting(Echo):
        async def run(self, turn: Turn) -> AsyncIterator[Json]:
            yield {"type": "REPLY_START", "reply_id": turn.reply_id, "name": "friday"}
            self.acted.append(turn.text)
            yield {"type": "REPLY_END", "reply_id": turn.reply_id}

    old, new = Acting(), Acting()
    serving_old = asyncio.create_task(agents.serve(old, session.id, url=server.url, fence=1, retry=FAST))
    await session.ask("one")
    async with serving(new, session.id, url=server.url, fence=2, retry=FAST):
        # Both say that they serve.
        served = 0
        async for event in session.watch():
            served += event["type"] == "CUSTOM"
            if served == 2:
                break
        await session.send("two")
        await ended(session, replies=2)
        with pytest.raises(TurnwireError) as error:
            await asyncio.wait_for(serving_old, 30)
    assert error.value.type == "fenced"
    assert (old.acted, new.acted) == (["one"], ["two"])


async def test_an_error_of_the_agents_own_client_ends_only_the_reply(
    server: TurnwireServer, session: AsyncSession
) -> None:
    async with serving(Echo(), session.id, url=server.url, retry=FAST):
        failed = await session.ask("fail")
        assert failed.error is not None
        assert "a client of the agent" in failed.error["message"]
        assert (await session.ask("hello")).finished_reason == "completed"


async def test_who_has_asked_gets_a_reply_also_if_the_agent_says_nothing(
    server: TurnwireServer, session: AsyncSession
) -> None:
    class Broken(Echo):
        async def run(self, turn: Turn) -> AsyncIterator[Json]:
            if turn.text == "fail":
                raise RuntimeError("no model")
            return
            yield {}

    async with serving(Broken(), session.id, url=server.url, retry=FAST):
        failed = await asyncio.wait_for(session.ask("fail"), 30)
        assert failed.error is not None
        assert "no model" in failed.error["message"]
        silent = await asyncio.wait_for(session.ask("hello"), 30)
        assert (silent.name, silent.content) == ("friday", [])


async def test_files_reach_the_agent_whole(server: TurnwireServer, session: AsyncSession) -> None:
    class Files(Echo):
        def keep(self, messages: list[Msg]) -> None:
            sources: list[Any] = [block["source"] for msg in messages for block in msg.get_content_blocks("data")]
            self.heard += [f"{source['media_type']} {source.get('data', '')}" for source in sources]

        def restore(self, history: list[Msg]) -> None:
            self.keep(history)

        async def run(self, turn: Turn) -> AsyncIterator[Json]:
            self.keep(turn.messages)
            yield {"type": "REPLY_START", "reply_id": turn.reply_id}
            yield {"type": "REPLY_END", "reply_id": turn.reply_id}

    async with AsyncClient(server.url) as client:
        blob = await client.upload(b"hi", "image/png")
    # The server keeps large files as blobs.
    large = base64.b64encode(bytes(100_000)).decode()
    sources = [
        {"type": "url", "url": blob["url"], "media_type": "image/png"},
        {"type": "base64", "data": large, "media_type": "image/gif"},
    ]
    content = [{"type": "text", "text": "look"}, *({"type": "data", "source": source} for source in sources)]
    first, second = Files(), Files()
    async with serving(first, session.id, url=server.url, retry=FAST):
        await session.ask(content)
    async with serving(second, session.id, url=server.url, retry=FAST):
        await session.ask("again")
    assert first.heard == second.heard == ["image/png aGk=", f"image/gif {large}"]


async def test_a_reply_that_the_agent_leaves_open_is_ended(server: TurnwireServer, session: AsyncSession) -> None:
    class Careless(Echo):
        async def run(self, turn: Turn) -> AsyncIterator[Json]:
            yield {"type": "REPLY_START", "reply_id": turn.reply_id, "name": "friday"}

    async with serving(Careless(), session.id, url=server.url, retry=FAST):
        assert (await session.ask("hello")).finished_reason == "interrupted"
        assert (await session.ask("hello")).finished_reason == "interrupted"


async def test_a_reply_outlives_a_long_silence_of_its_agent(
    start_server: Callable[..., TurnwireServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start_server(settings='[producers]\nsilence = "400ms"\n')
    monkeypatch.setattr(agents, "ALIVE_INTERVAL", 0.05)
    async with AsyncClient(running.url, retry=FAST) as client:
        session = await client.create(agent="external")
        agent = Echo()
        async with serving(agent, session.id, url=running.url, retry=FAST):
            await session.send("think forever")
            alive = 0
            async for event in session.watch():
                alive += event["type"] == "CUSTOM" and event["name"] == agents.ALIVE
                # Long enough for the server to end it twice.
                if alive == 20 or event["type"] == "REPLY_END":
                    break
            agent.never.set()
            await ended(session)
            assert (await last_reply(session)).finished_reason == "completed"
            # A reply that waits needs no such events.
            await session.ask("act")
            before = (await session.get())["last_seq"]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(session.watch(after="now")), 0.5)
            assert (await session.get())["last_seq"] == before


KILLED = """
    import asyncio, os, sys, turnwire
    from turnwire.agents import AgentAdapter, serve
    url, session, acted, spool = sys.argv[1:]

    class Worker(AgentAdapter):
        name = "friday"

        async def run(self, turn):
            events = []
            reply = turnwire.ReplyWriter(events.append, id=turn.reply_id, is_resumed=bool(turn.answers))

            def written():
                yield from list(events)
                events.clear()

            reply.start()
            for event in written():
                yield event
            for answer in turn.answers:
                with open(acted, "a") as file:
                    print(answer.call_id, file=file)
                reply.tool_result(answer.call_id, answer.name, "done")
            if not turn.answers:
                call = f"call-{turn.reply_id}"
                reply.tool_call(call, "act", "{}")
                reply.require_confirm((call, "act", "{}"))
            else:
                for word in range(5):
                    reply.text(f"word{word} ")
                    for event in written():
                        yield event
                reply.end()
            for event in written():
                yield event

    asyncio.run(serve(Worker(), session, url=url, spool=spool))
"""


async def test_processes_that_are_killed_lose_nothing_and_do_nothing_twice(
    server: TurnwireServer, session: AsyncSession, tmp_path: Path
) -> None:
    seed = int(os.environ.get("TURNWIRE_SEED") or random.randrange(2**32))
    print(f"TURNWIRE_SEED={seed}")
    rng = random.Random(seed)
    acted = tmp_path / "acted"
    acted.touch()
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(KILLED),
        server.url,
        session.id,
        str(acted),
        str(tmp_path / "spool"),
    ]

    async def start() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(*command)

    worker, questions = await start(), 8
    for _ in range(questions):
        until_killed = rng.randint(1, 12)
        sent = await session.send("act")
        async for event in session.watch(after=sent["last_event_id"], raw=True):
            if event["type"] == "REQUIRE_USER_CONFIRM":
                await session.approve({"reply_id": event["reply_id"], "tool_call": event["tool_calls"][0]})
            until_killed -= 1
            if until_killed == 0:
                worker.kill()
                await worker.wait()
                worker = await start()
            if event["type"] == "REPLY_END":
                break
    worker.kill()
    await worker.wait()
    lines = (await session.export()).splitlines()
    Folder().feed(b"\n".join(lines))  # Each event fits.
    messages = (await session.history(limit=100))["messages"]
    assert [msg["role"] for msg in messages] == ["user", "assistant"] * questions
    assert {msg["finished_reason"] for msg in messages[1::2]} <= {"completed", "interrupted"}
    done = acted.read_text().split()
    assert len(done) == len(set(done)), done
    # What is said to have been done, was done.
    results = [block for msg in messages for block in msg["content"] if block["type"] == "tool_result"]
    assert {block["id"] for block in results if block["state"] == "success"} <= set(done)
    whole = [msg for msg in messages if msg["finished_reason"] == "completed" and msg["role"] == "assistant"]
    assert {Msg(msg).get_text_content() for msg in whole} <= {"word0 word1 word2 word3 word4 "}


# ---- streams that pass through ----


class Words(WritingTranslator[str]):
    def write(self, item: str) -> None:
        if item == "?":
            self.reply.tool_call("c1", "act", "{}")
            self.reply.require_confirm(("c1", "act", "{}"))
        else:
            self.reply.text(item)


class Stream:
    """A stream of words that knows when it is closed, and waits at the word "…"."""

    def __init__(self, *words: str) -> None:
        self.words = list(words)
        self.closed = asyncio.Event()
        self.waits = asyncio.Event()

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> str:
        if not self.words:
            raise StopAsyncIteration
        word = self.words.pop(0)
        if word == "…":
            self.waits.set()
            await asyncio.Event().wait()
        return word

    async def aclose(self) -> None:
        self.closed.set()


async def test_a_loop_that_is_left_ends_the_agent_and_its_reply(server: TurnwireServer, session: AsyncSession) -> None:
    stream = Stream("a ", "b ", "c ")
    passing = publish_stream(stream, Words("friday"), session.id, url=server.url)
    async for word in passing:
        if word == "b ":
            break
    await passing.aclose()
    msg = await last_reply(session)
    assert (msg.finished_reason, msg.get_text_content(), stream.closed.is_set()) == ("interrupted", "a b ", True)


async def test_what_broke_off_in_a_sub_agent_ends_as_its(server: TurnwireServer, session: AsyncSession) -> None:
    class Nested(agents.Translator[str]):
        def feed(self, item: str) -> list[Json]:
            events: list[Json] = []
            ReplyWriter(events.append, id="main").text(item)
            ReplyWriter(events.append, id="sub", agent_path="main/helper", parent_tool_call_id="c1").text(item)
            return events

    passing = publish_stream(Stream("a ", "b "), Nested(), session.id, url=server.url)
    await anext(passing)
    await passing.aclose()
    lines = [json.loads(line) for line in (await session.export()).splitlines()]
    ends = [(event["reply_id"], event.get("agent_path")) for event in lines if event["type"] == "REPLY_END"]
    assert ends == [("sub", "main/helper"), ("main", None)]


async def test_a_loop_that_is_left_while_the_reply_waits_leaves_it_waiting(
    server: TurnwireServer, session: AsyncSession
) -> None:
    passing = publish_stream(Stream("a ", "?", "c "), Words("friday"), session.id, url=server.url)
    async for word in passing:
        if word == "?":
            break
    await passing.aclose()
    assert (await session.get())["status"] == "waiting"
    [call] = pending(await last_reply(session))
    await session.approve(call)


async def test_a_task_that_is_cancelled_ends_soon_although_the_server_is_away(
    start_server: Callable[..., TurnwireServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start_server()
    monkeypatch.setattr(agents, "EXIT_PATIENCE", 0.1)
    async with AsyncClient(running.url, retry=FAST) as client:
        session = await client.create(agent="external")
        running.process.send_signal(signal.SIGSTOP)
        stream = Stream("a ", "b ", "…")

        async def consume() -> None:
            async for _ in publish_stream(stream, Words("friday"), session.id, url=running.url, retry=FAST):
                pass

        task = asyncio.create_task(consume())
        await stream.waits.wait()
        task.cancel()
        await asyncio.wait([task], timeout=20)
        assert task.cancelled()
        running.process.send_signal(signal.SIGCONT)
        # The publisher's thread goes on.
        await ended(session)
        msg = await last_reply(session)
        assert (msg.finished_reason, msg.get_text_content()) == ("interrupted", "a b ")


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_cancellation_is_not_lost_while_the_end_is_stored(
    start_server: Callable[..., TurnwireServer], monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    if is_away:
        monkeypatch.setattr(agents, "EXIT_PATIENCE", 0.1)
    running = start_server()
    running.process.send_signal(signal.SIGSTOP)
    publisher = Publisher("s", url=running.url, retry=FAST)
    stream = Stream("a ")

    async def consume() -> str:
        async for _ in publish_stream(stream, Words("friday"), publisher):
            pass
        return "went on"

    task = asyncio.create_task(consume())
    await stream.closed.wait()
    task.cancel()
    await asyncio.sleep(0)
    if not is_away:
        running.process.send_signal(signal.SIGCONT)
    await asyncio.wait([task], timeout=20)
    assert task.cancelled()
    running.process.send_signal(signal.SIGCONT)
    await publisher.aclose(10)
    assert publisher.stored == 5
