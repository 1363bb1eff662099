"""The demo agent, and somebody who answers what it asks."""

import uuid

from harness import Json, Server, wait_for

# A message for each scene, and what to say where it asks.
SCENES = {
    "talk": "Hello! <b>漢字</b> 😀",
    "weather": "How is the weather?",
    "approve": "Please approve",
    "edit": "approve, but less",
    "deny": "approve nothing",
    "parallel": "two in parallel",
    "browser": "open the browser",
    "image": "an image",
    "team": "ask the team",
    "json": "as json",
    "fail": "fail",
    "long": "long 50",
}


def play_scene(server: Server, session: str, scene: str) -> None:
    """Has a scene played to its end."""
    path = f"/v1/sessions/{session}"
    server.post(f"{path}/messages", {"content": SCENES[scene]})
    while True:
        now = wait_for(lambda: settled(server.session(session)), f"{scene} has no end")
        if now["status"] == "idle":
            return
        for pending in now["pending"]:
            for call in pending["confirm"]:
                server.post(f"{path}/events", [confirm(pending["reply_id"], call, scene)])
            for call in pending["external"]:
                server.post(f"{path}/events", [execute(pending["reply_id"], call)])


def settled(session: Json) -> Json | None:
    return session if session["status"] != "running" else None


def confirm(reply_id: str, call: Json, scene: str) -> Json:
    edited = {"input": '{"symbol": "ACME", "quantity": 1}'} if scene == "edit" else {}
    answer = {"confirmed": scene != "deny", "tool_call": call | edited}
    return event("USER_CONFIRM_RESULT", reply_id) | {"confirm_results": [answer]}


def execute(reply_id: str, call: Json) -> Json:
    text = {"type": "text", "id": "page", "text": "An example", "created_at": "2026-01-01T00:00:00"}
    result = {
        "type": "tool_result",
        "id": call["id"],
        "name": call["name"],
        "output": [text],
        "state": "success",
    }
    return event("EXTERNAL_EXECUTION_RESULT", reply_id) | {"execution_results": [result]}


def event(type: str, reply_id: str) -> Json:
    return {"type": type, "id": uuid.uuid4().hex, "reply_id": reply_id}
