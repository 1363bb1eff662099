"""What the adapters of all frameworks share: publish a stream of events, and serve a session.

`publish` is for code that calls its agent itself. `serve` lets the users of a session call it: it answers their
messages, and hands their approvals and stops to the agent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ._async.client import AsyncClient
from ._async.session import AsyncSession
from ._async.view import AsyncView
from ._common import new_id
from ._io import SyncToken
from ._native import Folder, Msg
from .errors import TurnwireError
from .publisher import Publisher
from .reply import ReplyWriter, closing_events

logger = logging.getLogger("turnwire")

Item = TypeVar("Item")


@dataclass
class Answer:
    """What a person or a client said about one pending call."""

    call_id: str
    name: str
    # Of an approval: whether the call may run, why not, and its input, which may be edited.
    confirmed: bool = False
    reason: str = ""
    input: str = ""
    # Of a call that the client executed.
    is_external: bool = False
    output: Any = None
    state: str = "success"


@dataclass
class Turn:
    """What an agent is asked to do: answer messages, or continue a reply with answers."""

    reply_id: str
    # The messages to answer; empty if a reply continues.
    messages: list[Msg]
    # Everything before them, oldest first; the open reply included.
    history: list[Msg]
    # The answers to all calls that the reply waited for.
    answers: list[Answer] = field(default_factory=list[Answer])

    @property
    def text(self) -> str:
        """The text of the messages."""
        return "\n".join(msg.get_text_content() or "" for msg in self.messages)


class Output:
    """Publishes the events of replies, and knows what each has become, so that nothing of it stays open."""

    def __init__(self, publisher: Publisher, open_reply: Msg | None = None) -> None:
        self.publisher = publisher
        self._folder = Folder([open_reply] if open_reply is not None else None)

    async def write(self, event: Any) -> None:
        line = self.publisher.encode(event)
        self._folder.push_tolerant(line)
        await self.publisher.asend(line)

    async def break_off(self, error: BaseException | None = None) -> None:
        """Ends what is open: as interrupted, or as failed."""
        failure = None if error is None else {"type": "internal", "message": f"{type(error).__name__}: {error}"}
        for msg in reversed(self._folder.messages()):
            for event in closing_events(msg, "interrupted" if failure is None else "error", failure):
                await self.write(event)


class Translator(ABC, Generic[Item]):
    """Turns the items of a framework's stream into events."""

    @abstractmethod
    def feed(self, item: Item) -> Iterable[Any]:
        """The events of an item."""

    def end(self) -> Iterable[Any]:
        """The events at the end of the stream."""
        return ()


class WritingTranslator(Translator[Item]):
    """A translator that writes with a `ReplyWriter`."""

    def __init__(self, name: str, *, id: str | None = None, is_resumed: bool = False) -> None:
        self._events: list[dict[str, Any]] = []
        self.reply = ReplyWriter(self._events.append, name=name, id=id, is_resumed=is_resumed)

    @abstractmethod
    def write(self, item: Item) -> None:
        """Writes the events of an item to `self.reply`."""

    def finish(self) -> None:
        """Writes the end of the reply, unless it waits."""
        self.reply.end()

    def feed(self, item: Item) -> Iterable[Any]:
        self.write(item)
        return self._taken()

    def end(self) -> Iterable[Any]:
        self.finish()
        return self._taken()

    def _taken(self) -> list[dict[str, Any]]:
        events = list(self._events)
        self._events.clear()
        return events


async def publish_stream(
    stream: AsyncIterable[Item], translator: Translator[Item], to: Publisher | str, **options: Any
) -> AsyncIterator[Item]:
    """Publishes a stream while it passes through: yields its items unchanged."""
    publisher = to if isinstance(to, Publisher) else Publisher(to, **options)
    output = Output(publisher)
    try:
        async for item in stream:
            for event in translator.feed(item):
                await output.write(event)
            yield item
        for event in translator.end():
            await output.write(event)
    except (asyncio.CancelledError, GeneratorExit):
        # Nothing may be awaited for long here.
        await _shielded(output.break_off())
        raise
    except Exception as error:
        await output.break_off(error)
        raise
    finally:
        await _shielded(publisher.aflush() if to is publisher else publisher.aclose())


