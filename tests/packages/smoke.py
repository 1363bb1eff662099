"""The smoke test of an installed Turnwire: a session, a streamed reply, a kill in the middle of one, and the rest of it."""

import json
import os
import re
import signal
import subprocess
import urllib.request
from contextlib import contextmanager

TIMEOUT = 120


class Server:
    """`turnwire serve` on a port of its own, in a process group of its own."""

    def __init__(self, command, options=(), env=None, cwd=None):
        environment = os.environ | {"TURNWIRE_LOG": "error"} | (env or {})
        command = [*map(str, command), "serve", "--listen", "127.0.0.1:0", *map(str, options)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, cwd=cwd, start_new_session=True
        )
        line = self.process.stdout.readline()
        found = re.search(r"listens on (http://\S+)", line)
        if not found:
            self.kill()
            raise AssertionError(f"{command} did not start; its first line is {line!r}")
        self.url = found[1]

    def request(self, path, body=None, headers=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", **(headers or {})}
        return urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=TIMEOUT)

    def json(self, path, body=None):
        with self.request(path, body) as response:
            return json.load(response)

    def events(self, session, after=None, until_idle=True):
        """The events of a session, each with its id."""
        query = "raw=true&until=idle" if until_idle else "raw=true"
        headers = {"last-event-id": after} if after else {}
        with self.request(f"/v1/sessions/{session}/events?{query}", headers=headers) as stream:
            event = {}
            for line in stream:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name in ("id", "data"):
                    event[name] = value
                elif not name and "data" in event:
                    if "id" in event:
                        yield event["id"], json.loads(event["data"])
                    event = {}

    def kill(self):
        """Ends everything at once, launchers included."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(TIMEOUT)
        self.process.stdout.close()

    def stop(self):
        """Ends it in order, and returns its exit status. Nothing of its group may be left."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(TIMEOUT)
        self.process.stdout.close()
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return status
        os.killpg(self.process.pid, signal.SIGKILL)
        raise AssertionError("the launcher has ended, and the program has not")


@contextmanager
def serve(*arguments, **options):
    server = Server(*arguments, **options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


def text_of(events):
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_BLOCK_DELTA")


def first_reply(server):
    """Asks the demo agent, and returns its streamed text."""
    session = server.json("/v1/sessions", {})["id"]
    server.json(f"/v1/sessions/{session}/messages", {"content": "hello"})
    events = [event for _, event in server.events(session)]
    assert events[-1]["type"] == "REPLY_END", events[-1]
    assert text_of(events), "a reply without text"
    return text_of(events)


def check(start):
    """The smoke test. `start` starts the server, each time over the same store."""
    with start() as server:
        assert b"<html" in server.request("/").read().lower(), "the console is missing"
        first_reply(server)
        server.json("/v1/sessions", {"id": "killed"})
        server.json("/v1/sessions/killed/messages", {"content": "long 400"})
        seen = []
        for pair in server.events("killed", until_idle=False):
            seen.append(pair)
            if len(seen) == 30:
                server.kill()
                break
    with start() as server:
        seen += server.events("killed", after=seen[-1][0])
        seqs = [int(id.split(".")[1]) for id, _ in seen]
        assert seqs == list(range(1, len(seqs) + 1)), f"lost or doubled events: {seqs}"
        assert len(seen) > 60, f"the reply was not killed in its middle: {len(seen)} events"
        assert seen[-1][1]["type"] == "REPLY_END" and seen[-1][1]["finished_reason"] == "completed", seen[-1]
        messages = server.json("/v1/sessions/killed/messages")["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant"], messages
        stored = "".join(block["text"] for block in messages[1]["content"] if block["type"] == "text")
        discarded = [id for _, event in seen for id in event.get("discard", [])]
        streamed = [event for _, event in seen if event.get("block_id") not in discarded]
        assert text_of(streamed) == stored, "the streamed text is not the stored one"
        status = server.stop()
        assert status == 0, f"exit status {status}"
