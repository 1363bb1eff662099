"""What both clients share and does no I/O: ids, options, server-sent events, errors."""

from __future__ import annotations

import json
import os
import random
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, urlencode

import httpx

from .errors import TurnwireError
from .types import Event

DEFAULT_URL = "http://127.0.0.1:4747"


class Retry(NamedTuple):
    """The pause before a retry in seconds: doubled each time from `min` to `max`, with jitter."""

    min: float = 0.25
    max: float = 15.0

    def delay(self, attempt: int) -> float:
        """A random time between half of the pause and all of it, so that clients do not return all at once."""
        longest: float = min(self.max, self.min * 2.0 ** min(attempt, 30))
        return longest * (1 + random.random()) / 2


@dataclass(frozen=True)
class Options:
    """How a client behaves."""

    url: str
    name: str | None
    retry: Retry
    silence: float
    patience: float

    def timeout(self, silence: float | None) -> httpx.Timeout:
        """Each read and write may take so long; a large body takes many."""
        return httpx.Timeout(silence, connect=min(silence or 10.0, 10.0), pool=None)


@dataclass(frozen=True)
class Connection:
    """The state of a watch: `connecting`, `live`, `waiting` (lost; tried again after `retry_in` seconds), `closed`."""

    state: Literal["connecting", "live", "waiting", "closed"]
    error: TurnwireError | None = None
    retry_in: float | None = None


def find_url(url: str | None) -> str:
    """The server's URL: as given, or from the environment, or the default of `turnwire serve`."""
    found = (url or os.environ.get("TURNWIRE_URL") or DEFAULT_URL).rstrip("/")
    if not found.startswith(("http://", "https://")):
        raise ValueError(f"the URL of a server begins with http:// or https://, not {found!r}")
    return found


def new_id() -> str:
    """A new id: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def now() -> str:
    """The time, as events carry it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def path(*parts: str, **query: Any) -> str:
    """A path with escaped parts, and the query parameters that have a value."""
    given = {key: "true" if value is True else value for key, value in query.items() if value not in (None, False, "")}
    return "/" + "/".join(quote(part, safe="") for part in parts) + (f"?{urlencode(given)}" if given else "")


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def error_of(status: int, body: bytes) -> TurnwireError:
    """The error that a response says."""
    message, type, hint = f"the server responded with status {status}", "unknown", None
    try:
        error = json.loads(body)["error"]
        message, type, hint = str(error["message"]), str(error["type"]), error.get("hint")
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # A proxy in between has errors of its own.
    return TurnwireError(message, type=type, status=status, hint=hint)


def lost(error: Exception, url: str) -> TurnwireError:
    """No response came."""
    return TurnwireError(f"no response from {url}: {str(error) or type(error).__name__}")


def retry_after(response: httpx.Response) -> float:
    """For how many seconds the server wants to be left alone; at most a minute counts."""
    try:
        return min(float(response.headers.get("retry-after", 0)), 60.0)
    except ValueError:
        return 0.0


class SseParser:
    """Parses server-sent events from bytes in pieces: `(data, id)`. A frame without its empty line is dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._id: str | None = None

    def feed(self, piece: bytes) -> list[tuple[bytes, str | None]]:
        *lines, self._rest = (self._rest + piece).split(b"\n") if self._rest else piece.split(b"\n")
        frames: list[tuple[bytes, str | None]] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" ").rstrip(b"\r"))
            elif line.startswith(b"id:"):
                self._id = line[3:].strip().decode()
            elif line in (b"", b"\r"):
                if self._data:
                    frames.append((b"\n".join(self._data), self._id))
                self._data, self._id = [], None
        return frames


class Position:
    """Where a watch is: which events it has delivered."""

    def __init__(self, after: str | None) -> None:
        self.after = after
        tail = (after or "").rpartition(".")[2]
        self._last = int(tail) if tail.isdigit() else 0

    def take(self, data: bytes, id: str | None) -> Event | None:
        """The event of a frame, unless it was delivered before."""
        event: Any = json.loads(data)
        is_reset = event.get("type") == "RESET"
        seq = event.get("seq")
        if not is_reset and seq is not None and seq <= self._last:
            return None
        # After a reset all events come again.
        self._last = 0 if is_reset else (self._last if seq is None else seq)
        if id:
            self.after = id
        elif is_reset and event.get("epoch"):
            self.after = f"{event['epoch']}.0"
        found: Event = event
        return found
