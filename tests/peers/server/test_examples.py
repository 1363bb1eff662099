"""The examples do what they say, against a running server."""

import json
import os
import random
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lossy_proxy import lossy_proxy
from harness import TIMEOUT, Json, Server, program, wait_for

EXAMPLES = Path(__file__).parents[3] / "examples"

Run = Callable[..., str]


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Run:
    """Runs an example with curl, in a session of its own: `run("talk.sh", "my-session")`."""
    return runs(server, tmp_path)


def runs(server: Server, folder: Path) -> Run:
    def run(name: str, session: str) -> str:
        env = os.environ | {
            "TURNWIRE_URL": server.url,
            "TURNWIRE": program(),
            "SESSION": session,
        }
        done = subprocess.run(
            [EXAMPLES / "curl" / name], cwd=folder, env=env, capture_output=True, timeout=TIMEOUT
        )
        assert done.returncode == 0, done.stderr.decode()
        assert done.stderr == b""
        return done.stdout.decode()

    return run


@pytest.fixture
def session() -> str:
    return uuid.uuid4().hex


def types(said: str) -> list[str]:
    """The types of the events in a stream."""
    return re.findall(r'^data: .*?"type":"([A-Z_]+)"', said, re.MULTILINE)


def seqs(said: str) -> list[int]:
    return [int(seq) for seq in re.findall(r"^id: \w+\.(\d+)$", said, re.MULTILINE)]


def last_message(server: Server, session: str) -> Json:
    return server.get(f"/v1/sessions/{session}/messages")["messages"][-1]


def text(message: Json) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def test_talk(run: Run, server: Server, session: str) -> None:
    said = run("talk.sh", session)
    assert said.startswith(f'{{"id":"{session}"')
    assert types(said)[0] == "MESSAGE" and types(said)[-1] == "REPLY_END"
    assert "18 °C" in text(last_message(server, session))
    assert said.rstrip().endswith("}")


def test_resume(run: Run, server: Server, session: str) -> None:
    said = run("resume.sh", session)
    cut = int(re.search(r"cut off behind \w+\.(\d+)", said)[1])
    assert 0 < cut < server.session(session)["last_seq"]
    assert seqs(said)[-1] == server.session(session)["last_seq"]
    assert seqs(said)[0] > cut
    assert len(text(last_message(server, session)).split()) == 60


def test_approve(run: Run, server: Server, session: str) -> None:
    said = run("approve.sh", session)
    before, after = said.split("asks about the call")
    assert types(before)[-1] == "REQUIRE_USER_CONFIRM"
    assert '"stored":1,"repeated":0' in after
    assert types(after)[0] != "USER_CONFIRM_RESULT" and types(after)[-1] == "REPLY_END"
    assert text(last_message(server, session)).startswith("Done.")


def test_stop(tmp_path: Path, session: str) -> None:
    # One that talks as fast as it can may have said all before it is stopped.
    server = Server(tmp_path, "memory:", rate=100)
    try:
        assert '"finished_reason":"interrupted"' in runs(server, tmp_path)("stop.sh", session)
        assert server.session(session)["status"] == "idle"
    finally:
        server.stop()


def test_pipe(run: Run, server: Server, session: str) -> None:
    said = run("pipe.sh", session)
    assert '"finished_reason":"completed"' in said
    assert 'event: message_stop' in said
    assert text(last_message(server, session)) == "Bring an umbrella."


def test_export(run: Run, server: Server, session: str, tmp_path: Path) -> None:
    folded = run("export.sh", session)
    lines = (tmp_path / f"{session}.ndjson").read_text().split("\n")
    assert len(lines) - 1 == server.session(session)["last_seq"]
    assert '"structured_output":{"message":"as json, please"' in folded


def test_a_hint_is_kept_for_the_next_reply(run: Run, session: str) -> None:
    answer, messages = run("hint.sh", session).splitlines()
    assert json.loads(answer)["stored"] == 1
    [message] = json.loads(messages)["messages"]
    assert [(block["type"], block["hint"]) for block in message["content"]] == [
        ("hint", "The build of main is green.")
    ]


def test_publish_with_curl(run: Run, server: Server, session: str) -> None:
    first, second = run("publish.sh", session).split("\n")
    count = server.session(session)["last_seq"]
    assert f'"stored":{count},"repeated":0' in first
    assert f'"stored":0,"repeated":{count}' in second


@contextmanager
def agent(url: str, session: str) -> Iterator[None]:
    """`publish.py`, an agent elsewhere. It is still there at the end."""
    command = [sys.executable, str(EXAMPLES / "publish.py"), url, session]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield
        assert running.poll() is None, running.communicate()[1]
    finally:
        running.kill()
        running.communicate()


def ask(server: Server, session: str, words: str) -> Json:
    """What the agent elsewhere answers."""
    path = f"/v1/sessions/{session}"
    wait_for(lambda: server.http.get(path).is_success, "the agent makes no session")
    said = server.post(f"{path}/messages", {"content": words})
    assert "reply_id" not in said, "nobody here answers"
    answered = lambda: server.session(session)["last_event_id"] != said["last_event_id"]
    wait_for(answered, "the agent says nothing")
    idle = lambda: server.session(session)["status"] == "idle"
    wait_for(idle, "the agent does not end")
    return last_message(server, session)


def test_publish(server: Server, session: str) -> None:
    with agent(server.url, session):
        for words in ("Hello there", "once more"):
            reply = ask(server, session, words)
            assert (reply["role"], reply["name"]) == ("assistant", "echo")
            assert reply["finished_reason"] == "completed"
            assert text(reply) == f"You said: {words} "


def test_publish_sends_again_what_was_not_answered(server: Server, session: str) -> None:
    seed = int(os.environ.get("TURNWIRE_SEED") or random.SystemRandom().randrange(10**9))
    print(f"to repeat this run: TURNWIRE_SEED={seed}")
    words = "a b c d e f g h i j"
    with lossy_proxy(server.url, seed) as proxy, agent(proxy.url, session):
        assert text(ask(server, session, words)) == f"You said: {words} "
        assert proxy.lost > 0


def test_publish_outlives_the_server(tmp_path: Path, session: str) -> None:
    server = Server(tmp_path, "sqlite:turnwire.db")
    try:
        with agent(server.url, session):
            assert text(ask(server, session, "first")) == "You said: first "
            server.stop()
            address = server.url.removeprefix("http://")
            server = Server(tmp_path, "sqlite:turnwire.db", listen=address)
            assert text(ask(server, session, "second")) == "You said: second "
        assert len(server.get(f"/v1/sessions/{session}/messages")["messages"]) == 4
    finally:
        server.stop()
