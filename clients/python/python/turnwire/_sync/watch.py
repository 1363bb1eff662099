# Written by tools/unasync.py from _async/watch.py. Changes belong there.
"""The events of a session: each once and in order, across lost connections and restarts."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import TracebackType
from typing import Literal

import httpx
from typing_extensions import Self

from .._common import Connection, Position, SseParser, lost, path
from .._io import SyncStop, sync_end
from ..errors import TurnwireError
from ..types import Event
from .http import Http


class _State:
    """What a watch and its connection share."""

    def __init__(self, after: str | None, on_connection: Callable[[Connection], None] | None) -> None:
        self.position = Position(after)
        self.stop = SyncStop()
        self.connection = Connection("connecting")
        self.on_connection = on_connection

    def set(self, connection: Connection) -> None:
        self.connection = connection
        if self.on_connection is not None:
            self.on_connection(connection)


class Watch:
    """A stream of events that reconnects by itself. `close` ends it, and so does leaving its `with`."""

    def __init__(
        self,
        http: Http,
        session: str,
        *,
        after: str | None,
        until: Literal["idle"] | None,
        raw: bool,
        on_connection: Callable[[Connection], None] | None,
    ) -> None:
        self._state = _State(after, on_connection)
        self._events = _keep_connected(http, session, until, raw, self._state)

    @property
    def connection(self) -> Connection:
        """The current state of the connection."""
        return self._state.connection

    @property
    def last_event_id(self) -> str | None:
        """The resume token of the last event: another watch may start `after` it."""
        return self._state.position.after

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        return self._events.__next__()

    def close(self) -> None:
        """Ends the stream, also while another thread reads it."""
        self._state.stop.set()
        sync_end(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _keep_connected(
    http: Http, session: str, until: Literal["idle"] | None, raw: bool, state: _State
) -> Generator[Event, None, None]:
    position, stop, attempt = state.position, state.stop, 0
    http.stops.add(stop)
    try:
        while not stop.is_set:
            state.set(Connection("connecting"))
            is_complete = False
            response: httpx.Response | None = None
            try:
                url = path("v1", "sessions", session, "events", after=position.after, until=until, raw=raw)
                response = http.stream(url)
                # Only this status says that the stream is complete; any other end may be a disconnect.
                if response.status_code == 204:
                    return
                stop.response = response
                # It may have been closed while it connected.
                if stop.is_set:
                    return
                state.set(Connection("live"))
                parser = SseParser()
                for piece in response.iter_raw():
                    for data, id in parser.feed(piece):
                        event = None if stop.is_set else position.take(data, id)
                        if event is not None:
                            attempt = 0
                            yield event
                is_complete = until == "idle" and attempt == 0
                error = TurnwireError("the stream was closed")
            except TurnwireError as failed:
                error = failed
            except (httpx.TransportError, httpx.StreamError) as failed:
                error = lost(failed, http.options.url)
            finally:
                stop.response = None
                if response is not None:
                    response.close()
            if stop.is_set:
                return
            if not error.is_temporary:
                raise error
            wait = 0.0 if is_complete else http.options.retry.delay(attempt)
            attempt += 1
            state.set(Connection("waiting", error, wait))
            stop.wait(wait)
    except TurnwireError as failed:
        state.set(Connection("closed", failed))
        raise
    finally:
        http.stops.discard(stop)
        if state.connection.state != "closed":
            state.set(Connection("closed"))
