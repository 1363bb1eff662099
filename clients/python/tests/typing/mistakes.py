"""Mistakes that a type checker must find: one on each line that ends with `# wrong`."""
# ruff: noqa: B018

from __future__ import annotations

from turnwire import Folder, Msg, wires
from turnwire.types import Event


def wrong(event: Event) -> None:
    Folder().push(1)  # wrong
    Msg.user(3)  # wrong
    Msg.user("hi").nmae  # wrong
    wires.Decoder("turnwire", scope="line")  # wrong
    if event["type"] == "TEXT_BLOCK_DELTA":
        event["text"]  # wrong
