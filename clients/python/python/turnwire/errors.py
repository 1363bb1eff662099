"""The errors of this package."""

from __future__ import annotations

from typing import Any

# Not `TimeoutError`, 500 or 403: the same request may work later.
_TEMPORARY = {0, 429, 500, 502, 503, 504}


class TurnwireError(Exception):
    """An error of the server, or of the connection to it.

    `type` is for programs (`busy`, `not_found`, `already_answered`, …; `lost` if there was no response), `hint` says
    what to do, `status` is the HTTP status; 0 if there was no response.
    """

    def __init__(self, message: str, *, type: str = "lost", status: int = 0, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.type = type
        self.status = status
        self.hint = hint
        # For how many seconds the server wants to be left alone.
        self.retry_after = 0.0

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may work later: its outcome is unknown, or the failure is temporary."""
        return self.status in _TEMPORARY

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.type, self.status, self.hint)


class FoldError(ValueError):
    """An event that does not fit, or JSON that is no event or message. Nothing was changed.

    `kind` is one of the problems of `docs/events.md`: `UnknownBlock`, `AlreadyEnded`, `NotJson`, …; `line` is the line
    of a body, if it came in one.
    """

    line: int | None = None

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.kind}: {self.message}"


def _rebuild(
    cls: type[TurnwireError], message: str, type: str, status: int, hint: str | None
) -> TurnwireError:  # Exceptions with keyword arguments cannot be pickled by themselves.
    return cls(message, type=type, status=status, hint=hint)
