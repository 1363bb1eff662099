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
from .http import AsyncHttp
from .view import AsyncView
from .watch import AsyncWatch

if TYPE_CHECKING:
    from collections.abc import Sequence


class AsyncSession:
    """A session of a server. Creating this object sends nothing."""

    def __init__(self, http: AsyncHttp, id: str) -> None:
        self.http = http
        self.id = id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"

    def _path(self, *parts: str, **query: Any) -> str:
        return path("v1", "sessions", self.id, *parts, **query)

    async def get(self) -> SessionInfo:
        """The session as it is now."""
        info: SessionInfo = await self.http.ask("GET", self._path())
        return info

    async def update(self, **change: Any) -> SessionInfo:
        """Changes `title` or `metadata`."""
        info: SessionInfo = await self.http.ask("PATCH", self._path(), dump(change))
        return info

    async def rename(self, title: str) -> SessionInfo:
        return await self.update(title=title)

    async def delete(self) -> None:
        """Deletes the session durably; its subscribers are told."""
        await self.http.ask("DELETE", self._path())

    async def fork(self, *, at: int | None = None, id: str | None = None, title: str | None = None) -> AsyncSession:
        """A new session that has the log up to the event `at`, or all of it."""
        body = dump({"id": id or new_id(), "title": title})
        made: SessionInfo = await self.http.ask("POST", self._path("fork", at=at), body)
        return AsyncSession(self.http, made["id"])

    async def export(self) -> bytes:
        """The log: one event per line. `Folder.feed` reads it."""
        return await self.http.request("GET", self._path("events"), accept="application/x-ndjson")

    async def history(
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
        page: History = await self.http.ask("GET", url)
        return page

    async def message(self, id: str, *, at: int | None = None) -> Msg:
        """A message, or its state at the event `at`."""
        return Msg(await self.http.request("GET", self._path("messages", id, at=at)))

    async def search(self, q: str, *, limit: int | None = None) -> list[Hit]:
        """The latest messages that have all these words, with excerpts."""
        hits: list[Hit] = (await self.http.ask("GET", self._path("search", q=q, limit=limit)))["hits"]
        return hits

    async def send(self, content: Content | Msg | MsgJson, *, queue: bool = False, key: str | None = None) -> Sent:
        """Sends a message: text, blocks, or a whole one. Without a response it is sent again, and counts once. While a
        reply runs it is refused (`busy`), unless `queue`: then it waits for its turn."""
        if isinstance(content, Msg):
            body = content.to_json().encode()
        else:
            body = dump(content if isinstance(content, Mapping) else {"content": content})
        headers = {"idempotency-key": key or new_id()}
        sent: Sent = await self.http.ask("POST", self._path("messages", queue=queue), body, headers=headers)
        return sent

    async def ask(self, content: Content | Msg | MsgJson, *, queue: bool = False) -> Msg:
        """Sends a message and waits until its reply ends, or waits for an answer (see `view`). Returns the reply."""
        sent = await self.send(content, queue=queue)
        reply, may_wait = sent.get("reply_id"), False
        async with self.watch(after=sent["last_event_id"]) as watch:
            async for event in watch:
                kind = event["type"]
                if reply is None and kind == "REPLY_START" and not event.get("parent_tool_call_id"):
                    reply = str(event.get("reply_id"))
                if reply is None:
                    continue
                if kind == "REPLY_END" and event.get("reply_id") == reply:
                    break
                # A call waits; others of the same reply may still run.
                may_wait = may_wait or kind.startswith("REQUIRE_")
                if may_wait and kind in _BEFORE_WAITING and (await self.get())["status"] == "waiting":
                    break
        assert reply is not None
        return await self.message(reply)

    async def cancel(self, message_id: str) -> None:
        """Removes a queued message."""
        await self.http.ask("DELETE", self._path("messages", message_id))

    async def retry(self, message_id: str, content: Content | None = None) -> Sent:
        """Asks for a new reply to a message, or to new content in its place; what came after it leaves the history."""
        body = b"" if content is None else dump({"content": content})
        url = self._path("messages", message_id, "retry")
        sent: Sent = await self.http.ask("POST", url, body, headers={"idempotency-key": new_id()})
        return sent

    async def approve(
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
        await self._confirm(asking["reply_id"], result)

    async def deny(self, asking: Asking, reason: str = "") -> None:
        """Denies a pending call, with a reason for the agent."""
        result: dict[str, Any] = {"confirmed": False, "tool_call": {"id": asking["tool_call"]["id"]}}
        if reason.strip():
            result["message"] = reason.strip()
        await self._confirm(asking["reply_id"], result)

    async def _confirm(self, reply_id: str, result: dict[str, Any]) -> None:
        event: dict[str, Any] = {"type": "USER_CONFIRM_RESULT", "reply_id": reply_id, "confirm_results": [result]}
        if self.http.options.name:
            event["metadata"] = {"client": self.http.options.name}
        await self.say(event)

    async def result(
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
        await self.say({"type": "EXTERNAL_EXECUTION_RESULT", "reply_id": reply_id, "execution_results": [given]})

    async def stop(self, reply_id: str = "") -> None:
        """Stops the running reply. Does nothing if none runs."""
        await self.say({"type": "USER_INTERRUPT", "reply_id": reply_id})

    async def hint(self, hint: Payload, *, source: str | None = None, reply: bool = False) -> None:
        """A note for the agent that is not part of the conversation; `reply` starts a reply if none is open."""
        event = {"type": "HINT_BLOCK", "hint": hint, "source": source}
        await self.say(event, reply=reply)

    async def say(self, event: Mapping[str, Any], *, reply: bool = False) -> None:
        """Sends an event to the session. Its id makes it safe to repeat."""
        stamped = {"id": new_id(), "created_at": now(), **event}
        await self.http.ask("POST", self._path("events", reply=reply), dump([stamped]))

    async def decisions(self) -> Decisions:
        """The decisions about pending calls, and the accepted rules that still apply."""
        made: Decisions = await self.http.ask("GET", self._path("decisions"))
        return made

    async def revoke(self, rule: PermissionRule) -> None:
        """Revokes an accepted rule."""
        await self.http.ask("POST", self._path("rules", "revoke"), dump({"rule": rule}))

    def watch(
        self,
        *,
        after: str | None = None,
        until: Literal["idle"] | None = None,
        raw: bool = False,
        on_connection: Callable[[Connection], None] | None = None,
    ) -> AsyncWatch:
        """The events after `after` (a resume token, or `"now"`), or all, and then new ones: each once and in order.
        `until="idle"` ends it when no reply is open. `raw`: missed deltas are not merged."""
        return AsyncWatch(self.http, self.id, after=after, until=until, raw=raw, on_connection=on_connection)

    def view(self, *, limit: int = 50, on_connection: Callable[[Connection], None] | None = None) -> AsyncView:
        """The conversation: its latest messages, kept up to date while you iterate over the view's events."""
        return AsyncView(self, limit=limit, on_connection=on_connection)


# After one of these a reply may wait.
_BEFORE_WAITING = {"REQUIRE_USER_CONFIRM", "REQUIRE_EXTERNAL_EXECUTION", "TOOL_RESULT_END"}
