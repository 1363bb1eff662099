"""Asks a chat for the approvals that agents of Turnwire wait for, over Slack's webhooks."""

import asyncio
import hashlib
import hmac
import html
import json
import logging
import os
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import httpx
from fastapi import FastAPI, HTTPException, Request

from turnwire import AsyncClient, TurnwireError
from turnwire.api import Decision, PendingOfSession
from turnwire.types import ToolCall

WEBHOOK_URL = os.environ["SLACK_WEBHOOK_URL"]
SIGNING_SECRET = os.environ["SLACK_SIGNING_SECRET"].encode()
DATABASE = os.environ.get("BOT_DATABASE", "approval-bot.db")
POLL_SECONDS = float(os.environ.get("BOT_POLL_SECONDS", "2"))
MAX_AGE_SECONDS = 300
MAX_BODY_BYTES = 1 << 20
# Slack takes 3,000 characters.
MAX_TEXT = 2900

logger = logging.getLogger("uvicorn.error")
chat = httpx.AsyncClient(timeout=10)
posted = sqlite3.connect(DATABASE, isolation_level=None)
posted.execute("CREATE TABLE IF NOT EXISTS posted (question TEXT PRIMARY KEY)")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    asking = asyncio.create_task(ask_forever())
    yield
    asking.cancel()


app = FastAPI(lifespan=lifespan)


async def ask_forever() -> None:
    """Posts every question that was not posted yet, also those of the time when the bot was down."""
    async with AsyncClient(patience=POLL_SECONDS) as turnwire:
        while True:
            try:
                for pending in await turnwire.approvals():
                    for call in pending["confirm"]:
                        await ask(pending, call)
            except TurnwireError as error:
                logger.warning("Turnwire is away: %s", error)
            await asyncio.sleep(POLL_SECONDS)


async def ask(pending: PendingOfSession, call: ToolCall) -> None:
    ids = {"session": pending["session_id"], "reply": pending["reply_id"], "call": call["id"]}
    question = json.dumps(ids)
    if posted.execute("SELECT 1 FROM posted WHERE question = ?", [question]).fetchone():
        return
    heading = f"{pending['title'] or pending['session_id']}: may the agent call {call['name']}?"
    # Nobody may approve what they cannot see.
    is_whole = len(call["input"]) <= MAX_TEXT
    approve = [button("Approve", "primary", question)] if is_whole else []
    buttons = [*approve, button("Deny", "danger", question)]
    blocks = [section(heading), section(call["input"]), {"type": "actions", "elements": buttons}]
    # A bot that is killed between the post and the note posts again, with the same key.
    key = hashlib.sha256(question.encode()).hexdigest()
    try:
        await send(WEBHOOK_URL, message(heading, blocks), {"Idempotency-Key": key})
        posted.execute("INSERT INTO posted VALUES (?)", [question])
    except httpx.HTTPError as error:
        logger.warning("a question was not posted, and will be posted again: %s", error)


def message(summary: str, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """The summary is for notifications. Escaped, what a model wrote cannot mention people."""
    return {"text": html.escape(summary, quote=False), "blocks": blocks}


def section(content: str) -> dict[str, Any]:
    """Plain text, in which no link can hide."""
    if len(content) > MAX_TEXT:
        content = f"{content[:MAX_TEXT]}… CUT: {len(content) - MAX_TEXT} more characters. Approve it in the console."
    return {"type": "section", "text": {"type": "plain_text", "text": content or "(no input)", "emoji": False}}


def button(label: str, style: str, question: str) -> dict[str, Any]:
    label_text = {"type": "plain_text", "text": label}
    return {"type": "button", "action_id": label.lower(), "text": label_text, "style": style, "value": question}


async def send(url: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
    (await chat.post(url, json=body, headers=headers)).raise_for_status()


@app.post("/slack/actions")
async def click(request: Request) -> None:
    """Slack calls this for a click. However often it comes, the question is answered once."""
    body = await read(request)
    verify(request, body)
    payload = json.loads(parse_qs(body.decode())["payload"][0])
    action, user = payload["actions"][0], payload["user"]["username"]
    try:
        outcome = await answer(json.loads(action["value"]), action["action_id"] == "approve", user)
    except TurnwireError as error:
        logger.warning("the click of %s was not stored: %s", user, error)
        raise HTTPException(503, "try again") from None  # Slack tells the user.
    kept = [block for block in payload["message"]["blocks"] if block["type"] != "actions"]
    answered = message(outcome, [*kept, section(outcome)])
    await send(payload["response_url"], {"replace_original": True, **answered})


async def read(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, "too large")
    return body


def verify(request: Request, body: bytes) -> None:
    """Refuses what Slack has not signed, and what somebody recorded and sends again later."""
    timestamp = request.headers.get("x-slack-request-timestamp", "")
    signed = b"v0:" + timestamp.encode() + b":" + body
    expected = "v0=" + hmac.new(SIGNING_SECRET, signed, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), request.headers.get("x-slack-signature", "").encode()):
        raise HTTPException(401, "wrong signature")
    if abs(time.time() - int(timestamp)) > MAX_AGE_SECONDS:
        raise HTTPException(401, "old timestamp")


async def answer(ids: dict[str, str], is_approved: bool, user: str) -> str:
    """Answers a question unless somebody has, and says who did."""
    # Slack wants a response within three seconds. Turnwire logs the decision with the client's name.
    async with AsyncClient(name=f"slack:{user}", patience=2) as turnwire:
        session = turnwire.session(ids["session"])
        asking: Any = {"reply_id": ids["reply"], "tool_call": {"id": ids["call"]}}
        try:
            await (session.approve(asking) if is_approved else session.deny(asking, f"denied by {user}"))
        except TurnwireError as error:
            if error.status not in (404, 409):
                raise
        try:
            decisions = (await session.decisions())["decisions"]
        except TurnwireError as error:
            if error.status != 404:
                raise
            decisions = []
    made = [one for one in decisions if (one["reply_id"], one["call_id"]) == (ids["reply"], ids["call"])]
    return describe(made[-1]) if made else "Nobody waits for this any more."


def describe(decision: Decision) -> str:
    if decision["expired"]:
        return "Denied: nobody answered in time."
    who = decision.get("client", "").removeprefix("slack:") or decision.get("by", "somebody")
    return f"{'Approved' if decision['confirmed'] else 'Denied'} by {who}"
