"""Writes the events of one reply, for agents that have no events of their own.

with turnwire.Publisher("my-session") as publisher:
    reply = turnwire.ReplyWriter(publisher.send, name="friday")
    reply.text("Hel")
    reply.text("lo")
    reply.end()
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from ._common import new_id
from ._native import Msg
from .types import ErrorType, FinishedReason, Payload, ToolResultState


class ReplyWriter:
    """Writes the events of one reply. It opens and closes blocks as they are needed, and leaves nothing open."""

    def __init__(
        self,
        send: Callable[[dict[str, Any]], object],
        *,
        name: str = "assistant",
        id: str | None = None,
        agent_path: str | None = None,
        parent_tool_call_id: str | None = None,
        is_resumed: bool = False,
    ) -> None:
        """`send` takes each event: `Publisher.send`, or `list.append`. A resumed reply was started before."""
        self.id = id or new_id()
        self.name = name
        self._send = send
        self._common: dict[str, Any] = {"reply_id": self.id}
        if agent_path is not None:
            self._common["agent_path"] = agent_path
        if parent_tool_call_id is not None:
            self._common["parent_tool_call_id"] = parent_tool_call_id
        self._is_started = is_resumed
        self._is_in_model_call = False
        self.is_ended = False
        # The text or thinking block that is open, and the calls whose input is.
        self._block: tuple[str, str] | None = None
        self._calls: dict[str, str] = {}
        # The calls whose result is open.
        self._results: dict[str, str] = {}

    def start(self) -> None:
        """Starts the reply. Everything else does so by itself."""
        if not self._is_started:
            self._is_started = True
            self._emit("REPLY_START", name=self.name, role="assistant", session_id="")

    def model_call(self, model: str = "") -> None:
        """A call of the model starts."""
        if not self._is_in_model_call:
            self._is_in_model_call = True
            self._emit("MODEL_CALL_START", model_name=model)

    def model_call_end(
        self,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_input_tokens: int = 0,
        cache_creation_input_tokens: int = 0,
        finished_reason: FinishedReason = "completed",
    ) -> None:
        """It has ended, and took these tokens."""
        self.close_blocks()
        self.model_call()
        self._is_in_model_call = False
        self._emit(
            "MODEL_CALL_END",
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_input_tokens=cache_input_tokens,
            cache_creation_input_tokens=cache_creation_input_tokens,
            finished_reason=finished_reason,
        )

    def text(self, delta: str) -> None:
        """Appends text."""
        self._delta("TEXT", delta)

    def thinking(self, delta: str) -> None:
        """Appends to the model's reasoning."""
        self._delta("THINKING", delta)

    def _delta(self, kind: str, delta: str) -> None:
        if not delta:
            return
        if self._block is None or self._block[0] != kind:
            # The input of a call may go on behind it.
            self._end_block()
            self._block = (kind, new_id())
            self._emit(f"{kind}_BLOCK_START", block_id=self._block[1])
        self._emit(f"{kind}_BLOCK_DELTA", block_id=self._block[1], delta=delta)

    def data(self, data: str, media_type: str, *, name: str | None = None) -> None:
        """Appends bytes, as base64, or a URL to them."""
        self._end_block()
        block = new_id()
        is_url = "://" in data[:16]
        self._emit("DATA_BLOCK_START", block_id=block, media_type=media_type, name=name)
        self._emit("DATA_BLOCK_DELTA", block_id=block, media_type=media_type, **{"url" if is_url else "data": data})
        self._emit("DATA_BLOCK_END", block_id=block)

    def tool_call(self, id: str, name: str, input: str | dict[str, Any] = "") -> None:
        """The model calls a tool. Its input may come in parts: `tool_input`."""
        self._end_block()
        self._calls[id] = name
        self._emit("TOOL_CALL_START", tool_call_id=id, tool_call_name=name)
        self.tool_input(id, input)

    def tool_input(self, id: str, delta: str | dict[str, Any]) -> None:
        """Appends to the input of a call: JSON text."""
        delta = delta if isinstance(delta, str) else json.dumps(delta)
        if delta:
            self._emit("TOOL_CALL_DELTA", tool_call_id=id, delta=delta)

    def tool_call_end(self, id: str) -> None:
        """The input of a call is complete."""
        if self._calls.pop(id, None) is not None:
            self._emit("TOOL_CALL_END", tool_call_id=id)

    def tool_result(self, id: str, name: str, output: Payload = "", *, state: ToolResultState = "success") -> None:
        """The result of a call."""
        self.tool_result_start(id, name)
        if isinstance(output, str):
            self.tool_output(id, output)
        else:
            for part in output:
                if part["type"] == "text":
                    self.tool_output(id, part["text"])
                    continue
                source = part["source"]
                content = {"url": source["url"]} if source["type"] == "url" else {"data": source["data"]}
                media_type = source.get("media_type", "application/octet-stream")
                event = {"tool_call_id": id, "block_id": new_id(), "media_type": media_type, **content}
                self._emit("TOOL_RESULT_DATA_DELTA", **event)
        self.tool_result_end(id, state=state)

    def tool_result_start(self, id: str, name: str) -> None:
        """A tool starts."""
        if id not in self._results:
            self.close_blocks()
            self._results[id] = name
            self._emit("TOOL_RESULT_START", tool_call_id=id, tool_call_name=name)

    def tool_output(self, id: str, delta: str) -> None:
        """Appends text to the output of a tool."""
        if delta:
            self._emit("TOOL_RESULT_TEXT_DELTA", tool_call_id=id, delta=delta)

    def tool_result_end(self, id: str, *, state: ToolResultState = "success") -> None:
        """A tool has ended."""
        if self._results.pop(id, None) is not None:
            self._emit("TOOL_RESULT_END", tool_call_id=id, state=state)

    def require_confirm(self, *calls: tuple[str, str, str]) -> None:
        """These calls (id, name, input) wait for a person. The reply stays open."""
        self._require("REQUIRE_USER_CONFIRM", calls)

    def require_execution(self, *calls: tuple[str, str, str]) -> None:
        """These calls (id, name, input) wait for the client to execute them. The reply stays open."""
        self._require("REQUIRE_EXTERNAL_EXECUTION", calls)

    def _require(self, kind: str, calls: tuple[tuple[str, str, str], ...]) -> None:
        self.close_blocks()
        listed = [{"type": "tool_call", "id": id, "name": name, "input": input} for id, name, input in calls]
        if listed:
            self._emit(kind, tool_calls=listed)

    def custom(self, name: str, value: Any) -> None:
        """An event of your own. It changes no message."""
        self._emit("CUSTOM", name=name, value=value)

    def close_blocks(self) -> None:
        """Ends the open text or thinking, and the inputs of calls."""
        self._end_block()
        for id in list(self._calls):
            self.tool_call_end(id)

    def _end_block(self) -> None:
        if self._block is not None:
            kind, id = self._block
            self._block = None
            self._emit(f"{kind}_BLOCK_END", block_id=id)

    def end(
        self,
        reason: FinishedReason = "completed",
        *,
        error: str | None = None,
        error_type: ErrorType = "internal",
        structured_output: Any = None,
    ) -> None:
        """Ends the reply. With an `error` it has failed."""
        if self.is_ended:
            return
        self.close_blocks()
        for id in list(self._results):
            self.tool_result_end(id, state="error" if error else "interrupted")
        if self._is_in_model_call:
            self.model_call_end(finished_reason="error" if error else reason)
        end: dict[str, Any] = {"session_id": "", "finished_reason": "error" if error else reason}
        if error is not None:
            end["error"] = {"type": error_type, "message": error}
        if structured_output is not None:
            end["structured_output"] = structured_output
        self._emit("REPLY_END", **end)
        self.is_ended = True

    def _emit(self, kind: str, **fields: Any) -> None:
        if kind != "REPLY_START":
            self.start()
        self._send({"type": kind, **self._common, **fields})


