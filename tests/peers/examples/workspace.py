"""A chat workspace with Slack's webhooks: a real HTTP server that keeps messages, and signs the clicks on them."""

import hashlib
import hmac
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from turnwire_server import TIMEOUT, until

Json = dict[str, Any]
SECRET = "signing secret"


class Workspace:
    def __init__(self) -> None:
        # The messages by their Idempotency-Key, and how often each was posted.
        self.messages: dict[str, Json] = {}
        self.posts: list[str] = []
        # Whether it is out of order, and an event at which responses wait.
        self.is_broken = False
        self.hold: threading.Event | None = None
        workspace = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path == "/hook" and not workspace.is_broken:
                    key = self.headers["idempotency-key"]
                    workspace.posts.append(key)
                    workspace.messages.setdefault(key, body)
                    if workspace.hold:
                        workspace.hold.wait(TIMEOUT)
                elif self.path.startswith("/response/"):
                    assert body.pop("replace_original") is True
                    workspace.messages[self.path.rpartition("/")[2]] = body
                self.send_response(503 if workspace.is_broken else 200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        if self.hold:
            self.hold.set()
        self.server.shutdown()
        self.server.server_close()

    def wait_for(self, count: int) -> list[str]:
        """The keys of the messages, when there are so many."""
        until(lambda: len(self.messages) >= count, f"there are never {count} messages")
        return list(self.messages)

    def click(self, key: str, action: str, user: str) -> bytes:
        """The body of a click on a button."""
        message = self.messages[key]
        [buttons] = [block["elements"] for block in message["blocks"] if block["type"] == "actions"]
        [button] = [button for button in buttons if button["action_id"] == action]
        pressed = {"type": "button", "action_id": action, "value": button["value"]}
        payload = {
            "type": "block_actions",
            "user": {"id": "U1", "username": user},
            "actions": [pressed],
            "message": message,
            "response_url": f"{self.url}/response/{key}",
        }
        return urllib.parse.urlencode({"payload": json.dumps(payload)}).encode()


def sign(body: bytes, timestamp: str, secret: str = SECRET) -> str:
    signed = f"v0:{timestamp}:".encode() + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def deliver(url: str, body: bytes, *, age: float = 0, signature: str | None = None) -> int:
    """Delivers a click; the status of the response."""
    timestamp = str(int(time.time() - age))
    headers = {
        "content-type": "application/x-www-form-urlencoded",
        "x-slack-request-timestamp": timestamp,
        "x-slack-signature": sign(body, timestamp) if signature is None else signature,
    }
    request = urllib.request.Request(f"{url}/slack/actions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
