"""Spoken answers of Chat Completions: three turns with the `openai` package, straight and through Turnwire, streamed and not."""

import base64
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from compare import same_wire
from conversation import ANTHROPIC, CHAT, Json
from fake_provider import FakeProvider
from harness import MODELS, read_sessions, settings_of
from turnwire_server import TurnwireServer

SPEAK: Json = {"modalities": ["text", "audio"], "audio": {"voice": "ash", "format": "pcm16"}}


def answer(client: OpenAI, messages: list[Json], stream: bool) -> Json:
    """The audio of an answer, and the text beside it."""
    request: Json = {"model": MODELS[CHAT], "messages": messages} | SPEAK
    if not stream:
        message = client.chat.completions.create(**request).choices[0].message
        return {"content": message.content, "audio": message.audio.model_dump()}
    audio: Json = {"id": "", "data": "", "transcript": "", "expires_at": 0}
    content = ""
    for chunk in client.chat.completions.create(stream=True, **request):
        delta: Any = chunk.choices[0].delta.model_dump()
        content += delta["content"] or ""
        for key, value in (delta.get("audio") or {}).items():
            audio[key] += value or type(audio[key])()
    return {"content": content or None, "audio": audio}


def conversation(url: str, stream: bool) -> list[Json]:
    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    messages: list[Json] = []
    answers = []
    for words in ("Hello.", "And?", "Once more."):
        messages.append({"role": "user", "content": words})
        answers.append(answer(client, messages, stream))
        # As OpenAI's documentation has it: the provider knows its audio by the id.
        messages.append({"role": "assistant", "audio": {"id": answers[-1]["audio"]["id"]}})
    return answers


@pytest.mark.parametrize("stream", [False, True])
def test_spoken_answers_are_the_same_through_turnwire(tmp_path: Path, stream: bool) -> None:
    straight = FakeProvider()
    control = conversation(straight.url, stream)
    provider = FakeProvider()
    server = TurnwireServer(tmp_path, settings=settings_of(CHAT, MODELS[CHAT], provider.url))
    try:
        answers = conversation(server.url, stream)
        sessions = read_sessions(server)
    finally:
        server.stop()
        provider.close()
        straight.close()
    assert [base64.b64decode(one["audio"]["data"]).decode() for one in control] == [one["audio"]["transcript"] for one in control]
    assert answers == control
    problems = [problem for pair in zip(straight.log, provider.log, strict=True) for problem in same_wire(*pair)]
    assert not problems, "\n".join(problems)
    [session] = sessions
    assert [message["role"] for message in session["messages"]] == ["user", "assistant"] * 3
    blocks = session["messages"][-1]["content"]
    assert [block["type"] for block in blocks] == ["data", "text"]
    assert blocks[1]["text"] == control[-1]["audio"]["transcript"]
    assert blocks[0]["source"]["data"] == control[-1]["audio"]["data"]


def test_a_model_of_another_protocol_is_not_asked_to_speak(tmp_path: Path) -> None:
    provider = FakeProvider()
    server = TurnwireServer(tmp_path, settings=settings_of(ANTHROPIC, MODELS[CHAT], provider.url))
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    try:
        with pytest.raises(BadRequestError, match="modalities"):
            client.chat.completions.create(model=MODELS[CHAT], messages=[{"role": "user", "content": "Hello."}], **SPEAK)
        assert provider.log == []
        assert read_sessions(server) == []
    finally:
        server.stop()
        provider.close()
