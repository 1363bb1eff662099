"""An external agent, made with AgentScope, whose replies Turnwire stores and serves.

    pip install agentscope==2.0.10
    python examples/publish.py http://127.0.0.1:4747 my-session
"""

import asyncio
import sys
import time

import httpx
from agentscope.message import Msg

from echo import agent

# A later run has a higher fence and takes over from an earlier one.
PRODUCER = {"Turnwire-Producer": f"{agent.name}.{time.time_ns()}"}


async def ask(turnwire, method, path, **request):
    """Repeats a request until there is a response. Events and sessions have ids, so repeating is safe."""
    while True:
        try:
            answer = await turnwire.request(method, path, **request)
            if answer.status_code < 500:
                return answer.raise_for_status().json()
        except httpx.TransportError as error:
            print("once more:", error, file=sys.stderr)
        await asyncio.sleep(0.5)


async def main(server, session):
    async with httpx.AsyncClient(base_url=f"{server}/v1/sessions/{session}/") as turnwire:
        await ask(turnwire, "POST", f"{server}/v1/sessions", json={"id": session, "agent": "external"})
        while True:
            page = await ask(turnwire, "GET", "messages?limit=1")
            for message in page["messages"]:
                if message["role"] == "user":
                    async for event in agent.reply_stream(Msg.model_validate(message)):
                        event = {"content": event.model_dump_json(), "headers": PRODUCER}
                        await ask(turnwire, "POST", "events?wire=agentscope", **event)
            # Watches from there, so that nothing that is said meanwhile is missed.
            after = {"after": page["last_event_id"]}
            try:
                async with turnwire.stream("GET", "events", params=after, timeout=60) as events:
                    async for line in events.aiter_lines():
                        if '"type":"MESSAGE"' in line:
                            break
            except httpx.TransportError as error:
                print("once more:", error, file=sys.stderr)


asyncio.run(main(*sys.argv[1:3]))
