"""The examples of `docs/clients.md` work, and each makes one session."""

import sys
from pathlib import Path

import pytest

import snippets
from turnwire_server import TurnwireServer

FOUND = snippets.read_page()


def test_the_page_has_an_example_for_each_client() -> None:
    assert len(FOUND) >= 16 and set(snippets.PROGRAMS) <= set(FOUND)


@pytest.mark.parametrize("name", [name for name in FOUND if snippets.runs_here(FOUND[name])])
def test_the_example_works(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    server = TurnwireServer(folder)
    try:
        printed = snippets.run(FOUND[name], server, tmp_path, [Path(sys.executable).parent])
        snippets.check_session(server, printed)
    finally:
        server.stop()
