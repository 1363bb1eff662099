# Written by tools/unasync.py from _async/view.py. Changes belong there.
"""A conversation to show: loaded once, then folded from its events."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from typing_extensions import Self

from .._common import Connection
from .._view import ViewState
from ..api import History
from ..errors import TurnwireError
from ..types import Event
from .watch import Watch

if TYPE_CHECKING:
    from .session import Session


class View(ViewState):
    """The messages of a session, kept up to date. Iterate over it: it yields every event after it was folded."""

    def __init__(self, session: Session, *, limit: int, on_connection: Callable[[Connection], None] | None) -> None:
        super().__init__()
        self.session = session
        self._limit = limit
        self._on_connection = on_connection
        self._watch: Watch | None = None
        self._is_closed = False
        # An event that was folded and not yet delivered.
        self._event: Event | None = None
        self._has_news = False

    @property
    def connection(self) -> Connection:
        """The state of the connection."""
        return self._watch.connection if self._watch else Connection("closed" if self._is_closed else "connecting")

    @property
    def last_event_id(self) -> str | None:
        """The resume token of the last event that was folded."""
        return self._watch.last_event_id if self._watch else None

    def load(self) -> Self:
        """Loads the latest messages. Iterating does this, too."""
        if self._watch is None and not self._is_closed:
            page = self._page()
            self._start(page)
            self._refresh()
            after = page["last_event_id"]
            # It may have been closed while it loaded.
            if not self._is_closed:
                self._watch = self.session.watch(after=after, on_connection=self._on_connection)
        return self

    def load_more(self) -> None:
        """Loads earlier messages, if there are any: `has_more`."""
        before = self._before
        if before:
            self._add_older(self._page(before), before)

    def _page(self, before: str | None = None) -> History:
        return self.session.history(before=before, limit=self._limit, agents="all")

    def _refresh(self) -> None:
        """Asks for what events do not contain: the queue, deadlines, all tokens."""
        try:
            self._set_info(self.session.get())
        except TurnwireError as error:
            # The watch says what is wrong, and reconnects.
            self.problem = error

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        self.load()
        if self._watch is None:
            raise StopIteration
        # A task may be cancelled in between: the next one gets the event.
        if self._event is None:
            self._event = self._watch.__next__()
            self._has_news = self._fold(self._event)
        if self._has_news:
            self._refresh()
        event, self._event, self._has_news = self._event, None, False
        return event

    def close(self) -> None:
        """Ends the view, also while another thread iterates."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.close()

    def __enter__(self) -> Self:
        return self.load()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
