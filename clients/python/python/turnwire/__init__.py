"""Durable, resumable event streams for AI agents.

    import turnwire

    client = turnwire.Client("http://127.0.0.1:4747")
    session = client.create(title="Weather")
    print(session.ask("How is the weather?").get_text_content())

`docs/python.md` has a section for each task.
"""

from . import api, types, wires
from ._async.client import AsyncClient
from ._async.session import AsyncSession
from ._async.view import AsyncView
from ._async.watch import AsyncWatch
from ._common import Connection, Retry
from ._native import Folder, Msg
from ._sync.client import Client
from ._sync.session import Session
from ._sync.view import View
from ._sync.watch import Watch
from .errors import FoldError, TurnwireError
from .publisher import Publisher
from .reply import ReplyWriter

__all__ = [
    "AsyncClient",
    "AsyncSession",
    "AsyncView",
    "AsyncWatch",
    "Client",
    "Connection",
    "FoldError",
    "Folder",
    "Msg",
    "Publisher",
    "ReplyWriter",
    "Retry",
    "Session",
    "TurnwireError",
    "View",
    "Watch",
    "api",
    "types",
    "wires",
]
