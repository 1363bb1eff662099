"""The conversations that each client has: once straight with the fake provider, once with Turnwire in front of it."""

import base64
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from conversation import Json

History = Any

SYSTEM = "You are terse."


@dataclass(frozen=True)
class Turn:
    """One message of the user, and what its request says beside it."""

    text: str
    system: str | None = None
    tools: bool = False
    options: Json = field(default_factory=dict)
    # "native" (the provider's response format) or "tool" (a forced tool).
    structured: str | None = None
    image: bytes | None = None
    stream: bool = False

    @property
    def image_base64(self) -> str:
        return base64.b64encode(self.image or b"").decode()

    @property
    def image_url(self) -> str:
        return f"data:image/png;base64,{self.image_base64}"


class Client:
    """A client of a provider, as its users write it. It has no state: the history goes in and comes out."""

    name: str
    wire: str
    # Every option that the client has and a provider understands, as the client spells them. The answers are cut
    # after 12 words, and at STOP where the client has stop sequences.
    options: Json
    # With tools: that none may be called, and that only one may be called at a time.
    no_tools: Json = {"tool_choice": "none"}
    one_at_a_time: Json = {"parallel_tool_calls": False}
    # That the model thinks before it answers, where the client sends its thinking back.
    thinking: Json
    # The cases that the client cannot do, with the reason.
    cannot: dict[str, str] = {}

    def connect(self, url: str, model: str) -> None:
        """Uses the provider at this address. A client may be connected again, to another one."""
        self.url, self.model = url, model

    def start(self) -> History:
        """The history of a conversation that has not begun."""
        return []

    def turn(self, history: History, text: str, **more: Any) -> tuple[Json, History]:
        """One message of the user, up to the final answer: calls of tools are executed on the way."""
        return self.run_turn(history, Turn(text, **more))

    def run_turn(self, history: History, turn: Turn) -> tuple[Json, History]:
        raise NotImplementedError


@dataclass
class Run:
    """One conversation, or some of them, of a client with a provider or with Turnwire."""

    client: Client
    # Calls that the provider has seen so far: with `mark` the place of a session's last one.
    count: Callable[[], int]
    # Connects the client to another provider, and returns the function that connects it back.
    elsewhere: Callable[[], Callable[[], None]]
    # Something that happens between two turns and must not change them.
    disturb: Callable[[], None] = lambda: None
    answers: list[Json] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)

    def turn(self, history: History, text: str, **more: Any) -> History:
        # A client may change the history that it is given; the cases use one history twice.
        answer, after = self.client.turn(copy.copy(history), text, **more)
        self.answers.append(answer)
        return after

    def mark(self) -> None:
        """The conversation as the last call showed it, with its answer, is a session at the end."""
        self.marks.append(self.count() - 1)


def five_turns(run: Run, **more: Any) -> None:
    history = run.client.start()
    for text in ("Hello.", "My name is Ada.", "I live in Paris.", "Where do I live?", "Goodbye."):
        history = run.turn(history, text, system=SYSTEM, **more)
        run.disturb()
    run.mark()


def streamed(run: Run) -> None:
    history = run.client.start()
    for text in ("Hello.", "How is it in [get_weather Paris]?", "Thanks.", "[get_time Rome] [get_weather Rome]", "Bye."):
        history = run.turn(history, text, system=SYSTEM, tools=True, stream=True)
    run.mark()


def one_tool(run: Run) -> None:
    history = run.turn(run.client.start(), "Hello.", tools=True)
    history = run.turn(history, "How is it in [get_weather Paris]?", tools=True)
    history = run.turn(history, "And in [get_weather Rome]?", tools=True)
    run.turn(history, "Thanks.", tools=True)
    run.mark()


def several_tools(run: Run) -> None:
    history = run.turn(run.client.start(), "[get_weather Paris] and [get_weather Rome] and [get_time Rome]", tools=True)
    history = run.turn(history, "Thanks. And [get_time Oslo]?", tools=True)
    run.turn(history, "Bye.", tools=True)
    run.mark()


