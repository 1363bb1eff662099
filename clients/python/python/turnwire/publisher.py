"""Publishes the events of an agent that runs in this process, so that they are durable and can be watched.

    publisher = turnwire.Publisher("my-session")
    for event in agent_events:
        publisher.send(event)
    publisher.close()

`send` only puts the event into a buffer. A thread sends the buffer in batches, in order, until the server has stored
them; every event has an id, so a batch that was sent twice is stored once. `turnwire.adapters` has what publishes the
event streams of frameworks.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import json
import logging
import os
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import httpx
from typing_extensions import Self

from ._common import Retry, dump, error_of, find_url, lost, now, path, retry_after
from ._io import SyncConnections, SyncToken, sync_token
from .aliases import AnyEvent
from .errors import TurnwireError

logger = logging.getLogger("turnwire")

# What one request carries at most.
_BATCH_EVENTS = 1000
_BATCH_BYTES = 1 << 20
# How many events that did not fit are kept to look at.
_MAX_SKIPPED = 100
# A thread that has nothing to send ends after so many seconds.
_IDLE = 5.0
# At the end of the program, the publishers together have so many seconds to send what is left.
_EXIT_PATIENCE = 10.0

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_open: weakref.WeakSet[Publisher] = weakref.WeakSet()
_connections = SyncConnections()


class Publisher:
    """Publishes events into one session. Threads may share it."""

    def __init__(
        self,
        session: str,
        *,
        url: str | None = None,
        token: SyncToken = None,
        producer: str = "python",
        fence: int | None = None,
        wire: str = "turnwire",
        tolerant: bool = True,
        patience: float = 300.0,
        linger: float = 0.005,
        max_bytes: int = 16 << 20,
        spool: str | os.PathLike[str] | None = None,
        retry: Retry = Retry(),  # noqa: B008
    ) -> None:
        """
        `session` is created if it does not exist. `url` and `token` are those of `Client`.

        `producer` is the publisher's name, `fence` a number: of two publishers with the same name, the one with the
        higher fence takes over, and the other one gets the error `fenced`. Default: the clock.

        `tolerant`: an event that does not fit is left out and logged, and is in `skipped`; otherwise it is an error.
        While the server is away, events are kept for `patience` seconds, in at most `max_bytes` of memory: `send` then
        waits. `linger` is how long the thread waits for more events before it sends a batch, in seconds.

        `spool` is a file that holds what is not stored yet. A program that was killed continues from it: create the
        publisher again, with the same file.
        """
        self.session = session
        self.producer = producer
        self.fence = time.time_ns() if fence is None else fence
        self.url = find_url(url)
        # How many events the server has stored, or had stored before.
        self.stored = 0
        # The resume token of the last one.
        self.last_event_id: str | None = None
        # What did not fit: at, type and message, the first hundred; and how many in all.
        self.skipped: list[dict[str, Any]] = []
        self.skipped_count = 0
        self._token = token if token is not None else os.environ.get("TURNWIRE_TOKEN")
        self._path = path("v1", "sessions", session, "events", wire=wire, tolerant=tolerant)
        self._patience = patience
        self._linger = linger
        self._max_bytes = max_bytes
        self._retry = retry
        self._ids = (f"{uuid.uuid4().hex[:16]}{at:016x}" for at in itertools.count()).__next__
        self._changed = threading.Condition()
        self._buffer: deque[bytes] = deque()
        self._bytes = 0
        self._error: TurnwireError | None = None
        self._is_sending = False
        self._is_idle = False
        self._is_urgent = False
        self._is_closed = False
        self._batch_events = _BATCH_EVENTS
        self._spool = _Spool(Path(spool), max_bytes) if spool is not None else None
        if self._spool is not None:
            for line in self._spool.read():
                self._buffer.append(line)
                self._bytes += len(line)
            self._start_sending()
        _open.add(self)

    def __repr__(self) -> str:
        return f"<Publisher {self.session!r} as {self.producer}.{self.fence}, {len(self._buffer)} to send>"

    @property
    def error(self) -> TurnwireError | None:
        """Why the publisher has given up: then `send` and `flush` raise it."""
        return self._error

    def send(self, event: AnyEvent | Any) -> None:
        """Publishes an event: a dictionary, JSON, or a model of pydantic. A dictionary without an `id` gets one. Waits
        only while the buffer is full."""
        line = self.encode(event)
        with self._changed:
            while not self._put(line):
                self._changed.wait()

    async def asend(self, event: AnyEvent | Any) -> None:
        """The same in a coroutine: other tasks run while the buffer is full."""
        line = self.encode(event)
        with self._changed:
            if self._put(line):
                return
        await asyncio.to_thread(self._wait_and_put, line)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all events are stored. Raises the error of the publisher, or `TimeoutError`."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._is_urgent = True
            self._changed.notify_all()
            while self._buffer and self._error is None:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"{len(self._buffer)} events are not stored after {timeout} seconds")
                self._start_sending()
                self._changed.wait(left)
            self._is_urgent = False
            if self._error is not None:
                raise self._error

    async def aflush(self, timeout: float | None = None) -> None:
        """The same in a coroutine."""
        await asyncio.to_thread(self.flush, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flushes, and accepts no more events."""
        try:
            self.flush(timeout)
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
            _open.discard(self)
            if self._spool is not None:
                self._spool.close()

    async def aclose(self, timeout: float | None = None) -> None:
        """The same in a coroutine."""
        await asyncio.to_thread(self.close, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def encode(self, event: AnyEvent | Any) -> bytes:
        """The event as a line with an id."""
        if isinstance(event, bytes):
            return event.strip() + b"\n"
        if isinstance(event, str):
            return event.strip().encode() + b"\n"
        if type(event) is not dict and not isinstance(event, Mapping):
            line: str = event.model_dump_json()
            return line.encode() + b"\n"
        fields = cast("Mapping[str, Any]", event)
        if not fields.get("id") or not fields.get("created_at"):
            id, created_at = fields.get("id") or self._ids(), fields.get("created_at") or now()
            fields = {**fields, "id": id, "created_at": created_at}
        try:
            return (_encoder.encode(fields) + "\n").encode()
        except UnicodeEncodeError:  # Half of a surrogate pair.
            return json.dumps(fields).encode("ascii") + b"\n"

    def _put(self, line: bytes) -> bool:
        """Puts a line into the buffer, unless it is full. A line that is larger than the buffer may be alone in it."""
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise RuntimeError("the publisher is closed")
        if self._buffer and self._bytes + len(line) > self._max_bytes:
            return False
        if self._spool is not None:
            self._spool.write(line)
        self._buffer.append(line)
        self._bytes += len(line)
        if not self._is_sending:
            self._start_sending()
        elif self._is_idle:
            self._changed.notify_all()
        return True

    def _wait_and_put(self, line: bytes) -> None:
        with self._changed:
            while not self._put(line):
                self._changed.wait()

    def _start_sending(self) -> None:
        if not self._is_sending and self._buffer and self._error is None:
            self._is_sending = True
            threading.Thread(target=self._run, name=f"turnwire-{self.session}", daemon=True).start()

    def _run(self) -> None:
        """The thread: sends what there is, and ends when nothing has come for a while."""
        try:
            while True:
                with self._changed:
                    if not self._buffer and not self._is_closed:
                        self._is_idle = True
                        self._changed.wait_for(lambda: self._buffer or self._is_closed, _IDLE)
                        self._is_idle = False
                    if not self._buffer:
                        self._is_sending = False
                        return
                    if not self._is_urgent and len(self._buffer) < self._batch_events:
                        self._changed.wait_for(lambda: self._is_urgent, self._linger)
                self._send_batch()
        except TurnwireError as error:
            self._give_up(error)
        except Exception as error:
            self._give_up(TurnwireError(f"publishing failed: {error!r}", type="internal"))

    def _give_up(self, error: TurnwireError) -> None:
        logger.error("publishing into the session %s failed: %s", self.session, error)
        with self._changed:
            self._error = error
            self._is_sending = False
            self._changed.notify_all()

    def _take(self) -> list[bytes]:
        """The next batch. It stays in the buffer until it is stored."""
        batch: list[bytes] = []
        size = 0
        for line in itertools.islice(self._buffer, self._batch_events):
            size += len(line)
            if batch and size > _BATCH_BYTES:
                break
            batch.append(line)
        return batch

    def _send_batch(self, patience: float | None = None) -> None:
        """Sends the next events, until they are stored."""
        end = time.monotonic() + (self._patience if patience is None else patience)
        attempt = 0
        while True:
            with self._changed:
                batch = self._take()
            try:
                stored = self._post(batch)
                break
            except TurnwireError as error:
                if error.status == 413 and self._drop_too_large(batch, error):
                    continue
                # Another reply is open: it may end. The token may have expired.
                may_pass = error.is_temporary or error.type == "busy"
                may_pass = may_pass or (error.status == 401 and callable(self._token))
                wait = max(self._retry.delay(attempt), error.retry_after)
                if not may_pass or time.monotonic() + wait >= end:
                    raise
                logger.log(logging.WARNING if attempt == 3 else logging.DEBUG, "publishing is tried again: %s", error)
                attempt += 1
                time.sleep(wait)
        self._done(batch, stored)

    def _post(self, batch: list[bytes], *, may_create: bool = True) -> dict[str, Any]:
        response = self._request("POST", self._path, b"".join(batch), f"{self.producer}.{self.fence}")
        if response.is_success:
            stored: dict[str, Any] = response.json()
            return stored
        error = error_of(response.status_code, response.content)
        if error.status == 404 and may_create:
            body = dump({"id": self.session, "agent": "external"})
            made = self._request("POST", path("v1", "sessions"), body)
            if made.is_success:
                return self._post(batch, may_create=False)
            error = error_of(made.status_code, made.content)
        error.retry_after = retry_after(response)
        raise error

    def _request(self, method: str, path: str, body: bytes, producer: str | None = None) -> httpx.Response:
        headers = {"turnwire-producer": producer} if producer else {}
        token = sync_token(self._token)
        if token:
            headers["authorization"] = f"Bearer {token}"
        try:
            return _connections.client().request(method, self.url + path, content=body, headers=headers, timeout=30.0)
        except httpx.TransportError as failed:
            raise lost(failed, self.url) from None

    def _drop_too_large(self, batch: list[bytes], error: TurnwireError) -> bool:
        """Smaller batches; an event that is too large by itself is left out."""
        self._batch_events = max(1, len(batch) // 2)
        if len(batch) > 1:
            return True
        if "tolerant" not in self._path:
            return False
        event = json.loads(batch[0])
        self._done(batch, {"skipped": [{"at": 0, "type": event.get("type"), "message": error.message}]})
        return bool(self._buffer)

    def _done(self, batch: list[bytes], answer: dict[str, Any]) -> None:
        skipped: list[dict[str, Any]] = answer.get("skipped") or []
        for one in skipped:
            logger.warning("an event was left out: %s %s", one.get("type"), one.get("message"))
        with self._changed:
            for _ in batch:
                self._bytes -= len(self._buffer.popleft())
            self.skipped += skipped[: _MAX_SKIPPED - len(self.skipped)]
            self.skipped_count += len(skipped)
            self.stored += answer.get("stored", 0) + answer.get("repeated", 0)
            self.last_event_id = answer.get("last_event_id", self.last_event_id)
            if self._spool is not None:
                self._spool.stored(self._buffer)
            self._changed.notify_all()

    def _exit(self, end: float) -> None:
        """At the end of the program no thread can be started: what is left is sent here."""
        with self._changed:
            self._is_urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_sending or not self._buffer, max(0.0, end - time.monotonic()))
            if self._is_sending or self._error is not None:
                return
        while self._buffer and time.monotonic() < end:
            self._send_batch(end - time.monotonic())


class _Spool:
    """A file with the events that are not stored yet."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._file = path.open("a+b", buffering=0)
        try:
            _lock(self._file.fileno())
        except OSError:
            self._file.close()
            raise TurnwireError(
                f"the spool {path} is in use", type="spool_in_use", hint="give each publisher a file of its own"
            ) from None
        self._size = path.stat().st_size

    def read(self) -> list[bytes]:
        """The events of an earlier run. Of the last one a crash may have written only a part."""
        self._file.seek(0)
        *lines, torn = self._file.read().split(b"\n")
        if torn:
            self._rewrite(line + b"\n" for line in lines)
        return [line + b"\n" for line in lines if line]

    def write(self, line: bytes) -> None:
        self._size += self._file.write(line)

    def stored(self, left: deque[bytes]) -> None:
        """Removes what is stored: when nothing is left, or the file has become large."""
        if not left or self._size > 2 * self._max_bytes:
            self._rewrite(left)

    def _rewrite(self, lines: Iterable[bytes]) -> None:
        rest = b"".join(lines)
        if not rest:
            self._file.truncate(0)
        else:
            # A crash leaves the old file or the new one.
            fresh = self._path.with_name(self._path.name + ".new").open("w+b", buffering=0)
            _lock(fresh.fileno())
            fresh.write(rest)
            os.replace(fresh.name, self._path)
            self._file.close()
            self._file = fresh
        self._size = len(rest)

    def close(self) -> None:
        self._file.close()


def _lock(file: int) -> None:
    """Keeps other processes away from the file, where the system can do that."""
    with contextlib.suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _flush_all() -> None:
    end = time.monotonic() + _EXIT_PATIENCE
    for publisher in list(_open):
        try:
            publisher._exit(end)
        except TurnwireError as error:
            logger.error("the end of the session %s is not stored: %s", publisher.session, error)


atexit.register(_flush_all)
