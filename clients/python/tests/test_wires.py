"""Decoders, encoders and messages of every wire."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from turnwire import Folder, Msg, wires

WEATHER = (Path(__file__).parents[3] / "examples/weather.ndjson").read_bytes()
CHAT = b"""data: {"choices":[{"delta":{"content":"Hel"}}]}

data: {"choices":[{"delta":{"content":"lo"}}]}

data: {"choices":[{"delta":{},"finish_reason":"stop"}]}

data: [DONE]

"""


def test_the_list_says_what_each_wire_can_do() -> None:
    by_name = {wire.name: wire for wire in wires.all()}
    assert len(by_name) == 12
    assert by_name["turnwire"].decodes
    assert by_name["turnwire"].encodes
    assert not by_name["ag-ui"].decodes
    assert "message ids" in by_name["anthropic"].message_losses


def test_a_stream_may_be_cut_at_any_byte() -> None:
    whole = wires.decode("openai-chat", CHAT, reply_id="r")
    for at in range(len(CHAT)):
        decoder = wires.Decoder("openai-chat", reply_id="r")
        events = decoder.feed(CHAT[:at]) + decoder.feed(CHAT[at:]) + decoder.end()
        assert events == whole
        assert decoder.problems == []
    folder = Folder()
    for event in whole:
        folder.push(event)
    assert folder.messages()[0].get_text_content() == "Hello"


@pytest.mark.parametrize("name", [wire.name for wire in wires.all() if wire.encodes])
def test_every_encoder_writes_what_the_command_line_writes(name: str, tmp_path: Path) -> None:
    source = tmp_path / "weather.ndjson"
    source.write_bytes(WEATHER)
    command = [os.environ["TURNWIRE"], "convert", "--from", "turnwire", "--to", name, "--sse", str(source)]
    expected = subprocess.run(command, check=True, capture_output=True).stdout
    assert wires.encode(name, WEATHER) == expected


@pytest.mark.parametrize("name", [wire.name for wire in wires.all() if wire.decodes and wire.encodes])
def test_what_is_encoded_event_by_event_is_decoded_again(name: str) -> None:
    encoder, decoder = wires.Encoder(name), wires.Decoder(name)
    events = []
    for line in WEATHER.splitlines():
        for frame in encoder.encode(line):
            events += decoder.feed(frame.sse())
    for frame in encoder.end():
        events += decoder.feed(frame.sse())
    events += decoder.end()
    assert decoder.problems == []
    assert [event["type"] for event in events if event["type"] == "REPLY_END"] == ["REPLY_END"]


def test_a_frame_that_cannot_be_read_is_a_problem_and_decoding_goes_on() -> None:
    decoder = wires.Decoder("turnwire")
    events = decoder.feed(b"{oops\n" + WEATHER)
    assert [problem.line for problem in decoder.problems] == [1]
    assert len(events) == len(WEATHER.splitlines())
    decoder.end()
    with pytest.raises(ValueError, match="has ended"):
        decoder.feed(b"")


def test_messages_are_read_and_written() -> None:
    theirs = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}]
    ours = wires.read_messages("openai-chat", theirs)
    assert [(msg.role, msg.get_text_content()) for msg in ours] == [("user", "hi"), ("assistant", "Hello")]
    assert wires.write_messages("openai-chat", ours) == theirs
    assert wires.write_messages("anthropic", [Msg.user("hi")])[0]["role"] == "user"


def test_what_a_wire_cannot_do_is_a_value_error_that_says_so() -> None:
    with pytest.raises(ValueError, match='unknown wire "smoke": use one of turnwire, agentscope'):
        wires.Decoder("smoke")
    with pytest.raises(ValueError, match="the wire ag-ui cannot decode streams"):
        wires.decode("ag-ui", b"")
    with pytest.raises(ValueError, match="the wire gemini cannot encode streams"):
        wires.Encoder("gemini")
    with pytest.raises(ValueError, match='use "reply" or "model_call"'):
        wires.Decoder("turnwire", scope="line")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_events_are_encoded_from_dictionaries() -> None:
    events = [json.loads(line) for line in WEATHER.splitlines()]
    assert wires.encode("ag-ui", events) == wires.encode("ag-ui", WEATHER)
