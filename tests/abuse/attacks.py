"""The attacks of `make abuse`. Each one is a function that gives what it measured beside the bound."""

import base64
import hashlib
import hmac
import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from harness import BYSTANDER, MIB, Measured, QuietServer, Result, Server, serving, serving_model, together
from turnwire_server import until

ATTACKS: dict[str, Callable[[], Result]] = {}


def attack(function: Callable[[], Result]) -> Callable[[], Result]:
    ATTACKS[function.__name__.replace("_", "-")] = function
    return function


def statuses(results: list) -> str:
    """How often each answer came."""
    counts: dict[str, int] = {}
    for result in results:
        key = str(result[0]) if isinstance(result, tuple) else str(result)[:60] or type(result).__name__
        counts[key] = counts.get(key, 0) + 1
    return ", ".join(f"{count} x {status}" for status, count in sorted(counts.items()))


def read_and_write(server: Server) -> Callable[[], None]:
    """What a bystander does all the while: list its sessions, and say something."""
    server.send("POST", "/v1/sessions", {"id": "quiet", "agent": "external"}, BYSTANDER)

    def once() -> None:
        for method, path, body in (
            ("GET", "/v1/sessions", None),
            ("POST", "/v1/sessions/quiet/messages", {"content": "still here"}),
        ):
            status, _, text = server.send(method, path, body, BYSTANDER)
            assert status < 300, f"{method} {path}: {status} {text[:200]!r}"

    return once


# ---- schemas ----


def chain(length: int, keyword: str = "anyOf") -> dict:
    """Small as text, 2^length subschemas when its references are expanded."""
    defs = {"d0": {"type": "string"}}
    for at in range(1, length):
        ref = {"$ref": f"#/$defs/d{at - 1}"}
        defs[f"d{at}"] = {keyword: [ref, ref]}
    return {"$defs": defs, "$ref": f"#/$defs/d{length - 1}"}


def ask_with_schema(server: Server, session: str, schema: dict) -> tuple:
    """Asks for an answer of this form, and waits for the end of the reply where it was taken."""
    server.send("POST", "/v1/sessions", {"id": session, "agent": "friday"})
    body = {"role": "user", "name": "eve", "content": "Answer.", "metadata": {"client": {"output_schema": schema}}}
    answer = server.send("POST", f"/v1/sessions/{session}/messages", body)
    if answer[0] < 300:
        until(lambda: not server.is_alive() or server.session(session)["status"] == "idle", "the reply never ends")
    return answer


@attack
def schema_chain() -> Result:
    """A schema of 1.4 KB that has 2^30 subschemas once its references are expanded, in five forms."""
    result = Result()
    with serving_model("5") as (server, _), Measured(server, read_and_write(server)) as measured:
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": chain(30)}}
        body = {"model": "friday", "messages": [{"role": "user", "content": "hi"}], "response_format": schema}
        attempts = [lambda keyword=keyword: ask_with_schema(server, keyword, chain(30, keyword)) for keyword in ("anyOf", "allOf", "oneOf", "prefixItems")]
        attempts.append(lambda: server.send("POST", "/v1/chat/completions", body))
        result.answers = statuses([together(1, lambda _, attempt=attempt: attempt())[0] for attempt in attempts])
    result.add("memory", measured.memory, 32, " MiB")
    result.add("CPU", measured.cpu, 5, " s")
    result.add("bystander", measured.slowest, 2, " s")
    return result


