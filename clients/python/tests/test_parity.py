"""What the TypeScript client has, the Python clients have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import turnwire

SOURCE = Path(__file__).parents[2] / "typescript/src"

# What has another name here, or needs none.
OTHER_NAMES = {
    "SessionView": {
        "state": "messages",
        # The view is iterated over, or read at any time.
        "subscribe": "__iter__",
        # It belongs to the session here.
        "send": "session",
        "cancel": "session",
    },
    "Watch": {"next": "__next__", "return": "close"},
    "Msg": {"from": "__new__", "toJSON": "to_dict"},
}


def methods(name: str) -> set[str]:
    """The public methods and accessors of a class of the TypeScript client."""
    for file in SOURCE.glob("*.ts"):
        found = re.search(rf"^export class {name} .*?^}}", file.read_text(), re.M | re.S)
        if found:
            pattern = r"^  (?:static |async |get )*\*?(\w+)(?:<[^>]*>)?\("
            return set(re.findall(pattern, found[0], re.M)) - {"constructor"}
    raise AssertionError(f"the TypeScript client has no class {name}")


def snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


@pytest.mark.parametrize(
    ("theirs", "ours", "at_least"),
    [
        ("Client", (turnwire.Client, turnwire.AsyncClient), 9),
        ("Session", (turnwire.Session, turnwire.AsyncSession), 20),
        ("SessionView", (turnwire.View, turnwire.AsyncView), 5),
        ("Watch", (turnwire.Watch, turnwire.AsyncWatch), 2),
        ("Msg", (turnwire.Msg,), 6),
        ("Folder", (turnwire.Folder,), 5),
    ],
)
def test_every_method_of_the_typescript_client_has_its_counterpart(
    theirs: str, ours: tuple[type, ...], at_least: int
) -> None:
    found = methods(theirs)
    assert len(found) >= at_least, found
    for name in found:
        counterpart = OTHER_NAMES.get(theirs, {}).get(name, snake(name))
        for cls in ours:
            asynchronous = {"__iter__": "__aiter__", "__next__": "__anext__"}
            wanted = asynchronous.get(counterpart, counterpart) if cls.__name__.startswith("Async") else counterpart
            has = hasattr(cls, wanted) or wanted in cls.__init__.__annotations__
            assert has, f"{cls.__name__} has nothing for {theirs}.{name}"


def test_every_option_of_the_typescript_client_has_its_counterpart() -> None:
    [options] = re.findall(r"^export interface Options \{(.*?)^\}", (SOURCE / "http.ts").read_text(), re.M | re.S)
    names = set(re.findall(r"^  (\w+)\?:", options, re.M))
    assert len(names) >= 7
    # A replacement for `fetch` is a transport of httpx. The WebSocket transport is for browsers, which open few
    # connections: here each watch has its own.
    for name in names - {"fetch"}:
        for cls in (turnwire.Client, turnwire.AsyncClient):
            assert name in cls.__init__.__annotations__, f"{cls.__name__} has no option {name}"