async def _shielded(work: Any) -> None:
    """Finishes work although the task is cancelled."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise


class AgentAdapter(ABC):
    """An agent of a framework, for `serve`."""

    # The agent's name in messages, and of its publisher.
    name: str = "agent"

    @abstractmethod
    def run(self, turn: Turn) -> AsyncIterator[Any]:
        """The events of a reply, up to its end or to where it waits for answers. A task that is cancelled is a stop."""

    def dump(self) -> bytes | None:
        """The state of the conversation, if the framework keeps one."""
        return None

    def load(self, state: bytes) -> None:  # noqa: B027
        """Loads what `dump` returned."""

    def restore(self, history: list[Msg]) -> None:  # noqa: B027
        """Continues a conversation of which only the messages are known."""

    async def stopped(self, turn: Turn) -> None:  # noqa: B027
        """A reply was stopped while it waited."""


async def serve(
    agent: AgentAdapter,
    session: str,
    *,
    url: str | None = None,
    token: SyncToken = None,
    producer: str | None = None,
    fence: int | None = None,
    store: MutableMapping[str, bytes] | None = None,
    until: Callable[[AsyncView], bool] | None = None,
    **options: Any,
) -> None:
    """Lets the users of a session talk to an agent that runs here, until the task is cancelled.

    It answers messages that came while it was away. A reply that waits for an approval goes on when it is answered,
    also in another process. A reply that broke off because the process died ends as interrupted.

    `store` keeps the state of the framework's conversation by session, such as a `shelve`; without it, another process
    continues from the messages of the session. `until` ends it when the function returns true. Other options are those
    of `Publisher`.
    """
    async with AsyncClient(url, token=token, name=producer or agent.name) as client:
        found = await client.create(session, agent="external")
        publisher = Publisher(
            session, url=client.url, token=token, producer=producer or agent.name, fence=fence, **options
        )
        try:
            await _Served(agent, found, publisher, store).run(until)
        finally:
            await _shielded(publisher.aclose())


class _Served:
    """One session, and the agent that answers in it."""

    def __init__(
        self,
        agent: AgentAdapter,
        session: AsyncSession,
        publisher: Publisher,
        store: MutableMapping[str, bytes] | None,
    ) -> None:
        self.agent = agent
        self.session = session
        self.publisher = publisher
        self.store = store
        self.task: asyncio.Task[None] | None = None
        # What was said about pending calls, by call, and the replies that somebody stopped.
        self.answers: dict[str, Answer] = {}
        self.stopped: set[str] = set()
        # The messages that a run has answered, or tried to.
        self.answered: set[str] = set()
        self.failure: BaseException | None = None
        self.closing: asyncio.Future[None] | None = None

    async def run(self, until: Callable[[AsyncView], bool] | None) -> None:
        await self.publisher.aflush()
        async with self.session.view(limit=200) as view:
            self._restore(view)
            if view.streaming is not None:
                await self._recall()
            self._advance(view)
            if until is not None and until(view):
                return
            try:
                async for event in view:
                    self._keep(event)
                    self._advance(view)
                    if until is not None and self.task is None and until(view):
                        return
            finally:
                if self.task is not None:
                    self.task.cancel()
                    await asyncio.wait([self.task])
        if self.failure is not None:
            raise self.failure

    def _restore(self, view: AsyncView) -> None:
        state = self.store.get(self.session.id) if self.store is not None else None
        if state is not None:
            self.agent.load(state)
        else:
            history = view.messages if view.streaming else _before(view.messages)
            if history:
                self.agent.restore(history)

    async def _recall(self) -> None:
        """Reads what was said about the open reply while nobody served it."""
        for line in (await self.session.export()).splitlines():
            self._keep(json.loads(line))

    def _keep(self, event: Any) -> None:
        """Remembers what a person or a client said."""
        if event["type"] == "USER_INTERRUPT":
            self.stopped.add(event.get("reply_id", ""))
            # Only one reply runs at a time.
            if self.task is not None:
                self.task.cancel()
        confirmed: list[dict[str, Any]] = event.get("confirm_results") or []
        executed: list[dict[str, Any]] = event.get("execution_results") or []
        for result in confirmed:
            call: dict[str, Any] = result["tool_call"]
            self.answers[call["id"]] = Answer(
                call["id"],
                call.get("name", ""),
                confirmed=bool(result.get("confirmed")),
                reason=result.get("message") or "",
                input=call.get("input") or "",
            )
        for result in executed:
            self.answers[result["id"]] = Answer(
                result["id"],
                result.get("name", ""),
                is_external=True,
                output=result.get("output"),
                state=result.get("state", "success"),
            )

    def _advance(self, view: AsyncView) -> None:
        """Starts what is to be done next."""
        if self.task is not None or not self._has_caught_up(view):
            return
        open_reply = view.streaming
        if open_reply is not None:
            if open_reply.id in self.stopped or "" in self.stopped:
                self._start(self._stop(open_reply, view.messages), view)
            elif not view.pending:
                self._start(self._continue(open_reply, view.messages), view)
            return
        self.stopped.clear()
        before = _before(view.messages)
        messages = [msg for msg in view.messages[len(before) :] if msg.id not in self.answered]
        if messages:
            self.answered.update(msg.id for msg in messages)
            self._start(self._answer(Turn(new_id(), messages, before)), view)

    def _has_caught_up(self, view: AsyncView) -> bool:
        """Whether the view has all that was published."""
        return _seq(view.last_event_id) >= _seq(self.publisher.last_event_id)

    def _start(self, work: Coroutine[Any, Any, None], view: AsyncView) -> None:
        def done(task: asyncio.Task[None]) -> None:
            self.task = None
            if not task.cancelled() and task.exception() is not None:
                self.failure = task.exception()
                self.closing = asyncio.ensure_future(view.close())
            else:
                self._advance(view)

        self.task = asyncio.create_task(work)
        self.task.add_done_callback(done)

    async def _continue(self, reply: Msg, messages: list[Msg]) -> None:
        calls = {call["id"]: call for call in reply.get_content_blocks("tool_call")}
        results = {block["id"] for block in reply.get_content_blocks("tool_result") if block["state"] != "running"}
        answers = [answer for id, answer in self.answers.items() if id in calls]
        answers = [answer for answer in answers if answer.is_external or answer.call_id not in results]
        if not answers:
            # The process died in the middle of it.
            logger.warning("the reply %s broke off earlier; it ends as interrupted", reply.id)
            await self._end(reply)
            return
        for answer in answers:
            del self.answers[answer.call_id]
            answer.name = answer.name or calls[answer.call_id]["name"]
            answer.input = calls[answer.call_id]["input"]
        await self._answer(Turn(reply.id, [], messages, answers))

    async def _stop(self, reply: Msg, messages: list[Msg]) -> None:
        self.stopped.discard(reply.id)
        self.stopped.discard("")
        await self.agent.stopped(Turn(reply.id, [], messages))
        await self._end(reply)
        self._save()

    async def _end(self, reply: Msg) -> None:
        for event in closing_events(reply):
            await self.publisher.asend(event)
        await self.publisher.aflush()

    async def _answer(self, turn: Turn) -> None:
        """Runs the agent until its reply ends, or waits."""
        is_continued = bool(turn.answers) and bool(turn.history)
        output = Output(self.publisher, turn.history[-1] if is_continued else None)
        try:
            async for event in self.agent.run(turn):
                await output.write(event)
            self._save()
        except asyncio.CancelledError:
            await _shielded(output.break_off())
        except TurnwireError:
            # The publisher has given up.
            raise
        except Exception as error:
            logger.exception("the agent %s failed", self.agent.name)
            await output.break_off(error)
        await _shielded(self.publisher.aflush())

    def _save(self) -> None:
        state = self.agent.dump()
        if self.store is not None and state is not None:
            self.store[self.session.id] = state


def _seq(token: str | None) -> int:
    tail = (token or "").rpartition(".")[2]
    return int(tail) if tail.isdigit() else 0


def _before(messages: list[Msg]) -> list[Msg]:
    """The messages up to the last one that is not a user's: those behind it wait for a reply."""
    at = len(messages)
    while at and messages[at - 1].role == "user":
        at -= 1
    return messages[:at]


@asynccontextmanager
async def serving(agent: AgentAdapter, session: str, **options: Any) -> AsyncGenerator[None, None]:
    """Serves in the background while the block runs."""
    task = asyncio.create_task(serve(agent, session, **options))
    task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("the agent serves no longer", exc_info=task.exception())
