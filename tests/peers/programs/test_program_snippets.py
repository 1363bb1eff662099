"""The examples of programs in `docs/clients.md` work, and each makes one session."""

from pathlib import Path

import pytest

import snippets
from programs import BIN
from turnwire_server import TurnwireServer


@pytest.mark.parametrize("name", snippets.PROGRAMS)
def test_the_example_works(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    server = TurnwireServer(folder)
    try:
        printed = snippets.run(snippets.read_page()[name], server, tmp_path, [BIN])
        # Beside the conversation they ask for its title.
        snippets.check_session(server, printed, others=2)
    finally:
        server.stop()
