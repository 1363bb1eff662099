"""What the functions of this package take."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from .types import ContentBlock, DataBlock, Event, MsgJson, TextBlock

# What the fold did with an event.
Outcome: TypeAlias = Literal["applied", "repeated", "ignored", "skipped"]

# A message: its JSON, or the dictionary of it.
AnyMsg: TypeAlias = "str | bytes | MsgJson | dict[str, Any]"

# An event: its JSON, or the dictionary of it.
AnyEvent: TypeAlias = "str | bytes | Event | dict[str, Any]"

# The content of a message: text or blocks.
Content: TypeAlias = "str | list[ContentBlock] | list[TextBlock | DataBlock] | list[dict[str, Any]]"