def closing_events(
    msg: Msg, reason: FinishedReason = "interrupted", error: dict[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """The events that end a reply that broke off, so that nothing of it stays open: `msg` is what it has become."""
    if msg.finished_at is not None:
        return
    common = {"reply_id": msg.id}
    results = {block["id"]: block for block in msg.get_content_blocks("tool_result")}
    for block in msg.content:
        kind = block["type"]
        if kind in ("text", "thinking") and block.get("finished_at") is None:
            yield {"type": f"{kind.upper()}_BLOCK_END", "block_id": block.get("id", ""), **common}
        elif kind == "data" and block.get("finished_at") is None:
            yield {"type": "DATA_BLOCK_END", "block_id": block.get("id", ""), **common}
        elif block["type"] == "tool_call":
            named = {"tool_call_id": block["id"], **common}
            result = results.get(block["id"])
            if block.get("finished_at") is None:
                yield {"type": "TOOL_CALL_END", **named}
            if result is not None and result["state"] != "running":
                continue
            if result is None:
                yield {"type": "TOOL_RESULT_START", "tool_call_name": block["name"], **named}
            yield {"type": "TOOL_RESULT_END", "state": "interrupted", **named}
    end: dict[str, Any] = {"type": "REPLY_END", "session_id": "", "finished_reason": reason, **common}
    if error is not None:
        end["error"] = error
    yield end
