"""A running server, and connections to it that break."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from turnwire_server import Proxy, TurnwireServer

import turnwire
from turnwire import AsyncClient, AsyncSession, Msg

# Generators of AgentScope's events, and the fake provider. Behind everything else: some modules have common names.
sys.path += [str(Path(__file__).parents[3] / "tests/peers" / folder) for folder in ("agentscope", "stateless")]

FAST = turnwire.Retry(min=0.01, max=0.1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TurnwireServer]:
    running = TurnwireServer(tmp_path_factory.mktemp("shared"))
    yield running
    running.stop()


@pytest.fixture
def server(shared_server: TurnwireServer) -> TurnwireServer:
    """A server that no test stops."""
    return shared_server


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., TurnwireServer]]:
    """Starts a server of its own, which the test may kill."""
    running: list[TurnwireServer] = []

    def start(**options: object) -> TurnwireServer:
        running.append(TurnwireServer(tmp_path, **options))  # type: ignore[arg-type]
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture
def client(server: TurnwireServer) -> Iterator[turnwire.Client]:
    with turnwire.Client(server.url, name="tests", retry=FAST) as client:
        yield client


@pytest.fixture
async def session(server: TurnwireServer) -> AsyncIterator[AsyncSession]:
    async with AsyncClient(server.url, retry=FAST) as client:
        yield await client.create(agent="external")


async def last_reply(session: AsyncSession) -> Msg:
    page = await session.history()
    return Msg([msg for msg in page["messages"] if msg["role"] == "assistant"][-1])


async def ended(session: AsyncSession, replies: int | None = None) -> None:
    """Waits until so many replies have ended, or all that there are."""
    open_replies: set[str] = set()
    count = 0
    async for event in session.watch():
        if event["type"] == "REPLY_START":
            open_replies.add(event["reply_id"])
        elif event["type"] == "REPLY_END":
            open_replies.discard(event["reply_id"])
            count += 1
        is_head = event.get("seq") == (await session.get())["last_seq"]
        if count >= (replies or 1) and not open_replies and is_head:
            return


class RandomProxy(Proxy):
    """Cuts every connection after a random number of bytes."""

    def __init__(self, address: str) -> None:
        seed = int(os.environ.get("TURNWIRE_SEED") or random.randrange(2**32))
        print(f"TURNWIRE_SEED={seed}")
        self.random = random.Random(seed)
        self.longest = 3000
        super().__init__(address)

    def down(self, client: socket.socket, upstream: socket.socket) -> None:
        self.cut_after = self.random.randint(1, self.longest)
        super().down(client, upstream)


class SilentProxy(Proxy):
    """Passes so many bytes of an answer on, and then nothing; the connection stays open."""

    def __init__(self, address: str) -> None:
        self.silent_after: int | None = None
        self.silences = 0
        self.over = threading.Event()
        super().__init__(address)

    def down(self, client: socket.socket, upstream: socket.socket) -> None:
        left, self.silent_after = self.silent_after, None
        if left is None:
            super().down(client, upstream)
            return
        while left > 0 and (data := upstream.recv(left)):
            client.sendall(data)
            left -= len(data)
        self.silences += 1
        self.over.wait(60)
        client.close()
        upstream.close()

    def close(self) -> None:
        self.over.set()
        super().close()
