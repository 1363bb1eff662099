"""The asynchronous client. Both clients have one source: here is what only this one can get wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from turnwire_server import TurnwireServer

from conftest import FAST, RandomProxy
from turnwire import AsyncClient, Connection, TurnwireError

pytestmark = pytest.mark.anyio


async def test_many_sessions_at_once(server: TurnwireServer) -> None:
    async with AsyncClient(server.url, retry=FAST) as client:
        sessions = await asyncio.gather(*(client.create() for _ in range(20)))
        replies = await asyncio.gather(*(session.ask("weather") for session in sessions))
        assert {reply.finished_reason for reply in replies} == {"completed"}
        assert [info async for info in client.each_session() if info["id"] == sessions[0].id]


async def test_a_view_is_folded_while_it_is_watched(server: TurnwireServer) -> None:
    async with AsyncClient(server.url, retry=FAST) as client:
        session = await client.create()
        async with session.view() as view:
            await session.send("please approve the trade")
            async for event in view:
                if view.pending:
                    await session.approve(view.pending[0], always=True)
                if event["type"] == "REPLY_END":
                    break
            assert [msg.to_dict() for msg in view.messages] == (await session.history())["messages"]


async def test_no_event_is_lost_when_connections_break_at_random(server: TurnwireServer) -> None:
    proxy = RandomProxy(server.address)
    async with AsyncClient(proxy.url, retry=FAST) as client:
        session = await client.create()
        await session.send("weather")
        events = [event async for event in session.watch(until="idle", raw=True)]
        assert [event.get("seq") for event in events] == list(range(1, len(events) + 1))
        assert proxy.cuts > 1
    proxy.close()


async def test_a_watch_survives_a_killed_server(start_server: Callable[..., TurnwireServer]) -> None:
    running = start_server(rate=200)
    async with AsyncClient(running.url, retry=FAST) as client:
        session = await client.create()
        await session.send("long 200")
        events: list[Any] = []
        async for event in session.watch(until="idle", raw=True):
            events.append(event)
            if len(events) == 50:
                await asyncio.to_thread(running.crash)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_another_task_ends_a_watch(server: TurnwireServer) -> None:
    async with AsyncClient(server.url, retry=FAST) as client:
        session = await client.create()
        await session.ask("hello")
        watch, ended = session.watch(), asyncio.Event()

        async def read() -> list[Any]:
            seen = []
            async for event in watch:
                seen.append(event)
                if event["type"] == "REPLY_END":
                    ended.set()
            return seen

        task = asyncio.create_task(read())
        await ended.wait()
        await watch.close()
        assert (await asyncio.wait_for(task, 10))[-1]["type"] == "REPLY_END"
        assert watch.connection == Connection("closed")


async def test_a_watch_that_is_closed_gives_its_connection_back(server: TurnwireServer) -> None:
    async with AsyncClient(server.url, retry=FAST) as client:
        session = await client.create()
        await session.ask("hello")
        states: list[str] = []
        async with session.watch(on_connection=lambda connection: states.append(connection.state)) as watch:
            async for event in watch:
                if event["type"] == "REPLY_END":
                    break
            assert client.http.stops
        assert (states, watch.connection) == (["connecting", "live", "closed"], Connection("closed"))
        assert not client.http.stops
        with pytest.raises(StopAsyncIteration):
            await anext(watch)


class Held(httpx.AsyncHTTPTransport):
    """Holds the answers to requests of this path back."""

    def __init__(self) -> None:
        super().__init__()
        self.path = ""
        self.held = asyncio.Event()
        self.go_on = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if request.url.path == self.path:
            self.held.set()
            await self.go_on.wait()
        return response


async def test_an_event_whose_reader_was_cancelled_comes_again(server: TurnwireServer) -> None:
    transport = Held()
    async with AsyncClient(server.url, retry=FAST, transport=transport) as client:
        session = await client.create()
        async with session.view() as view:
            await session.send("hello")
            transport.path = f"/v1/sessions/{session.id}"
            # The view asks for news of the session after this event.
            reading = asyncio.create_task(anext(view))
            await transport.held.wait()
            reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled()
            transport.go_on.set()
            kinds = []
            async for event in view:
                kinds.append(event["type"])
                if event["type"] == "REPLY_END":
                    break
            assert kinds[:2] == ["MESSAGE", "REPLY_START"]


async def test_a_watch_that_is_closed_while_it_connects_ends(server: TurnwireServer) -> None:
    transport = Held()
    async with AsyncClient(server.url, retry=FAST, transport=transport) as client:
        session = await client.create()
        transport.path = f"/v1/sessions/{session.id}/events"
        watch = session.watch(after="now")
        reading = asyncio.create_task(anext(watch, None))
        await transport.held.wait()
        await watch.close()
        transport.go_on.set()
        assert await asyncio.wait_for(reading, 10) is None
        assert watch.connection == Connection("closed")


async def test_a_view_that_is_closed_while_it_loads_ends(server: TurnwireServer) -> None:
    transport = Held()
    async with AsyncClient(server.url, retry=FAST, transport=transport) as client:
        session = await client.create()
        transport.path = f"/v1/sessions/{session.id}/messages"
        view = session.view()
        reading = asyncio.create_task(anext(view, None))
        await transport.held.wait()
        await view.close()
        transport.go_on.set()
        assert await asyncio.wait_for(reading, 10) is None
        assert (view.connection, client.http.stops) == (Connection("closed"), set())


async def test_two_tasks_that_load_more_load_a_page_once(server: TurnwireServer) -> None:
    async with AsyncClient(server.url, retry=FAST) as client:
        session = await client.create()
        for word in ("one", "two", "three"):
            await session.ask(word)
        async with session.view(limit=2) as view:
            await asyncio.gather(view.load_more(), view.load_more())
            assert len(view.messages) == 4
            await asyncio.gather(view.load_more(), view.load_more())
            assert [msg.to_dict() for msg in view.messages] == (await session.history())["messages"]
            assert not view.has_more


async def test_a_cancelled_watch_gives_its_connection_back(server: TurnwireServer) -> None:
    async with AsyncClient(server.url, retry=FAST) as client:
        session = await client.create()
        live = asyncio.Event()
        watch = session.watch(on_connection=lambda connection: live.set() if connection.state == "live" else None)
        task = asyncio.create_task(anext(watch))
        await live.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert watch.connection.state == "closed"
        assert not client.http.stops


async def test_a_lost_connection_is_tried_again_at_once_when_asked() -> None:
    async with AsyncClient("http://127.0.0.1:9") as client:
        client.http.options = client.http.options.__class__(
            **client.http.options.__dict__ | {"retry": FAST._replace(min=600.0, max=600.0)}
        )
        waiting, states = asyncio.Event(), []

        def changed(connection: Connection) -> None:
            states.append(connection.state)
            if connection.state == "waiting":
                waiting.set()

        task = asyncio.create_task(anext(client.session("s").watch(on_connection=changed)))
        await waiting.wait()
        waiting.clear()
        client.reconnect()
        await waiting.wait()
        assert states == ["connecting", "waiting", "connecting", "waiting"]
        task.cancel()


def test_a_client_outlives_its_event_loop(server: TurnwireServer) -> None:
    client = AsyncClient(server.url, token=_token, retry=FAST)

    async def ask() -> str | None:
        reply = await (await client.create()).ask("hello")
        await client.close()
        return reply.get_text_content()

    assert asyncio.run(ask()) == asyncio.run(ask())


async def _token() -> str:
    return "a token that nobody needs here"


async def test_errors_are_typed(server: TurnwireServer) -> None:
    async with AsyncClient(server.url, retry=FAST) as client:
        with pytest.raises(TurnwireError) as error:
            await client.session("missing").get()
        assert (error.value.type, error.value.status) == ("not_found", 404)
