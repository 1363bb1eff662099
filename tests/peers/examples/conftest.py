"""What both examples need: a server of Turnwire."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from turnwire_server import TurnwireServer

import turnwire


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TurnwireServer]:
    running = TurnwireServer(tmp_path)
    yield running
    running.stop()


@pytest.fixture
def client(server: TurnwireServer) -> Iterator[turnwire.Client]:
    with turnwire.Client(server.url, name="console") as client:
        yield client
