"""`docs/agentscope.md`: its programs run, its agent is AgentScope's, and the names in its table exist."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import agentscope
import agentscope.agent
import agentscope.event
import agentscope.formatter
import agentscope.mcp
import agentscope.message
import agentscope.middleware
import agentscope.model
import agentscope.permission
import agentscope.pipeline
import agentscope.state
import agentscope.tool
import httpx
import pytest
from agentscope.agent import Agent, InjectionConfig
from agentscope.credential import OpenAICredential
from agentscope.event import ConfirmResult, UserConfirmResultEvent, UserInterruptEvent
from agentscope.message import Msg as ScopeMsg
from agentscope.message import UserMsg
from agentscope.model import OpenAIChatModel
from fake_provider import FakeProvider
from pydantic import BaseModel
from turnwire_server import TurnwireServer, until

import turnwire
from conftest import FAST

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs/agentscope.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    running = FakeProvider()
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{running.url}/v1")
    yield running
    running.close()


# What each program prints.
PRINTED = ["REPLY_END\n['user', 'assistant']", "You said: Hello", "18 °C", ""]


@pytest.mark.parametrize(("program", "printed"), list(zip(blocks("python"), PRINTED, strict=True)))
def test_a_program_of_the_page_runs(program: str, printed: str, server: TurnwireServer, provider: FakeProvider) -> None:
    env = os.environ | {"TURNWIRE_URL": server.url, "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert printed in ran.stdout


def test_the_agent_of_the_settings_is_the_agent_in_python(
    provider: FakeProvider, start_server: Callable[..., TurnwireServer], tmp_path: Path
) -> None:
    [settings] = blocks("toml")
    settings = settings.replace(
        'model = "openai:gpt-5-mini"',
        f'model = "openai:gpt-5-mini"\nbase_url = "{provider.url}/v1"\napi_key_env = "OPENAI_API_KEY"',
    )
    with turnwire.Client(start_server(settings=settings).url, retry=FAST) as client:
        session = client.create()
        ours = [session.ask(words) for words in ("Hello", "And again")]
        asking = session.ask("Please [add_note plants]")
    assert [call["state"] for call in asking.get_content_blocks("tool_call")] == ["asking"]

    # The answers depend on all that the model is shown.
    provider.forget()

    async def ask() -> list[str | None]:
        credential = OpenAICredential(api_key="key", base_url=f"{provider.url}/v1")
        model = OpenAIChatModel(credential, "gpt-5-mini")
        silent = InjectionConfig(inject_runtime_state=False)
        agent = Agent("friday", "You are Friday.", model, injection_config=silent)
        async with model.client:
            return [(await agent.reply(UserMsg("user", words))).get_text_content() for words in ("Hello", "And again")]

    assert asyncio.run(ask()) == [reply.get_text_content() for reply in ours]


def test_the_routes_of_the_page_take_and_give_what_agentscope_has(server: TurnwireServer) -> None:
    def post(route: str, body: BaseModel) -> None:
        sent = httpx.post(f"{session}/{route}", content=body.model_dump_json())
        assert sent.is_success, sent.text

    def wait(status: str) -> ScopeMsg:
        until(lambda: httpx.get(session).json()["status"] == status, f"the session is never {status}")
        page = httpx.get(f"{session}/messages", params={"wire": "agentscope"}).json()
        return [ScopeMsg.model_validate(msg) for msg in page["messages"]][-1]

    made = httpx.post(f"{server.url}/v1/sessions", json={}).json()
    session = f"{server.url}/v1/sessions/{made['id']}"
    post("messages", UserMsg("ann", "please approve the trade"))
    reply = wait("waiting")
    [call] = reply.get_content_blocks("tool_call")
    assert call.state == "asking"
    answer = ConfirmResult(confirmed=True, tool_call=call)
    post("events?wire=agentscope", UserConfirmResultEvent(reply_id=reply.id, confirm_results=[answer]))
    assert [result.state for result in wait("idle").get_content_blocks("tool_result")] == ["success"]

    post("messages", UserMsg("ann", "please approve the trade"))
    reply = wait("waiting")
    post("events?wire=agentscope", UserInterruptEvent(reply_id=reply.id))
    assert wait("idle").finished_reason == "interrupted"


def test_the_settings_of_the_page_are_valid(provider: FakeProvider, tmp_path: Path) -> None:
    [settings] = blocks("toml")
    (tmp_path / "turnwire.toml").write_text(settings)
    command = [os.environ["TURNWIRE"], "config", "check", "turnwire.toml"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout + checked.stderr


def test_the_names_of_the_page_exist() -> None:
    modules = [module for name, module in sys.modules.items() if re.fullmatch(r"agentscope(\.\w+)?", name)]
    classes = {"agent": Agent, "msg": ScopeMsg}
    settings = (REPOSITORY / "turnwire.example.toml").read_text()
    table = PAGE.split("## What maps to what")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", table, re.M)[1:]
    assert len(rows) > 20
    for theirs, ours in rows:
        for name in re.findall(r"`([A-Z]\w+)", theirs):
            assert any(hasattr(module, name) for module in modules), f"agentscope has no {name}"
        for owner, name in re.findall(r"\b(agent|msg)\.(\w+)", theirs):
            assert hasattr(classes[owner], name) or name in ScopeMsg.model_fields, f"{owner} has no {name}"
        for owner, name in re.findall(r"\b(session|Msg|msg|wires)\.(\w+)", ours):
            where = {"session": turnwire.Session, "wires": turnwire.wires}.get(owner, turnwire.Msg)
            assert hasattr(where, name), f"{owner} has no {name}"
        for name in re.findall(r"turnwire_agent::(\w+)", ours):
            assert (REPOSITORY / f"crates/turnwire-agent/src/{name}.rs").exists(), f"turnwire_agent has no {name}"
    for setting in ("retries", "fallback", "max_iterations", "base_url"):
        assert f"`{setting}`" in table
        assert re.search(rf"\b{setting} = ", settings), f"there is no setting {setting}"
    for section in ("mcp.NAME", "external_tools.NAME", "agents.NAME.permissions"):
        assert f"[{section}]" in table
        pattern = section.replace(".", r"\.").replace("NAME", r"\w+")
        assert re.search(rf"\[{pattern}\]", settings), f"there is no section {section}"
    assert f"AgentScope {agentscope.__version__}" in PAGE
