"""Has a client run a case twice: straight at the fake provider, and at a `turnwire serve` in front of one."""

import shutil
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from cases import CASES, Client, Run
from conversation import ANTHROPIC, CHAT, RESPONSES, Json
from fake_provider import FakeProvider
from turnwire_server import TurnwireServer

# The agent has the name of the model, so that a client asks for the same model in both runs. Some clients choose what
# they send by this name.
MODELS = {CHAT: "gpt-4o", RESPONSES: "gpt-4o", ANTHROPIC: "claude-sonnet-4-6"}


@dataclass
class Outcome:
    """What came of a run: what the client got, and what the provider saw."""

    answers: list[Json] = field(default_factory=list)
    requests: list[Json] = field(default_factory=list)
    # The last request of each session that has to be there at the end.
    marks: list[int] = field(default_factory=list)
    # Why the client did not come to the end.
    error: str = ""
    # Whether the client came with a history that only it knew.
    begun_elsewhere: bool = False
    # The sessions of Turnwire with their messages, oldest first.
    sessions: list[Json] = field(default_factory=list)


def settings_of(wire: str, model: str, provider: str) -> str:
    """An agent without a system prompt and without tools of its own."""
    return f"""default_agent = "{model}"
[agents."{model}"]
model = "{wire}:{model}"
base_url = "{provider}/v1"
retries = 0
"""


def run_straight(client: Client, case: str) -> Outcome:
    provider = FakeProvider()
    try:
        return run_case(client, case, provider, provider.url)
    finally:
        provider.close()


def run_through(client: Client, case: str, upstream: str) -> Outcome:
    """`upstream` is the wire between Turnwire and the provider."""
    provider = FakeProvider()
    folder = Path(tempfile.mkdtemp(prefix="turnwire-stateless-"))
    server = TurnwireServer(folder, settings=settings_of(upstream, MODELS[client.wire], provider.url))
    try:
        outcome = run_case(client, case, provider, server.url, server)
        outcome.sessions = read_sessions(server)
        return outcome
    finally:
        server.stop()
        provider.close()
        shutil.rmtree(folder)


def read_sessions(server: TurnwireServer) -> list[Json]:
    found = server.ask("GET", "/v1/sessions")["sessions"]
    return [session | {"messages": server.messages(session["id"])} for session in reversed(found)]


def run_case(client: Client, case: str, provider: FakeProvider, url: str, server: TurnwireServer | None = None) -> Outcome:
    model = MODELS[client.wire]
    client.connect(url, model)
    scratch: list[FakeProvider] = []

    def elsewhere():
        scratch.append(FakeProvider())
        client.connect(scratch[-1].url, model)
        return lambda: client.connect(url, model)

    run = Run(client, lambda: len(provider.log), elsewhere)
    if case == "restarts" and server:
        run.disturb = server.crash
    error = ""
    try:
        CASES[case](run)
    except Exception as problem:  # noqa: BLE001
        last = traceback.extract_tb(problem.__traceback__)[-1]
        error = f"{type(problem).__name__} in {Path(last.filename).name}:{last.lineno}: {problem}"
    for other in scratch:
        other.close()
    return Outcome(run.answers, list(provider.log), run.marks, error, bool(scratch))
