# Written by tools/unasync.py from _async/session.py. Changes belong there.
"""One session: requests, messages and events."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from .._common import Connection, dump, new_id, now, path
from .._native import Msg
from ..aliases import Content
from ..api import Asking, Decisions, History, Hit, Sent, SessionInfo
from ..types import Fields, MsgJson, Payload, PermissionRule, ToolResultState
from .http import Http
from .view import View
from .watch import Watch

if TYPE_CHECKING:
    from collections.abc import Sequence


class Session:
    """A session of a server. Creating this object sends nothing."""

    def __init__(self, http: Http, id: str) -> None:
        self.http = http
        self.id = id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"

    def _path(self, *parts: str, **query: Any) -> str:
        return path("v1", "sessions", self.id, *parts, **query)

    def get(self) -> SessionInfo:
        """The session as it is now."""
        info: SessionInfo = self.http.ask("GET", self._path())
        return info

    def update(self, **change: Any) -> SessionInfo:
        """Changes `title` or `metadata`."""
        info: SessionInfo = self.http.ask("PATCH", self._path(), dump(change))
        return info

    def rename(self, title: str) -> SessionInfo:
        return self.update(title=title)

    def delete(self) -> None:
        """Deletes the session durably; its subscribers are told."""
        self.http.ask("DELETE", self._path())

    def fork(self, *, at: int | None = None, id: str | None = None, title: str | None = None) -> Session:
        """A new session that has the log up to the event `at`, or all of it."""
        body = dump({"id": id or new_id(), "title": title})
        made: SessionInfo = self.http.ask("POST", self._path("fork", at=at), body)
        return Session(self.http, made["id"])

    def export(self) -> bytes:
        """The log: one event per line. `Folder.feed` reads it."""
        return self.http.request("GET", self._path("events"), accept="application/x-ndjson")

    def history(
        self,
        *,
        before: str | None = None,
        limit: int | None = None,
        agents: Literal["all"] | None = None,
        superseded: bool = False,
    ) -> History:
        """A page of messages, oldest first; the page before it is `before=page["next_before"]`. `agents="all"` adds the
        messages of sub-agents."""
        url = self._path("messages", before=before, limit=limit, agents=agents, superseded=superseded)
        page: History = self.http.ask("GET", url)
        return page

    def message(self, id: str, *, at: int | None = None) -> Msg:
        """A message, or its state at the event `at`."""
        return Msg(self.http.request("GET", self._path("messages", id, at=at)))

    def search(self, q: str, *, limit: int | None = None) -> list[Hit]:
        """The latest messages that have all these words, with excerpts."""
        hits: list[Hit] = (self.http.ask("GET", self._path("search", q=q, limit=limit)))["hits"]
        return hits

    def send(self, content: Content | Msg | MsgJson, *, queue: bool = False, key: str | None = None) -> Sent:
        """Sends a message: text, blocks, or a whole one. Without a response it is sent again, and counts once. While a
        reply runs it is refused (`busy`), unless `queue`: then it waits for its turn."""
        if isinstance(content, Msg):
            body = content.to_json().encode()
        else:
            body = dump(content if isinstance(content, Mapping) else {"content": content})
        headers = {"idempotency-key": key or new_id()}
        sent: Sent = self.http.ask("POST", self._path("messages", queue=queue), body, headers=headers)
        return sent

    def ask(self, content: Content | Msg | MsgJson, *, queue: bool = False) -> Msg:
        """Sends a message and waits until its reply ends, or waits for an answer (see `view`). Returns the reply."""
        sent = self.send(content, queue=queue)
        reply, may_wait = sent.get("reply_id"), False
        with self.watch(after=sent["last_event_id"]) as watch:
            for event in watch:
                kind = event["type"]
                if reply is None and kind == "REPLY_START" and not event.get("parent_tool_call_id"):
                    reply = str(event.get("reply_id"))
                if reply is None:
                    continue
                if kind == "REPLY_END" and event.get("reply_id") == reply:
                    break
                # A call waits; others of the same reply may still run.
                may_wait = may_wait or kind.startswith("REQUIRE_")
                if may_wait and kind in _BEFORE_WAITING and (self.get())["status"] == "waiting":
                    break
        assert reply is not None
        return self.message(reply)

    def cancel(self, message_id: str) -> None:
        """Removes a queued message."""
        self.http.ask("DELETE", self._path("messages", message_id))

    def retry(self, message_id: str, content: Content | None = None) -> Sent:
        """Asks for a new reply to a message, or to new content in its place; what came after it leaves the history."""
        body = b"" if content is None else dump({"content": content})
        url = self._path("messages", message_id, "retry")
        sent: Sent = self.http.ask("POST", url, body, headers={"idempotency-key": new_id()})
        return sent

    def approve(
        self,
        asking: Asking,
        *,
        input: str | Fields | None = None,
        always: bool | Sequence[PermissionRule] = False,
    ) -> None:
        """Allows a pending call: as it is, with an edited input, or with the suggested rules (`always`) for later."""
        call = asking["tool_call"]
        edited: dict[str, Any] = {"id": call["id"]}
        if input is not None:
            edited["input"] = input if isinstance(input, str) else json.dumps(input)
        result: dict[str, Any] = {"confirmed": True, "tool_call": edited}
        rules = call.get("suggested_rules", []) if always is True else always or []
        if rules:
            result["rules"] = list(rules)
        self._confirm(asking["reply_id"], result)

    def deny(self, asking: Asking, reason: str = "") -> None:
        """Denies a pending call, with a reason for the agent."""
        result: dict[str, Any] = {"confirmed": False, "tool_call": {"id": asking["tool_call"]["id"]}}
        if reason.strip():
            result["message"] = reason.strip()
        self._confirm(asking["reply_id"], result)

    def _confirm(self, reply_id: str, result: dict[str, Any]) -> None:
        event: dict[str, Any] = {"type": "USER_CONFIRM_RESULT", "reply_id": reply_id, "confirm_results": [result]}
        if self.http.options.name:
            event["metadata"] = {"client": self.http.options.name}
        self.say(event)

    def result(
        self,
        asking: Asking,
        output: Payload,
        *,
        state: ToolResultState = "success",
        metadata: Fields | None = None,
    ) -> None:
        """Sends the result of a tool that the client executed."""
        call = asking["tool_call"]
        given = {
            "type": "tool_result",
            "id": call["id"],
            "name": call.get("name", ""),
            "output": output,
            "state": state,
            "metadata": metadata or {},
        }
        reply_id = asking["reply_id"]
        self.say({"type": "EXTERNAL_EXECUTION_RESULT", "reply_id": reply_id, "execution_results": [given]})

    def stop(self, reply_id: str = "") -> None:
        """Stops the running reply. Does nothing if none runs."""
        self.say({"type": "USER_INTERRUPT", "reply_id": reply_id})

    def hint(self, hint: Payload, *, source: str | None = None, reply: bool = False) -> None:
        """A note for the agent that is not part of the conversation; `reply` starts a reply if none is open."""
        event = {"type": "HINT_BLOCK", "hint": hint, "source": source}
        self.say(event, reply=reply)

    def say(self, event: Mapping[str, Any], *, reply: bool = False) -> None:
        """Sends an event to the session. Its id makes it safe to repeat."""
        stamped = {"id": new_id(), "created_at": now(), **event}
        self.http.ask("POST", self._path("events", reply=reply), dump([stamped]))

    def decisions(self) -> Decisions:
        """The decisions about pending calls, and the accepted rules that still apply."""
        made: Decisions = self.http.ask("GET", self._path("decisions"))
        return made

    def revoke(self, rule: PermissionRule) -> None:
        """Revokes an accepted rule."""
        self.http.ask("POST", self._path("rules", "revoke"), dump({"rule": rule}))

    def watch(
        self,
        *,
        after: str | None = None,
        until: Literal["idle"] | None = None,
        raw: bool = False,
        on_connection: Callable[[Connection], None] | None = None,
    ) -> Watch:
        """The events after `after` (a resume token, or `"now"`), or all, and then new ones: each once and in order.
        `until="idle"` ends it when no reply is open. `raw`: missed deltas are not merged."""
        return Watch(self.http, self.id, after=after, until=until, raw=raw, on_connection=on_connection)

    def view(self, *, limit: int = 50, on_connection: Callable[[Connection], None] | None = None) -> View:
        """The conversation: its latest messages, kept up to date while you iterate over the view's events."""
        return View(self, limit=limit, on_connection=on_connection)


# After one of these a reply may wait.
_BEFORE_WAITING = {"REQUIRE_USER_CONFIRM", "REQUIRE_EXTERNAL_EXECUTION", "TOOL_RESULT_END"}