def options(run: Run) -> None:
    history = run.client.start()
    for text in ("Say a lot of words, more than the limit has room for.", "Again STOP and more.", "Thanks."):
        history = run.turn(history, text, options=run.client.options)
    run.mark()


def tool_options(run: Run) -> None:
    history = run.turn(run.client.start(), "[get_weather Paris]", tools=True, options=run.client.no_tools)
    history = run.turn(history, "[get_weather Rome] [get_time Rome]", tools=True, options=run.client.one_at_a_time)
    run.turn(history, "Thanks.", tools=True)
    run.mark()


def thinking(run: Run) -> None:
    history = run.client.start()
    for text in ("Hello.", "How is it in [get_weather Paris]?", "Thanks."):
        history = run.turn(history, text, tools=True, options=run.client.thinking)
    run.mark()


def structured_native(run: Run) -> None:
    history = run.turn(run.client.start(), "Hello.")
    history = run.turn(history, "Describe a city.", structured="native")
    run.turn(history, "Thanks.")
    run.mark()


def structured_tool(run: Run) -> None:
    history = run.turn(run.client.start(), "Hello.")
    history = run.turn(history, "Describe a city.", structured="tool")
    run.turn(history, "Thanks.")
    run.mark()


def image(run: Run) -> None:
    history = run.turn(run.client.start(), "What is this?", image=PIXEL)
    run.turn(history, "Are you sure?")
    run.mark()


def regenerate(run: Run) -> None:
    """The last turn again: the same session."""
    first = run.turn(run.client.start(), "Hello.")
    run.turn(first, "Tell me a joke.")
    again = run.turn(first, "Tell me a joke.")
    run.turn(again, "Thanks.")
    run.mark()


def edit(run: Run) -> None:
    """Another second message: a branch. The first session stays as it was."""
    first = run.turn(run.client.start(), "Hello.")
    history = run.turn(first, "My name is Ada.")
    run.turn(history, "What is my name?")
    run.mark()
    history = run.turn(first, "My name is Grace.")
    run.turn(history, "What is my name?")
    run.mark()


def interleaved(run: Run, first: str = "I am Ada.", second: str = "I am Grace.") -> None:
    one, other = run.turn(run.client.start(), first), run.turn(run.client.start(), second)
    for text in ("Who am I?", "And [get_weather Paris]?"):
        one, other = run.turn(one, f"Ada: {text}", tools=True), run.turn(other, f"Grace: {text}", tools=True)
    run.turn(one, "Bye, says Ada.")
    run.mark()
    run.turn(other, "Bye, says Grace.")
    run.mark()


def same_beginning(run: Run) -> None:
    interleaved(run, "Hello.", "Hello.")


def system_changes(run: Run) -> None:
    """A system prompt with the time of day: still one session."""
    history = run.client.start()
    for hour, text in enumerate(("Hello.", "My name is Ada.", "What is my name?")):
        history = run.turn(history, text, system=f"{SYSTEM} It is {hour} o'clock.")
    run.mark()


def begun_elsewhere(run: Run) -> None:
    """The client comes with a history that Turnwire has never seen."""
    back = run.elsewhere()
    history = run.client.turn(run.client.start(), "I am Ada.", system=SYSTEM)[1]
    history = run.client.turn(history, "How is it in [get_weather Paris]?", system=SYSTEM, tools=True)[1]
    back()
    for text in ("Who am I?", "Bye."):
        history = run.turn(history, text, system=SYSTEM)
    run.mark()


def restarts(run: Run) -> None:
    """Turnwire is killed after each turn."""
    five_turns(run)


CASES: dict[str, Callable[[Run], None]] = {
    case.__name__: case
    for case in (
        five_turns, streamed, one_tool, several_tools, options, tool_options, thinking, structured_native, structured_tool, image,
        regenerate, edit, interleaved, same_beginning, system_changes, begun_elsewhere, restarts,
    )
}  # fmt: skip

# One black pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c6360000000020001487354a70000000049454e44ae426082"
)
