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
import errno
import itertools
import json
import logging
import os
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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
EXIT_PATIENCE = 10.0
# What the server says of an event that it cannot read, or that is too large. It refuses the whole batch.
_UNREADABLE = ("not_json", "not_an_event", "not_utf8")

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_open: weakref.WeakSet[Publisher] = weakref.WeakSet()
_connections = SyncConnections()


@dataclass
class _Waiting:
    """An event that waits for room in the buffer."""

    line: bytes
    is_accepted: bool = False


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
        # Behind the buffer, in their order. The thread moves them.
        self._waiting: deque[_Waiting] = deque()
        # Each wakes a coroutine that waits.
        self._wakers: set[Callable[[], None]] = set()
        self._error: TurnwireError | None = None
        self._is_sending = False
        self._is_idle = False
        # How many wait for `flush`: a batch then does not linger.
        self._flushing = 0
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
        return f"<Publisher {self.session!r} as {self.producer}.{self.fence}, {self._left()} to send>"

    @property
    def error(self) -> TurnwireError | None:
        """Why the publisher has given up: then `send` and `flush` raise it."""
        return self._error

    def send(self, event: AnyEvent | Any) -> None:
        """Publishes an event: a dictionary, its JSON, or a model of pydantic. One without an `id` gets one. Waits only
        while the buffer is full."""
        line = self.encode(event)
        with self._changed:
            waiting = self._put(line)
            if waiting is not None:
                self._changed.wait_for(lambda: self._is_accepted(waiting))

    async def asend(self, event: AnyEvent | Any) -> None:
        """The same in a coroutine: other tasks run while the buffer is full. An event is published also if the task is
        cancelled while it waits."""
        await self.accepted(self.put(self.encode(event)))

    def put(self, line: bytes) -> _Waiting | None:
        """Publishes a line of `encode`, and never waits: returns what is left to wait for."""
        with self._changed:
            return self._put(line)

    async def accepted(self, waiting: _Waiting | None) -> None:
        """Waits until there was room for an event of `put`."""
        if waiting is not None:
            await self._wait(lambda: self._is_accepted(waiting))

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all events are stored. Raises the error of the publisher, or `TimeoutError`."""
        with self._changed:
            self._begin_flush()
            try:
                is_flushed = self._changed.wait_for(self._is_flushed, timeout)
            finally:
                self._flushing -= 1
            self._end_flush(is_flushed, timeout)

    async def aflush(self, timeout: float | None = None) -> None:
        """The same in a coroutine."""
        with self._changed:
            self._begin_flush()
        try:
            is_flushed = await self._wait(self._is_flushed, timeout)
        finally:
            with self._changed:
                self._flushing -= 1
        self._end_flush(is_flushed, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flushes, and accepts no more events. What is not stored after `timeout` seconds is still sent while the
        program runs."""
        try:
            self.flush(timeout)
        finally:
            self._close()

    async def aclose(self, timeout: float | None = None) -> None:
        """The same in a coroutine."""
        try:
            await self.aflush(timeout)
        finally:
            self._close()

    def _begin_flush(self) -> None:
        self._flushing += 1
        self._start_sending()
        self._notify()

    def _is_flushed(self) -> bool:
        return not self._left() or self._error is not None

    def _end_flush(self, is_flushed: bool, timeout: float | None) -> None:
        if self._error is not None:
            raise self._error
        if not is_flushed:
            raise TimeoutError(f"{self._left()} events are not stored after {timeout} seconds")

    def _left(self) -> int:
        return len(self._buffer) + len(self._waiting)

    def _close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._notify()
            self._release()

    def _release(self) -> None:
        """Lets go of the file, if nothing uses it any more."""
        if self._is_closed and not self._is_sending and self._is_flushed():
            _open.discard(self)
            if self._spool is not None:
                self._spool.close()

    def _notify(self) -> None:
        """Wakes who waits. Called with the lock."""
        self._changed.notify_all()
        for wake in self._wakers:
            wake()

    async def _wait(self, is_over: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits for a condition, which is checked with the lock. It takes no thread of the event loop's executor:
        publishers that wait for a server must not keep others from theirs."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # The loop may have been closed meanwhile.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(woken.set)

        end = None if timeout is None else loop.time() + timeout
        timer = None if end is None else loop.call_at(end, woken.set)
        with self._changed:
            self._wakers.add(wake)
        try:
            while True:
                with self._changed:
                    if is_over():
                        return True
                if end is not None and loop.time() >= end:
                    return False
                await woken.wait()
                woken.clear()
        finally:
            if timer is not None:
                timer.cancel()
            with self._changed:
                self._wakers.discard(wake)

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
        """The event as a line of JSON with an id."""
        if type(event) is not dict and not isinstance(event, Mapping):
            text: str | bytes = event if isinstance(event, str | bytes) else event.model_dump_json()
            return self._with_id(text)
        fields = cast("Mapping[str, Any]", event)
        if not fields.get("id") or not fields.get("created_at"):
            id, created_at = fields.get("id") or self._ids(), fields.get("created_at") or now()
            fields = {**fields, "id": id, "created_at": created_at}
        try:
            return (_encoder.encode(fields) + "\n").encode()
        except UnicodeEncodeError:  # Half of a surrogate pair.
            return json.dumps(fields).encode("ascii") + b"\n"

    def _with_id(self, text: str | bytes) -> bytes:
        """JSON as a line. Without an id, an event that is sent again could not be recognised."""
        event = json.loads(text)
        if not isinstance(event, dict):
            raise ValueError(f"an event is a JSON object, not {text[:40]!r}")
        fields = cast("dict[str, Any]", event)
        line = (text.encode() if isinstance(text, str) else text).strip()
        is_complete = fields.get("id") and fields.get("created_at") and b"\n" not in line
        return line + b"\n" if is_complete else self.encode(fields)

    def _put(self, line: bytes) -> _Waiting | None:
        """Puts a line into the buffer, or behind it if it is full. A line that is larger than the buffer may be alone
        in it."""
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise RuntimeError("the publisher is closed")
        if self._waiting or not self._has_room(line):
            waiting = _Waiting(line)
            self._waiting.append(waiting)
            return waiting
        self._accept(line)
        if not self._is_sending:
            self._start_sending()
        elif self._is_idle:
            self._changed.notify_all()
        return None

    def _has_room(self, line: bytes) -> bool:
        return not self._buffer or self._bytes + len(line) <= self._max_bytes

    def _accept(self, line: bytes) -> None:
        if self._spool is not None:
            self._spool.write(line)
        self._buffer.append(line)
        self._bytes += len(line)

    def _is_accepted(self, waiting: _Waiting) -> bool:
        if self._error is not None and not waiting.is_accepted:
            raise self._error
        return waiting.is_accepted

    def _start_sending(self) -> None:
        if self._is_sending or not self._buffer or self._error is not None:
            return
        self._is_sending = True
        try:
            threading.Thread(target=self._run, name=f"turnwire-{self.session}", daemon=True).start()
        except RuntimeError:  # The program ends: `_exit` sends what is left.
            self._is_sending = False

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
                        self._release()
                        return
                    if not self._flushing and len(self._buffer) < self._batch_events:
                        self._changed.wait_for(lambda: self._flushing, self._linger)
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
            self._waiting.clear()
            self._notify()
            self._release()

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
                if (error.status == 413 or error.type in _UNREADABLE) and self._leave_out(batch, error):
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
        # A session that this publisher has written into was deleted: it does not come back.
        if error.status == 404 and may_create and self.last_event_id is None:
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

    def _leave_out(self, batch: list[bytes], error: TurnwireError) -> bool:
        """The batch has an event that the server cannot take: sends smaller ones, and leaves that event out when it is
        alone. Returns whether there is something left to send."""
        if len(batch) > 1:
            self._batch_events = len(batch) // 2
            return True
        if "tolerant" not in self._path:
            return False
        kind = json.loads(batch[0]).get("type")
        self._done(batch, {"skipped": [{"at": 0, "type": kind, "message": error.message}]})
        return bool(self._buffer)

    def _done(self, batch: list[bytes], answer: dict[str, Any]) -> None:
        skipped: list[dict[str, Any]] = answer.get("skipped") or []
        for one in skipped:
            logger.warning("an event was left out: %s %s", one.get("type"), one.get("message"))
        with self._changed:
            self._batch_events = min(2 * self._batch_events, _BATCH_EVENTS)
            for _ in batch:
                self._bytes -= len(self._buffer.popleft())
            while self._waiting and self._has_room(self._waiting[0].line):
                waiting = self._waiting.popleft()
                self._accept(waiting.line)
                waiting.is_accepted = True
            self.skipped += skipped[: _MAX_SKIPPED - len(self.skipped)]
            self.skipped_count += len(skipped)
            self.stored += answer.get("stored", 0) + answer.get("repeated", 0)
            self.last_event_id = answer.get("last_event_id", self.last_event_id)
            if self._spool is not None:
                self._spool.stored(self._buffer)
            self._notify()

    def _exit(self, end: float) -> None:
        """At the end of the program no thread can be started: what is left is sent here."""
        with self._changed:
            self._flushing += 1
            self._notify()
            self._changed.wait_for(lambda: not self._is_sending or not self._left(), max(0.0, end - time.monotonic()))
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
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, "there is no room for an event", str(self._path))
        except OSError:
            # Nothing of it may stay: the next line would be behind it.
            self._file.truncate(self._size)
            raise
        self._size += len(line)

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
    end = time.monotonic() + EXIT_PATIENCE
    for publisher in list(_open):
        try:
            publisher._exit(end)
        except TurnwireError as error:
            logger.error("the end of the session %s is not stored: %s", publisher.session, error)


atexit.register(_flush_all)
if hasattr(os, "register_at_fork"):
    # The parent sends what its publishers have.
    os.register_at_fork(after_in_child=_open.clear)
