"""A server for each store."""

from collections.abc import Iterator

import pytest

from harness import Server

STORES = ("memory:", "sqlite:turnwire.db")


@pytest.fixture(scope="session", params=STORES)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"), request.param)
    yield server
    server.stop()
