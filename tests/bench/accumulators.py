"""Puts a provider's stream together with its official package, and tells how long that takes.

    python accumulators.py WIRE BODY.sse

It prints the seconds from the bytes in memory to the final object, and behind that line the text of the
object, to be compared with ours. Nothing goes over a network: the package gets the body from memory.

Seconds are seconds of the processor: what else the machine does is not held against the package.
"""

import sys
import time
from pathlib import Path

import anthropic
import httpx2
import openai

# Short runs are repeated, and the best one counts.
RUNS = 3


def client(body: bytes) -> httpx2.Client:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    return httpx2.Client(transport=httpx2.MockTransport(answer))


def of_anthropic(body: bytes) -> str:
    api = anthropic.Anthropic(api_key="k", http_client=client(body))
    messages = [{"role": "user", "content": "go"}]
    with api.messages.stream(model="m", max_tokens=9, messages=messages) as stream:
        for _ in stream:
            pass
        return stream.get_final_message().content[0].text


def of_openai_chat(body: bytes) -> str:
    api = openai.OpenAI(api_key="k", http_client=client(body))
    messages = [{"role": "user", "content": "go"}]
    with api.chat.completions.stream(model="m", messages=messages) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0].message.content


def of_openai_responses(body: bytes) -> str:
    api = openai.OpenAI(api_key="k", http_client=client(body))
    with api.responses.stream(model="m", input="go") as stream:
        for _ in stream:
            pass
        return stream.get_final_response().output_text


ACCUMULATORS = {
    "anthropic": of_anthropic,
    "openai-chat": of_openai_chat,
    "openai-responses": of_openai_responses,
}


def main(wire: str, path: str) -> None:
    body = Path(path).read_bytes()
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        text = ACCUMULATORS[wire](body)
        best = min(best, time.process_time() - start)
        if best > 5:
            break
    sys.stdout.write(f"{best}\n{text}")


main(*sys.argv[1:])
