"""What differs between the asynchronous and the synchronous client: connections, pauses, closing.

`tools/unasync.py` writes `_sync/` from `_async/`, and replaces the classes of this module by their counterparts.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import socket
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any, TypeAlias

import httpx

SyncToken: TypeAlias = "str | Callable[[], str] | None"
AsyncToken: TypeAlias = "str | Callable[[], str | Awaitable[str]] | None"

# A client follows as many sessions as it likes.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20)


class AsyncConnections:
    """The connections of an asynchronous client. Those of one event loop cannot be used in another: each has its own,
    so that a client outlives `asyncio.run`."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._transport = transport
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]
        self._clients = weakref.WeakKeyDictionary()

    def client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        found = self._clients.get(loop)
        if found is None or found.is_closed:
            found = self._clients[loop] = httpx.AsyncClient(limits=_LIMITS, transport=self._transport)
        return found

    async def close(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


class SyncConnections:
    """The connections of a synchronous client. Threads share them; a process that is forked opens its own."""

    def __init__(self, transport: httpx.BaseTransport | None = None) -> None:
        self._transport = transport
        self._client: httpx.Client | None = None
        self._lock = threading.Lock()
        _pools.add(self)

    def forget(self) -> None:
        """After a fork: the connections are the parent's, and another thread may have had the lock."""
        self._client = None
        self._lock = threading.Lock()

    def client(self) -> httpx.Client:
        with self._lock:
            if self._client is None or self._client.is_closed:
                self._client = httpx.Client(limits=_LIMITS, transport=self._transport)
            return self._client

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


_pools: weakref.WeakSet[SyncConnections] = weakref.WeakSet()


def _forget_connections() -> None:
    for pool in list(_pools):
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_connections)


class AsyncStop:
    """Ends a watch: its pause between two connections, and the connection that it reads."""

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: asyncio.Future[None] | None = None
        self.response: httpx.Response | None = None

    async def wait(self, seconds: float) -> None:
        """A pause; `set` and `wake` end it early."""
        if self.is_set:
            return
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait([self._waiting], timeout=seconds)
        finally:
            self._waiting = None

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def set(self) -> None:
        self.is_set = True
        self.wake()
        if self.response is not None:
            _shut_down(self.response)


class SyncStop:
    """The same for threads: any of them may end the watch of another."""

    def __init__(self) -> None:
        self.is_set = False
        self._woken = threading.Event()
        self.response: httpx.Response | None = None

    def wait(self, seconds: float) -> None:
        self._woken.clear()
        if not self.is_set:
            self._woken.wait(seconds)

    def wake(self) -> None:
        self._woken.set()

    def set(self) -> None:
        self.is_set = True
        self.wake()
        if self.response is not None:
            _shut_down(self.response)


def _shut_down(response: httpx.Response) -> None:
    """Ends a connection that somebody reads from: the read returns."""
    stream = response.extensions.get("network_stream")
    found = stream.get_extra_info("socket") if stream is not None else None
    if found is not None:
        # It may have ended already.
        with contextlib.suppress(OSError):
            found.shutdown(socket.SHUT_RDWR)


async def async_end(events: AsyncGenerator[Any, None]) -> None:
    """Ends a generator that nobody reads from; one that another task reads from ends when its connection does."""
    with contextlib.suppress(RuntimeError):
        await events.aclose()


def sync_end(events: Generator[Any, None, None]) -> None:
    """Ends a generator that nobody reads from; one that another thread reads from ends when its connection does."""
    with contextlib.suppress(ValueError):
        events.close()


async def async_token(token: AsyncToken) -> str | None:
    """The token to send."""
    if callable(token):
        made = token()
        return await made if inspect.isawaitable(made) else made
    return token


def sync_token(token: SyncToken) -> str | None:
    """The token to send."""
    return token() if callable(token) else token


async def async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def sync_sleep(seconds: float) -> None:
    threading.Event().wait(seconds)