@attack
def schema_with_nested_answer() -> Result:
    """A small recursive schema with two branches, and a model whose answer is nested 60 levels deep."""
    schema = {"type": "object", "anyOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}], "not": {"required": ["b"]}}
    answer = json.dumps({"b": 1})
    for _ in range(60):
        answer = '{"a":' + answer + "}"
    result = Result()
    with serving_model(answer) as (server, _), Measured(server, read_and_write(server)) as measured:
        result.answers = statuses(together(1, lambda _: ask_with_schema(server, "deep", schema)))
    result.add("memory", measured.memory, 32, " MiB")
    result.add("CPU", measured.cpu, 5, " s")
    result.add("bystander", measured.slowest, 2, " s")
    return result


@attack
def schema_patterns() -> Result:
    """Regular expressions that are small as text and huge when compiled."""
    patterns = ["((a{1000}){1000}){1000}", "(\\pL{500}){500}", "(.*a){200}" * 20]
    result = Result()
    with serving_model() as (server, _), Measured(server, read_and_write(server)) as measured:
        answers = [
            ask_with_schema(server, f"p{at}", {"type": "object", "properties": {f"f{n}": {"type": "string", "pattern": pattern} for n in range(50)}})
            for at, pattern in enumerate(patterns)
        ]
        result.answers = statuses(answers)
    result.add("memory", measured.memory, 64, " MiB")
    result.add("CPU", measured.cpu, 5, " s")
    result.add("bystander", measured.slowest, 2, " s")
    return result


# ---- blobs ----

ACTIVE_TYPES = [
    "application/pdf;x=y, text/html", "text/html", "TEXT/HTML", " text/html", "text/html;charset=utf-8", "image/svg+xml",
    "application/xhtml+xml", "text/xml", "image/png, text/html", "image/png\ttext/html", "multipart/x-mixed-replace; boundary=x", "",
]


@attack
def blob_types() -> Result:
    """Uploads with media types that a browser may run. Counts answers that are inline, or lack nosniff or a sandbox."""
    result = Result()
    unsafe, seen = 0, []
    with serving() as server:
        for at, kind in enumerate(ACTIVE_TYPES):
            page = f"<script>alert({at})</script>".encode()
            status, _, body = server.send("POST", "/v1/blobs", page, content_type=kind)
            seen.append((status,))
            if status >= 300:
                continue
            _, headers, _ = server.send("GET", json.loads(body)["url"].removeprefix(server.url))
            safe = headers.get("x-content-type-options") == "nosniff" and "sandbox" in headers.get("content-security-policy", "")
            passive = headers.get("content-type", "").split(";")[0] in ("text/plain", "image/png")
            attachment = headers.get("content-disposition", "").startswith("attachment")
            unsafe += not (safe and (attachment or passive))
    result.answers = statuses(seen)
    result.add("unsafe answers", unsafe, 0)
    return result


def unfinished(server: Server, path: str, size: int, count: int) -> tuple[list[socket.socket], str]:
    """Requests whose bodies lack their last byte."""
    chunk = b"x" * 65536

    def send(_: int) -> socket.socket:
        connection = server.raw(f"POST {path} HTTP/1.1\r\ncontent-type: text/plain\r\ncontent-length: {size + 1}")
        connection.settimeout(3)
        left = size
        try:
            while left > 0:
                left -= connection.send(chunk[: min(left, len(chunk))])
        except OSError:
            pass
        return connection

    connections = [c for c in together(count, send) if isinstance(c, socket.socket)]
    answers = []
    for connection in connections:
        connection.settimeout(0.2)
        try:
            answers.append((connection.recv(64).split()[1].decode(),))
        except (OSError, IndexError):
            answers.append(("open",))
    return connections, statuses(answers)


@attack
def unfinished_bodies() -> Result:
    """40 requests of one tenant, each with 16 MiB of a body that is never finished. A buffer that grows is there twice."""
    result = Result()
    with serving() as server:
        server.send("POST", "/v1/sessions", {"id": "s", "agent": "external"})
        with Measured(server, read_and_write(server)) as measured:
            connections, result.answers = unfinished(server, "/v1/sessions/s/messages", 16 * MIB - 1, 40)
        for connection in connections:
            connection.close()
    result.add("memory", measured.memory, 2 * 128 + 32, " MiB")
    result.add("bystander", measured.slowest, 2, " s")
    return result


@attack
def unfinished_blobs() -> Result:
    """40 uploads of one tenant, each with 48 MiB of a blob that is never finished."""
    result = Result()
    with serving() as server:
        with Measured(server, read_and_write(server)) as measured:
            connections, result.answers = unfinished(server, "/v1/blobs", 48 * MIB, 40)
        for connection in connections:
            connection.close()
    result.add("memory", measured.memory, 96, " MiB")
    result.add("bystander", measured.slowest, 2, " s")
    return result


def drip(connection: socket.socket, drop: bytes, most: float) -> tuple[str, float]:
    """Sends a few bytes twice a second until the server answers: its first line, and the seconds that took."""
    connection.settimeout(0.5)
    start, answer = time.monotonic(), b""
    while not answer and time.monotonic() - start < most:
        try:
            connection.sendall(drop)
            answer = connection.recv(64) or b"closed"
        except TimeoutError:
            pass
        except OSError:
            answer = b"closed"
    connection.close()
    return answer.split(b"\r\n")[0].decode() or "none", time.monotonic() - start


@attack
def dripping_body() -> Result:
    """A body at two bytes a second: how long the connection stays open."""
    result = Result()
    with serving() as server:
        server.send("POST", "/v1/sessions", {"id": "s", "agent": "external"})
        connection = server.raw("POST /v1/sessions/s/messages HTTP/1.1\r\ncontent-length: 1000000")
        result.answers, seconds = drip(connection, b"x", 90)
        result.add("open for", seconds, 40, " s")
    return result


# ---- searches and lists ----


def filled(server: Server, sessions: int, token: str) -> None:
    """Sessions with messages of random words."""
    rng = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(5000)]

    def fill(worker: int) -> None:
        connection = server.connection()
        headers = {"authorization": f"Bearer {token}"}
        for at in range(worker, sessions, 4):
            texts = [" ".join(rng.choices(words, k=200)) for _ in range(3)]
            requests = [("/v1/sessions", {"id": f"f{at}", "agent": "external"})]
            requests += [(f"/v1/sessions/f{at}/messages", {"content": text}) for text in texts]
            for path, body in requests:
                connection.request("POST", path, json.dumps(body), headers)
                answer = connection.getresponse()
                answer.read()
                assert answer.status < 300, answer.status

    failed = [r for r in together(4, fill) if r is not None]
    assert not failed, failed


