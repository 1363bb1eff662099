"""`examples/approval-bot`: the real bot, between the demo agent of a real server and a workspace like Slack."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from example import Example
from turnwire_server import TurnwireServer, until
from workspace import SECRET, Json, Workspace, deliver, sign

import turnwire


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    running = Workspace()
    yield running
    running.close()


@pytest.fixture
def bot(server: TurnwireServer, workspace: Workspace, tmp_path: Path) -> Iterator[Example]:
    env = {
        "TURNWIRE_URL": server.url,
        "SLACK_WEBHOOK_URL": f"{workspace.url}/hook",
        "SLACK_SIGNING_SECRET": SECRET,
        "BOT_POLL_SECONDS": "0.05",
    }
    example = Example("approval-bot", tmp_path, **env)
    example.start()
    yield example
    example.stop()


def ask(client: turnwire.Client, title: str) -> turnwire.Session:
    """A session that waits for an approval."""
    session = client.create(title=title)
    reply = session.ask("please approve the trade")
    assert [call["state"] for call in reply.get_content_blocks("tool_call")] == ["asking"]
    return session


def wait_reply(session: turnwire.Session) -> turnwire.Msg:
    """The reply, when it has ended."""
    until(lambda: session.get()["status"] == "idle", "the reply does not end")
    return turnwire.Msg(session.history()["messages"][-1])


def wait_noted(bot: Example, count: int) -> None:
    """Waits until the bot has noted that it has posted so many questions."""
    with closing(sqlite3.connect(bot.folder / "approval-bot.db")) as notes:
        until(lambda: notes.execute("SELECT count(*) FROM posted").fetchone() == (count,), "the bot does not note it")


def texts(message: Json) -> list[str]:
    return [block["text"]["text"] for block in message["blocks"] if block["type"] == "section"]


def has_buttons(message: Json) -> bool:
    return any(block["type"] == "actions" for block in message["blocks"])


@pytest.mark.parametrize(
    ("action", "said", "state"), [("approve", "Approved", "success"), ("deny", "Denied", "denied")]
)
def test_a_click_answers_a_question(
    bot: Example, client: turnwire.Client, workspace: Workspace, action: str, said: str, state: str
) -> None:
    session = ask(client, "Trades")
    [key] = workspace.wait_for(1)
    asked = workspace.messages[key]
    assert asked["text"].startswith("Trades: may the agent call ")
    assert has_buttons(asked)
    assert deliver(bot.url, workspace.click(key, action, "ann")) == 200
    reply = wait_reply(session)
    assert [result["state"] for result in reply.get_content_blocks("tool_result")] == [state]
    assert workspace.messages[key]["text"] == f"{said} by ann"
    assert texts(workspace.messages[key]) == [*texts(asked), f"{said} by ann"]
    assert not has_buttons(workspace.messages[key])
    [decision] = session.decisions()["decisions"]
    assert decision["client"] == "slack:ann"


def test_a_question_is_answered_once(bot: Example, client: turnwire.Client, workspace: Workspace) -> None:
    session = ask(client, "Trades")
    [key] = workspace.wait_for(1)
    clicks = [workspace.click(key, "approve", "ann")] * 4 + [workspace.click(key, "deny", "bob")] * 4
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda body: deliver(bot.url, body), clicks)) == {200}
    reply = wait_reply(session)
    [decision] = session.decisions()["decisions"]
    winner = "Approved by ann" if decision["confirmed"] else "Denied by bob"
    assert workspace.messages[key]["text"] == winner
    # And once more, when all is over and the bot is another process.
    bot.kill()
    bot.start()
    assert [deliver(bot.url, body) for body in clicks] == [200] * 8
    assert workspace.messages[key]["text"] == winner
    assert len(session.decisions()["decisions"]) == 1
    assert wait_reply(session) == reply


def test_what_the_workspace_has_not_signed_is_refused(
    bot: Example, client: turnwire.Client, workspace: Workspace
) -> None:
    session = ask(client, "Trades")
    [key] = workspace.wait_for(1)
    body = workspace.click(key, "approve", "ann")
    now = str(int(time.time()))
    for signature in ("", "v0=", sign(body, now, "another secret"), sign(b"another body", now), sign(body, "1")):
        assert deliver(bot.url, body, signature=signature) == 401
    for age in (600, -600):
        assert deliver(bot.url, body, age=age) == 401
    assert session.get()["status"] == "waiting"
    assert session.decisions()["decisions"] == []
    assert deliver(bot.url, body, age=200) == 200
    assert wait_reply(session).finished_reason == "completed"


def test_what_is_too_large_is_refused_before_it_is_read_whole(bot: Example) -> None:
    assert deliver(bot.url, b"0" * (2 << 20), signature="") == 413


def test_what_an_agent_wrote_mentions_nobody_and_is_not_approved_where_it_is_cut(
    bot: Example, server: TurnwireServer, client: turnwire.Client, workspace: Workspace
) -> None:
    session = client.create(agent="external", title="<!channel> & <@U1>")
    with turnwire.Publisher(session.id, url=server.url) as publisher:
        reply = turnwire.ReplyWriter(publisher.send, name="friday")
        input = '{"note":"' + "x" * 5000 + '"}'
        reply.tool_call("call", "add_note", input)
        reply.require_confirm(("call", "add_note", input))
        publisher.flush()
        [key] = workspace.wait_for(1)
    asked = workspace.messages[key]
    assert asked["text"] == "&lt;!channel&gt; &amp; &lt;@U1&gt;: may the agent call add_note?"
    sections = [block["text"] for block in asked["blocks"] if block["type"] == "section"]
    assert [text["type"] for text in sections] == ["plain_text", "plain_text"]
    shown, rest = sections[1]["text"].split("… CUT: ")
    assert input.startswith(shown)
    assert rest.startswith(f"{len(input) - len(shown)} more characters")
    assert len(sections[1]["text"]) <= 3000
    [buttons] = [block["elements"] for block in asked["blocks"] if block["type"] == "actions"]
    assert [button["action_id"] for button in buttons] == ["deny"]


def test_what_a_killed_bot_missed_is_posted_once(bot: Example, client: turnwire.Client, workspace: Workspace) -> None:
    ask(client, "before")
    wait_noted(bot, 1)
    bot.kill()
    ask(client, "meanwhile")
    bot.start()
    wait_noted(bot, 2)
    for round in range(3):
        bot.kill()
        bot.start()
        ask(client, f"after {round}")
        wait_noted(bot, 3 + round)
    titles = [message["text"].split(":")[0] for message in workspace.messages.values()]
    assert titles == ["before", "meanwhile", "after 0", "after 1", "after 2"]
    assert len(workspace.posts) == 5


def test_a_bot_that_is_killed_while_it_posts_repeats_the_key(
    bot: Example, client: turnwire.Client, workspace: Workspace
) -> None:
    workspace.hold = threading.Event()
    ask(client, "Trades")
    workspace.wait_for(1)
    bot.kill()
    workspace.hold.set()
    workspace.hold = None
    bot.start()
    until(lambda: len(workspace.posts) == 2, "the question is not posted again")
    assert len(workspace.messages) == 1


def test_a_workspace_that_is_away_gets_the_question_later(
    bot: Example, client: turnwire.Client, workspace: Workspace
) -> None:
    workspace.is_broken = True
    session = ask(client, "Trades")
    until(lambda: "will be posted again" in bot.log.read_text(), "the bot does not notice")
    assert workspace.posts == []
    workspace.is_broken = False
    [key] = workspace.wait_for(1)
    assert deliver(bot.url, workspace.click(key, "approve", "ann")) == 200
    assert wait_reply(session).finished_reason == "completed"


def test_a_click_on_what_was_answered_elsewhere_says_who_did(
    bot: Example, client: turnwire.Client, workspace: Workspace
) -> None:
    session = ask(client, "Trades")
    [key] = workspace.wait_for(1)
    [pending] = client.approvals()
    session.deny({"reply_id": pending["reply_id"], "tool_call": pending["confirm"][0]})
    wait_reply(session)
    assert deliver(bot.url, workspace.click(key, "approve", "ann")) == 200
    assert workspace.messages[key]["text"] == "Denied by console"


def test_a_click_on_what_is_gone_says_so(bot: Example, client: turnwire.Client, workspace: Workspace) -> None:
    stopped, deleted = ask(client, "stopped"), ask(client, "deleted")
    keys = workspace.wait_for(2)
    stopped.stop()
    deleted.delete()
    for key in keys:
        assert deliver(bot.url, workspace.click(key, "approve", "ann")) == 200
        assert workspace.messages[key]["text"] == "Nobody waits for this any more."


def test_a_killed_turnwire_is_waited_for(
    bot: Example, server: TurnwireServer, client: turnwire.Client, workspace: Workspace
) -> None:
    session = ask(client, "before")
    wait_noted(bot, 1)
    server.crash()
    ask(client, "after")
    wait_noted(bot, 2)
    key, _ = workspace.wait_for(2)
    assert len(workspace.posts) == 2
    body = workspace.click(key, "approve", "ann")
    server.stop()
    # Nobody has answered, and the user is told so.
    assert deliver(bot.url, body) == 503
    assert has_buttons(workspace.messages[key])
    until(lambda: "Turnwire is away" in bot.log.read_text(), "the bot does not notice")
    server.start(server.address)
    ask(client, "later")
    wait_noted(bot, 3)
    assert deliver(bot.url, body) == 200
    assert wait_reply(session).finished_reason == "completed"
    assert workspace.messages[key]["text"] == "Approved by ann"
