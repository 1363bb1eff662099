"""What a running server sends is what AgentScope's models accept, and AgentScope's own fold makes of
it what the server made of it: live, late, as it was written, and from any point on.
"""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from agentscope.event import AgentEvent, CustomEvent, EventBase
from agentscope.message import Msg
from pydantic import TypeAdapter

from demo_client import SCENES, play_scene
from harness import Frame, Json, Server
from their_fold import expected, stand_ins

EVENT: TypeAdapter[EventBase] = TypeAdapter(AgentEvent)

# Ours alone: on the wire `agentscope` they come as `CUSTOM`.
OURS = {"MESSAGE", "BLOCK", "SUPERSEDE", "RESET"}


@dataclass(frozen=True)
class Played:
    """A scene that is over: what was seen of it while it ran, and what became of it."""

    session: str
    live: list[Frame]
    canonical: list[Frame]
    messages: list[Json]
    last: str


@pytest.fixture(scope="session", params=SCENES)
def played(server: Server, request: pytest.FixtureRequest) -> Played:
    session = f"{request.param}-{uuid.uuid4().hex}"
    server.post("/v1/sessions", {"id": session})
    live = server.watch(session, wire="agentscope")
    canonical = server.watch(session)
    play_scene(server, session, request.param)
    page = server.get(f"/v1/sessions/{session}/messages", agents="all")
    last = page["last_event_id"]
    frames = live.until(last), canonical.until(last)
    return Played(session, *frames, page["messages"], last)


def test_live(played: Played) -> None:
    check(played, played.live)


def test_late_with_deltas_merged(server: Server, played: Played) -> None:
    check(played, server.read(played.session, wire="agentscope"))


def test_late_as_it_was_written(server: Server, played: Played) -> None:
    frames = server.read(played.session, wire="agentscope", raw="true")
    check(played, frames)
    assert [seq(frame) for frame in frames] == list(range(1, seq(frames[-1]) + 1))


def test_from_some_places_on(server: Server, played: Played) -> None:
    """A client that had seen everything up to there."""
    whole = server.read(played.session, wire="agentscope", raw="true")
    for at in range(1, len(whole), max(1, len(whole) // 4)):
        rest = server.read(played.session, whole[at - 1].id, wire="agentscope")
        check(played, [*whole[:at], *rest])


def test_canonical_frames_where_it_knows_the_type(played: Played) -> None:
    check(played, in_their_words(played.canonical))
    assert {type_of(frame) for frame in played.canonical} & OURS == {"MESSAGE"}


def test_canonical_lines(server: Server, played: Played) -> None:
    path = f"/v1/sessions/{played.session}/events"
    lines = server.http.get(path, headers={"accept": "application/x-ndjson"}).text
    frames = [Frame("", line) for line in lines.split("\n") if line]
    assert [seq(frame) for frame in frames] == list(range(1, len(frames) + 1))
    check(played, in_their_words(frames))


def test_over_a_socket(server: Server, played: Played) -> None:
    with server.socket("agentscope") as socket:
        socket.send({"type": "subscribe", "session_id": played.session, "id": 7})
        first = socket.read()
        assert (first["type"], first["id"], first["last_event_id"]) == ("subscribed", 7, played.last)
        frames = socket.until(played.session, played.last)
    check(played, frames)


def test_the_users_message_is_a_custom_that_it_reads(played: Played) -> None:
    first = read(played.live[0])
    assert isinstance(first, CustomEvent) and first.name == "message"
    assert first.value["message"] == played.messages[0]
    assert Msg.model_validate(first.value["message"]).role == "user"


def in_their_words(frames: Sequence[Frame]) -> list[Frame]:
    """Canonical frames without what is ours alone: some events, and why a model call may end."""
    known = [frame for frame in frames if type_of(frame) not in OURS]
    ours, theirs = r'"finished_reason":"(tool_calls|error)"', '"finished_reason":"completed"'
    is_end = lambda frame: type_of(frame) == "MODEL_CALL_END"
    return [Frame(f.id, re.sub(ours, theirs, f.data)) if is_end(f) else f for f in known]


def test_two_sessions_live_on_one_socket(server: Server) -> None:
    ids = [f"{scene}-{uuid.uuid4().hex}" for scene in ("team", "parallel")]
    with server.socket("agentscope") as socket:
        for id in ids:
            server.post("/v1/sessions", {"id": id})
            socket.send({"type": "subscribe", "session_id": id})
        for id in ids:
            play_scene(server, id, id.split("-")[0])
        for id in ids:
            page = server.get(f"/v1/sessions/{id}/messages", agents="all")
            frames = socket.until(id, page["last_event_id"])
            check(Played(id, [], [], page["messages"], page["last_event_id"]), frames)


def check(played: Played, frames: Sequence[Frame]) -> None:
    """Every frame is an event of theirs, and all of them fold to the server's messages."""
    replies: dict[str, list[EventBase]] = {}
    outputs: dict[str, Json] = {}
    for frame in frames:
        event = read(frame)
        if isinstance(event, CustomEvent):
            continue
        replies.setdefault(event.reply_id, []).append(event)
        # AgentScope has structured output in no event; it is one of the listed differences.
        if output := json.loads(frame.data).get("structured_output"):
            outputs[event.reply_id] = output
    served = {message["id"]: message for message in played.messages}
    users = [id for id, message in served.items() if message["role"] == "user"]
    assert set(replies) == set(served) - set(users)
    for id, events in replies.items():
        theirs = expected(events) | {"structured_output": outputs.get(id)}
        assert theirs == Msg.model_validate(served[id]).model_dump(mode="json")


def read(frame: Frame) -> EventBase:
    with stand_ins() as given:
        # A block inside an event that has no time gets the clock's; ours gets the event's.
        given.time = json.loads(frame.data)["created_at"]
        return EVENT.validate_json(frame.data)


def seq(frame: Frame) -> int:
    return json.loads(frame.data)["seq"]


def type_of(frame: Frame) -> str:
    return json.loads(frame.data)["type"]


def test_the_scenes_show_what_they_are_for(played: Played) -> None:
    """The other tests here are worth no more than the scenes."""
    replies = [message for message in played.messages if message["role"] == "assistant"]
    blocks = [block for message in replies for block in message["content"]]
    types = {block["type"] for block in blocks}
    states = {block["state"] for block in blocks if block["type"] == "tool_result"}
    inputs = [block["input"] for block in blocks if block["type"] == "tool_call"]
    match played.session.split("-")[0]:
        case "talk":
            assert types == {"thinking", "text"}
        case "weather" | "approve" | "browser":
            assert types == {"thinking", "tool_call", "tool_result", "text"}
            assert states == {"success"}
        case "edit":
            assert '"quantity": 1}' in inputs[0]
        case "deny":
            assert states == {"denied"}
        case "parallel":
            assert len(inputs) == 2
        case "image":
            assert types == {"text", "data"}
        case "team":
            assert len(replies) == 2
        case "json":
            assert replies[-1]["structured_output"]
        case "fail":
            assert replies[-1]["error"]["type"] == "upstream"
        case "long":
            assert len(replies[-1]["content"][0]["text"].split()) == 50
        case other:
            pytest.fail(f"nothing is known of {other}")
