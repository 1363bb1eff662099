"""Has AgentScope's agent reply on a scripted model, and tells what a token costs.

    python agentscope_agent.py TOKENS TEXT_OF_A_TOKEN

It prints one JSON object: the version, the seconds for each token from the model's chunk to the bytes
of its server-sent event, and how many bytes those of one reply are. The agent keeps its conversation
in memory, as it always does, and nothing is stored elsewhere.

The chunks are made before the clock starts: to make them is the model's work. Seconds are seconds of
the processor: what else the machine does is not held against AgentScope. The best of some replies
counts, each of an agent of its own.
"""

import asyncio
import json
import sys
import time
from importlib.metadata import version

from agentscope.agent import Agent
from agentscope.credential import CredentialBase
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import TextBlock, UserMsg
from agentscope.model import ChatModelBase, ChatResponse

RUNS = 7


class Script(ChatModelBase):
    """Says what it was told to say."""

    def __init__(self, chunks: list[ChatResponse]) -> None:
        super().__init__(CredentialBase(), "script", self.Parameters())
        self.formatter = OpenAIChatFormatter()
        self.chunks = chunks

    async def _call_api(self, *_args, **_kwargs):
        async def say():
            for chunk in self.chunks:
                yield chunk

        return say()

    async def count_tokens(self, *_args, **_kwargs) -> int:
        return 1


async def reply(tokens: int, text: str) -> tuple[float, int]:
    block = "text-1"
    chunks = [
        ChatResponse(content=[TextBlock(id=block, text=text)], is_last=False)
        for _ in range(tokens)
    ]
    agent = Agent(name="friday", system_prompt="You are Friday.", model=Script(chunks))
    size = deltas = 0
    start = time.process_time()
    async for event in agent.reply_stream(UserMsg(name="ann", content="Hi!")):
        frame = f"data: {event.model_dump_json()}\n\n".encode()
        size += len(frame)
        deltas += event.type == "TEXT_BLOCK_DELTA"
    seconds = time.process_time() - start
    if deltas != tokens:
        raise SystemExit(f"{tokens} tokens became {deltas} deltas")
    return seconds / tokens, size


def main(tokens: str, text: str) -> None:
    runs = [asyncio.run(reply(int(tokens), text)) for _ in range(RUNS)]
    best = min(seconds for seconds, _ in runs)
    size = runs[0][1]
    print(json.dumps({"version": version("agentscope"), "seconds": best, "bytes": size}))


if __name__ == "__main__":
    main(*sys.argv[1:])