def search(server: Server, query: str, token: str) -> tuple:
    return server.send("GET", f"/v1/sessions?q={query}", None, token)


@attack
def search_words() -> Result:
    """16 clients search for 6,500 one-letter words each, beside the widest search that is allowed."""
    result = Result()
    with serving() as server:
        filled(server, 1000, "attacker-token")
        filled(server, 50, BYSTANDER)
        quiet = read_and_write(server)

        def bystander() -> None:
            quiet()
            assert search(server, "ab", BYSTANDER)[0] == 200

        with Measured(server, bystander) as measured:
            many = "+".join("abcdefghijklmnopqrstuvwxyz"[n % 26] for n in range(6500))
            wide = "+".join("abcdefghijklmnop")
            answers = together(16, lambda at: search(server, many if at % 2 else wide, "attacker-token"))
            result.answers = statuses(answers)
    result.add("memory", measured.memory, 64, " MiB")
    result.add("CPU", measured.cpu, 20, " s")
    result.add("bystander", measured.slowest, 2, " s")
    return result


@attack
def usage_of_all_sessions() -> Result:
    """`GET /v1/agents?usage=true`, 100 times, by a tenant with 3,000 sessions."""
    result = Result()
    with serving() as server:
        filled(server, 3000, "attacker-token")
        with Measured(server, read_and_write(server)) as measured:
            result.answers = statuses([server.send("GET", "/v1/agents?usage=true") for _ in range(100)])
    result.add("CPU", measured.cpu, 2, " s")
    result.add("bystander", measured.slowest, 2, " s")
    return result


def snapshot(server: Server, thread: str) -> tuple:
    """An AG-UI run up to its snapshot of the messages. The stream itself goes on."""
    run = {"threadId": thread, "runId": "r1", "messages": [], "tools": [], "context": [], "state": {}, "forwardedProps": {}}
    body = json.dumps(run)
    connection = server.raw(f"POST /ag-ui/external HTTP/1.1\r\ncontent-length: {len(body)}")
    connection.settimeout(5)
    connection.sendall(body.encode())
    size, status = 0, b""
    try:
        while size < 16 * MIB and (data := connection.recv(1 << 20)):
            status = status or data.split()[1]
            size += len(data)
    except TimeoutError:
        pass
    connection.close()
    return (status.decode(),)


