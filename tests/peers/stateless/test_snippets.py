"""The examples of `docs/clients.md` work, and each makes one session."""

import sys
from pathlib import Path

import pytest

import snippets
from turnwire_server import TurnwireServer

FOUND = snippets.read_page()


# Every client that the page is for.
CLIENTS = {
    "openai (Python)", "openai (Node)", "anthropic (Python)", "anthropic (Node)", "pydantic-ai", "openai-agents",
    "langchain-openai", "langchain-anthropic", "llm", "ai with @ai-sdk/openai", "ai with @ai-sdk/openai-compatible",
    "ai with @ai-sdk/anthropic", "AI SDK UI", "AG-UI", "assistant-ui with the AI SDK", "assistant-ui with AG-UI", "TanStack AI",
    "CopilotKit", *snippets.PROGRAMS,
}  # fmt: skip


def test_the_page_has_an_example_for_each_client() -> None:
    assert set(FOUND) == CLIENTS


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
