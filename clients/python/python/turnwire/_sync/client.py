# Written by tools/unasync.py from _async/client.py. Changes belong there.
"""The client of a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType

import httpx
from typing_extensions import Self

from .._common import Options, Retry, dump, find_url, new_id, path
from .._io import SyncConnections, SyncToken
from ..api import Agents, Blob, Me, PendingOfSession, SessionInfo, SessionPage, Status, Ticket
from ..types import Fields
from .http import Http
from .session import Session


class Client:
    """The client of a server. Creating it sends nothing."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: SyncToken = None,
        name: str | None = None,
        retry: Retry = Retry(),  # noqa: B008
        silence: float = 45.0,
        patience: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """
        `url` is the server; default: `TURNWIRE_URL`, or `http://127.0.0.1:4747`. `token` is a bearer token, or a
        function that returns one and is called before each request; default: `TURNWIRE_TOKEN`. `name` is what this
        client calls itself; decisions are logged with it.

        A request without a response is repeated for `patience` seconds; it counts once. A connection that is silent for
        `silence` seconds counts as lost: the server sends something every 15 seconds.
        """
        token = token if token is not None else os.environ.get("TURNWIRE_TOKEN")
        self.http = Http(Options(find_url(url), name, retry, silence, patience), token, SyncConnections(transport))

    @property
    def url(self) -> str:
        return self.http.options.url

    def session(self, id: str) -> Session:
        """An existing session. Sends nothing."""
        return Session(self.http, id)

    def create(
        self,
        id: str | None = None,
        *,
        agent: str | None = None,
        title: str | None = None,
        metadata: Fields | None = None,
    ) -> Session:
        """Creates a session, or finds the existing one with this id. The agent `external` is one that publishes its
        events: see `turnwire.publish`."""
        # With an id of ours, a lost request can be repeated.
        given = {"id": id or new_id(), "agent": agent, "title": title, "metadata": metadata}
        body = dump({key: value for key, value in given.items() if value is not None})
        made: SessionInfo = self.http.ask("POST", path("v1", "sessions"), body)
        return Session(self.http, made["id"])

    def sessions(
        self,
        *,
        q: str | None = None,
        status: Status | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> SessionPage:
        """A page of sessions, latest change first; `q` searches titles and messages. A short page may have a next one:
        `cursor=page["next_cursor"]`."""
        url = path("v1", "sessions", q=q, status=status, cursor=cursor, limit=limit)
        page: SessionPage = self.http.ask("GET", url)
        return page

    def each_session(self, *, q: str | None = None, status: Status | None = None) -> Iterator[SessionInfo]:
        """All sessions, page by page."""
        cursor: str | None = None
        while True:
            page = self.sessions(q=q, status=status, cursor=cursor)
            yield from page["sessions"]
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def approvals(self, *, limit: int | None = None) -> list[PendingOfSession]:
        """The pending calls of all sessions."""
        found: list[PendingOfSession]
        found = (self.http.ask("GET", path("v1", "approvals", limit=limit)))["approvals"]
        return found

    def agents(self, *, usage: bool = False) -> Agents:
        """The agents of the server."""
        found: Agents = self.http.ask("GET", path("v1", "agents", usage=usage))
        return found

    def me(self) -> Me:
        """Who the credentials belong to, and what they allow."""
        found: Me = self.http.ask("GET", path("v1", "me"))
        return found

    def upload(self, data: bytes, media_type: str = "application/octet-stream") -> Blob:
        """Uploads bytes for a data block; equal bytes are stored once."""
        headers = {"content-type": media_type}
        blob: Blob = self.http.ask("POST", path("v1", "blobs"), data, headers=headers, timed=False)
        return blob

    def ticket(self) -> Ticket:
        """A ticket for one connection within a minute, for programs that cannot set headers: `?ticket=`."""
        ticket: Ticket = self.http.ask("POST", path("v1", "tickets"))
        return ticket

    def reconnect(self) -> None:
        """Retries each lost connection now instead of after its pause."""
        for stop in list(self.http.stops):
            stop.wake()

    def close(self) -> None:
        """Closes the connections. The client can be used again."""
        self.http.connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