@attack
def whole_histories() -> Result:
    """The whole history of a session with 40 MiB of messages, asked for by 8 clients at once on two routes. An AG-UI snapshot has 16 MiB, and is there twice."""
    result = Result()
    with serving() as server:
        server.send("POST", "/v1/sessions", {"id": "long", "agent": "external"})
        text = "x" * (256 * 1024)
        for _ in range(160):
            assert server.send("POST", "/v1/sessions/long/messages", {"content": text})[0] < 300
        with Measured(server, read_and_write(server)) as measured:
            answers = together(8, lambda at: server.send("GET", "/v2/sessions/long/history"))
            answers += together(8, lambda at: snapshot(server, "long"))
            result.answers = statuses(answers)
    result.add("memory", measured.memory, 8 * 2 * 16 + 32, " MiB")
    result.add("bystander", measured.slowest, 2, " s")
    return result


# ---- links ----


@attack
def slow_links() -> Result:
    """64 messages whose links never answer, by one tenant; how long another tenant's link takes."""
    release = threading.Event()

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/slow"):
                release.wait(60)
            self.send_response(200)
            self.send_header("content-type", "text/plain")
            self.send_header("content-length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None:
            pass

    site = QuietServer(Site)
    host = f"127.0.0.1:{site.server_port}"
    result = Result()
    with serving(f'\n[links]\nprivate_hosts = ["{host}"]\n') as server:

        def link(session: str, path: str, token: str) -> tuple:
            server.send("POST", "/v1/sessions", {"id": session, "agent": "external"}, token)
            data = {"type": "data", "source": {"type": "url", "url": f"http://{host}/{path}", "media_type": "text/plain"}}
            return server.send("POST", f"/v1/sessions/{session}/messages", {"role": "user", "name": "u", "content": [data]}, token)

        slow = threading.Thread(target=together, args=(64, lambda at: link(f"slow{at}", f"slow{at}", "attacker-token")))
        slow.start()
        time.sleep(1)
        start = time.monotonic()
        result.answers = statuses([link("quick", "quick", BYSTANDER)])
        result.add("bystander", time.monotonic() - start, 2, " s")
        release.set()
        slow.join()
    site.shutdown()
    return result


# ---- credentials ----

SECRET = "0123456789abcdef0123456789abcdef"
JWT_SETTINGS = """
[auth.jwt]
algorithm = "HS256"
secret_env = "ABUSE_JWT_SECRET"
issuer = "abuse"
audience = "turnwire"
tenant = "attacker"
leeway = "0s"
"""


def jwt(seconds: float) -> str:
    """A token with all scopes that expires in so many seconds."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = {"iss": "abuse", "aud": "turnwire", "sub": "eve", "exp": int(time.time() + seconds), "scope": "read chat publish approve"}
    text = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode()) + "." + part(json.dumps(claims).encode())
    return text + "." + part(hmac.digest(SECRET.encode(), text.encode(), "sha256"))


@attack
def expired_credentials() -> Result:
    """Streams and tickets of a JWT that expires: how long they go on, and whether tickets make tickets."""
    result = Result()
    os.environ["ABUSE_JWT_SECRET"] = SECRET
    with serving(JWT_SETTINGS) as server:
        server.send("POST", "/v1/sessions", {"id": "s", "agent": "external"})
        token = jwt(4)
        expires = time.time() + 4

        def ticket() -> str:
            return json.loads(server.send("POST", "/v1/tickets", None, token)[2])["ticket"]

        tickets = [ticket() for _ in range(3)]
        chained = unauthenticated(server, "POST", f"/v1/tickets?ticket={tickets.pop()}")
        streams = [server.raw("GET /v1/sessions/s/events HTTP/1.1\r\nconnection: close", token) for _ in range(20)]
        for stream in streams:
            stream.settimeout(1)
            while time.time() < expires + 10:
                try:
                    if not stream.recv(65536):
                        break
                except TimeoutError:
                    pass
        late = time.time() - expires
        after = [unauthenticated(server, "GET", f"/v1/sessions?ticket={ticket}") for ticket in tickets]
        result.answers = f"ticket of a ticket {chained}; tickets after expiry {after}"
        result.add("streams open after expiry", late, 2, " s")
        result.add("tickets that worked", sum(status < 400 for status in [chained, *after]), 0)
    return result


def unauthenticated(server: Server, method: str, path: str) -> int:
    connection = server.connection()
    connection.request(method, path)
    return connection.getresponse().status


@attack
def words_out_of_reach() -> Result:
    """A token limited to one session writes guesses there, and looks for another page of results. Counts guesses that differ."""
    result = Result()
    sha256 = hashlib.sha256(b"limited-token").hexdigest()
    limited = f'\n[[auth.tokens]]\ntenant = "attacker"\nsha256 = "{sha256}"\nscopes = ["read", "chat"]\nsessions = ["mine"]\n'
    guesses = ("hunter2", "wrongguess", "secret", "neversaid")
    with serving(limited) as server:
        for session, text in (("other", "hunter2 is the secret"), ("mine", " ".join(guesses))):
            server.send("POST", "/v1/sessions", {"id": session, "agent": "external"})
            server.send("POST", f"/v1/sessions/{session}/messages", {"content": text})
        answers = [server.send("GET", f"/v1/sessions?q={guess}&limit=1", None, "limited-token") for guess in guesses]
        result.answers = statuses(answers)
        result.add("kinds of answers", len({body for _, _, body in answers}), 1)
        result.add("own words not found", sum(not json.loads(body)["sessions"] for _, _, body in answers), 0)
    return result


# ---- sockets ----


@attack
def ping_flood() -> Result:
    """WebSocket pings, as fast as one client can send them, for 3 seconds."""
    result = Result()
    with serving() as server:
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET /v1/ws?wire=turnwire HTTP/1.1\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: {key}"
        connection = server.raw(head)
        assert b" 101 " in connection.recv(4096)
        pings = b"\x89\x80\x00\x00\x00\x00" * 4096
        sent, end = 0, time.monotonic() + 3
        reader = threading.Thread(target=drain, args=(connection,), daemon=True)
        with Measured(server, read_and_write(server)) as measured:
            reader.start()
            try:
                while time.monotonic() < end:
                    connection.sendall(pings)
                    sent += 4096
                result.answers = f"{sent} pings taken"
            except OSError:
                result.answers = f"closed after at most {sent} pings"
        connection.close()
    result.add("CPU", measured.cpu, 1, " s")
    result.add("bystander", measured.slowest, 2, " s")
    return result


def drain(connection: socket.socket) -> None:
    try:
        while connection.recv(65536):
            pass
    except OSError:
        pass


@attack
def dripping_reply() -> Result:
    """A reply that is piped in and sends a byte twice a second, but never an event: how long it stays open."""
    result = Result()
    with serving('\n[producers]\nsilence = "5s"\n') as server:
        server.send("POST", "/v1/sessions", {"id": "s", "agent": "external"})
        connection = server.raw("POST /v1/sessions/s/replies HTTP/1.1\r\ntransfer-encoding: chunked")
        result.answers, seconds = drip(connection, b"1\r\n \r\n", 60)
        result.add("open for", seconds, 20, " s")
    return result


# ---- stopping ----


@attack
def stop_while_answering() -> Result:
    """SIGTERM while a chat completion is under way, by a client that asks again as the official ones do."""
    result = Result()
    with serving_model() as (server, provider):
        provider.release.clear()
        body = {"model": "friday", "messages": [{"role": "user", "content": "hi"}]}
        answers: list = []
        asking = threading.Thread(target=lambda: answers.extend(together(1, lambda _: server.send("POST", "/v1/chat/completions", body))))
        asking.start()
        until(lambda: provider.calls == 1, "the model was never asked")
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        provider.release.set()
        asking.join()
        result.answers = statuses(answers)
        retries = not (isinstance(answers[0], tuple) and (answers[0][0] < 400 or answers[0][1].get("x-should-retry") == "false"))
        result.add("model calls", provider.calls, 1)
        result.add("answers that make a client ask again", int(retries), 0)
    return result
