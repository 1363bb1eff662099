"""The package in a real notebook, where an event loop runs already."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
from turnwire_server import TurnwireServer

CELLS = [
    """
    import asyncio
    import turnwire
    from turnwire.agents import AgentAdapter, serve

    client = turnwire.AsyncClient(URL)
    session = await client.create()
    print((await session.ask("How is the weather?")).finished_reason)
    """,
    # What waits in one cell goes on in the next.
    """
    watch = session.watch(after="now")
    reading = asyncio.create_task(anext(watch))
    """,
    """
    await session.send("hello")
    print((await reading)["type"])
    await watch.close()
    """,
    # The synchronous client blocks the cell, and nothing else is needed.
    """
    with turnwire.Client(URL) as blocking:
        print(blocking.create().ask("hello").finished_reason)
    """,
    """
    with turnwire.Publisher(f"{session.id}-published", url=URL) as publisher:
        reply = turnwire.ReplyWriter(publisher.send)
        reply.text("from a cell")
        reply.end()
    print((await client.session(publisher.session).message(reply.id)).get_text_content())
    """,
    """
    class Parrot(AgentAdapter):
        name = "parrot"

        async def run(self, turn):
            events = []
            reply = turnwire.ReplyWriter(events.append, name=self.name, id=turn.reply_id)
            reply.text(turn.text)
            reply.end()
            for event in events:
                yield event

    served = await client.create(agent="external")
    serving = asyncio.create_task(serve(Parrot(), served.id, url=URL))
    """,
    """
    print((await served.ask("hello")).get_text_content())
    serving.cancel()
    await asyncio.wait([serving])
    print(serving.cancelled())
    await client.close()
    """,
]


def test_a_notebook_runs(server: TurnwireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    with warnings.catch_warnings():
        # About the notebook's own packages.
        warnings.simplefilter("ignore")
        import nbformat
        from nbclient import NotebookClient

        new: Any = nbformat.v4
        cells = [f"URL = {server.url!r}", *map(textwrap.dedent, CELLS)]
        notebook = new.new_notebook(cells=[new.new_code_cell(cell) for cell in cells])
        NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    assert {output.output_type for output in outputs} == {"stream"}
    assert {output.name for output in outputs} == {"stdout"}, outputs
    printed = "".join(output.text for output in outputs).split("\n")
    assert printed == ["completed", "MESSAGE", "completed", "from a cell", "hello", "True", ""]
