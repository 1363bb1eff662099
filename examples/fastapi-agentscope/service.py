"""A service with an AgentScope agent. It creates chats; clients talk to the agent through Turnwire."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from zoneinfo import ZoneInfo

from agentscope.agent import Agent
from agentscope.credential import OpenAICredential
from agentscope.message import TextBlock
from agentscope.model import OpenAIChatModel
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.tool import FunctionTool, ToolChunk, Toolkit
from fastapi import FastAPI
from pydantic import BaseModel, SecretStr

from turnwire import AsyncClient, TurnwireError
from turnwire.adapters import agentscope

SERVICE = "friday"
MODEL = os.environ.get("MODEL", "gpt-5-mini")
CREDENTIAL = OpenAICredential(
    api_key=SecretStr(os.environ["OPENAI_API_KEY"]),
    base_url=os.environ.get("OPENAI_BASE_URL"),
)

logger = logging.getLogger("uvicorn.error")
turnwire = AsyncClient(name=SERVICE)
chats: dict[str, asyncio.Task[None]] = {}


def get_time(zone: str) -> ToolChunk:
    """The time in a zone such as Europe/Oslo."""
    return ToolChunk(content=[TextBlock(text=datetime.now(ZoneInfo(zone)).isoformat(timespec="minutes"))])


def add_note(note: str) -> ToolChunk:
    """Adds a line to the notes."""
    with open("notes.txt", "a") as notes:
        notes.write(f"{note}\n")
    return ToolChunk(content=[TextBlock(text="noted")])


def make_agent() -> Agent:
    """A new agent. Each chat has one of its own."""
    allow = PermissionDecision(PermissionBehavior.ALLOW, "it only reads the clock")
    # A tool without a decision asks the user.
    tools = Toolkit([FunctionTool(get_time, permission=allow), FunctionTool(add_note)])
    return Agent(SERVICE, "You are Friday. Be brief.", OpenAIChatModel(CREDENTIAL, MODEL), toolkit=tools)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    # The chats of earlier runs: messages that came meanwhile are answered, replies that wait go on.
    async for session in turnwire.each_session():
        if session["metadata"].get("service") == SERVICE:
            start(session["id"])
    yield
    for chat in list(chats.values()):
        chat.cancel()
    await asyncio.gather(*chats.values(), return_exceptions=True)


app = FastAPI(lifespan=lifespan)


class NewChat(BaseModel):
    title: str = ""


class Chat(BaseModel):
    id: str
    url: str


@app.post("/chats", status_code=201)
async def create_chat(new: NewChat) -> Chat:
    """Creates a chat. Its client then reads and writes at `url`."""
    session = await turnwire.create(agent="external", title=new.title, metadata={"service": SERVICE})
    start(session.id)
    return Chat(id=session.id, url=f"{turnwire.url}/v1/sessions/{session.id}")


def start(session: str) -> None:
    chats[session] = asyncio.create_task(serve(session))
    chats[session].add_done_callback(lambda _: chats.pop(session))


async def serve(session: str) -> None:
    """Has an agent answer in a session, until the session is deleted or another process takes over."""
    while True:
        try:
            await agentscope.serve(make_agent(), session)
        except TurnwireError as error:
            logger.warning("the chat %s: %s", session, error)
            if error.status == 404 or error.type == "fenced":
                return
            await asyncio.sleep(1)
