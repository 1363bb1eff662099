"""The state of a view: pages of history, and the events after them. It does no I/O."""

from __future__ import annotations

import threading
from typing import Any, Literal

from ._native import Folder, Msg
from .api import Approval, History, Origin, Queued, SessionInfo, Status
from .types import Event

# After one of these the session has news that events do not contain.
_NEWS = ("MESSAGE", "REPLY_END", "RESET", "REQUIRE_")


class ViewState:
    """What a view shows. Reading costs only the messages that have changed since. One thread may read it while another
    iterates."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._folder = Folder()
        self._older: list[Msg] = []
        self._before: str | None = None
        self._copies: dict[str, Msg] = {}
        self._changed: set[str] = set()
        # Whether messages were added or superseded.
        self._is_stale = True
        self._order: list[Msg] = []
        self._origins: dict[str, Origin] = {}
        self._deadlines: dict[str, tuple[str | None, str | None]] = {}
        # The session when a reply last started or ended, or a call was requested.
        self.info: SessionInfo | None = None
        # The last event that did not fit, or the last request that failed. All else was applied.
        self.problem: Exception | None = None

    @property
    def messages(self) -> list[Msg]:
        """The history, oldest first; without the messages of sub-agents."""
        return [msg for msg in self._all() if msg.id not in self._origins]

    @property
    def agents(self) -> list[tuple[Msg, Origin]]:
        """The messages of sub-agents, and the agent and tool call that each works for."""
        return [(msg, self._origins[msg.id]) for msg in self._all() if msg.id in self._origins]

    @property
    def streaming(self) -> Msg | None:
        """The open reply, which is also the last message."""
        mine = reversed(self.messages)
        return next((msg for msg in mine if msg.role == "assistant" and msg.finished_at is None), None)

    @property
    def pending(self) -> list[Approval]:
        """The calls that wait for a person (`approve`, `deny`) or a client (`result`)."""
        found: list[Approval] = []
        for msg in self._all():
            if msg.finished_at is not None:
                continue
            for call in msg.get_content_blocks("tool_call"):
                if call["state"] not in ("asking", "submitted"):
                    continue
                since, expires_at = self._deadlines.get(call["id"], (None, None))
                kind: Literal["confirm", "external"] = "confirm" if call["state"] == "asking" else "external"
                found.append(
                    {
                        "kind": kind,
                        "reply_id": msg.id,
                        "tool_call": call,
                        "agent_path": self._origins.get(msg.id, {}).get("agent_path"),
                        "since": since,
                        "expires_at": expires_at,
                    }
                )
        return found

    @property
    def status(self) -> Status:
        """Whether a reply runs, or waits for an answer."""
        return "waiting" if self.pending else "running" if self.streaming else "idle"

    @property
    def queued(self) -> list[Queued]:
        """The messages in the queue."""
        return self.info["queued"] if self.info else []

    @property
    def has_more(self) -> bool:
        """Whether there are earlier messages: `load_more` loads them."""
        return self._before is not None

    def _all(self) -> list[Msg]:
        """Copies of all messages; one that did not change is the same object."""
        with self._lock:
            if self._is_stale or self._changed:
                superseded = set(self._folder.superseded())
                order = [id for id in self._folder.ids() if id not in superseded]
                for id in order:
                    if id in self._changed or id not in self._copies:
                        msg = self._folder.get(id)
                        if msg is not None:
                            self._copies[id] = msg
                self._order = [self._copies[id] for id in order if id in self._copies]
                self._changed.clear()
                self._is_stale = False
            return self._older + self._order

    def _start(self, page: History) -> None:
        self._forget()
        cursors = page["cursors"]
        self._folder = Folder(Msg(json, cursors.get(json.get("id", ""))) for json in page["messages"])
        self._keep(page)

    def _add_older(self, page: History, before: str) -> None:
        with self._lock:
            # Unless somebody else has loaded this page, or the session began again meanwhile.
            if self._before == before:
                self._older = [Msg(json) for json in page["messages"]] + self._older
                self._keep(page)

    def _keep(self, page: History) -> None:
        self._origins.update(page.get("agents") or {})
        self._before = page.get("next_before")

    def _forget(self) -> None:
        self._older, self._before = [], None
        self._copies.clear()
        self._origins.clear()
        self._is_stale = True

    def _set_info(self, info: SessionInfo) -> None:
        self.info = info
        for pending in info["pending"]:
            for call in [*pending["confirm"], *pending["external"]]:
                self._deadlines[call["id"]] = (pending["since"], pending["expires_at"])

    def _fold(self, event: Event) -> bool:
        """Applies an event. Returns whether the session has news."""
        fields: Any = event
        with self._lock:
            self._apply(event, fields, fields.get("reply_id"))
        return str(fields["type"]).startswith(_NEWS)

    def _apply(self, event: Event, fields: Any, reply: str | None) -> None:
        if fields["type"] == "RESET":
            self._forget()
        path, call = fields.get("agent_path"), fields.get("parent_tool_call_id")
        if reply and (call is not None or "/" in (path or "")) and not self._origins.get(reply, {}).get("agent_path"):
            origin: Origin = {}
            if path is not None:
                origin["agent_path"] = path
            if call is not None:
                origin["parent_tool_call_id"] = call
            self._origins[reply] = origin
        _, problem = self._folder.push_tolerant(event)
        if problem is not None:
            self.problem = problem
        if reply:
            self._changed.add(reply)
        else:
            self._is_stale = True
