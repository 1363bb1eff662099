"""What the adapters of all frameworks share: publish a stream of events, and serve a session.

`publish` is for code that calls its agent itself. `serve` lets the users of a session call it: it answers their
messages, and hands their approvals and stops to the agent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from ._async.client import AsyncClient
from ._async.session import AsyncSession
from ._async.view import AsyncView
from ._common import new_id
from ._io import SyncToken
from ._native import Folder, Msg
from .api import Origin
from .errors import TurnwireError
from .publisher import EXIT_PATIENCE, Publisher
from .reply import ReplyWriter, closing_events

logger = logging.getLogger("turnwire")

Item = TypeVar("Item")

# While a reply runs and says nothing, the server is told every so many seconds that its agent lives. It ends the
# replies of agents that are silent for longer than `producers.silence`.
ALIVE_INTERVAL = 60.0
# The names of events for the server, and for those who serve the session later.
ALIVE, RESUMED = "producer_alive", "reply_resumed"


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
        self._has_written = False
        # The fields that the events of sub-agents have, by their reply.
        self._origins: dict[str, dict[str, Any]] = {}

    @property
    def reply(self) -> Msg | None:
        """The first reply."""
        return next(iter(self._folder.messages()), None)

    async def write(self, event: Any) -> None:
        await self.publisher.accepted(self.publisher.put(self._fold(event)))

    def _fold(self, event: Any) -> bytes:
        line = self.publisher.encode(event)
        self._folder.push_tolerant(line)
        self._has_written = True
        if isinstance(event, dict):
            fields = cast("dict[str, Any]", event)
            if "agent_path" in fields or "parent_tool_call_id" in fields:
                self._origins[fields["reply_id"]] = {key: fields[key] for key in _ORIGIN if key in fields}
        return line

    def start(self, reply_id: str, name: str) -> None:
        """Starts a reply, unless there is one: who has asked must not wait forever."""
        if self.reply is None:
            ReplyWriter(lambda event: self.publisher.put(self._fold(event)), name=name, id=reply_id).start()

    def break_off(self, error: BaseException | None = None, *, keeps_waiting: bool = False) -> None:
        """Ends what is open: as interrupted, or as failed; with `keeps_waiting` not what waits for an answer. It does
        not wait, so that it can be called when the task is cancelled."""
        failure = None if error is None else {"type": "internal", "message": f"{type(error).__name__}: {error}"}
        for msg in reversed(self._folder.messages()):
            if keeps_waiting and waits(msg):
                continue
            for event in closing_events(msg, "interrupted" if failure is None else "error", failure):
                # A publisher that has given up says so to whoever flushes it.
                with contextlib.suppress(TurnwireError):
                    self.publisher.put(self._fold({**event, **self._origins.get(msg.id, {})}))

    @contextlib.asynccontextmanager
    async def kept_alive(self) -> AsyncGenerator[None, None]:
        """Tells the server that the agent lives, while it has nothing to say."""
        task = asyncio.create_task(self._keep_alive())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _keep_alive(self) -> None:
        while self.publisher.error is None:
            self._has_written = False
            await asyncio.sleep(ALIVE_INTERVAL)
            msg = next((msg for msg in self._folder.messages() if msg.finished_at is None), None)
            if not self._has_written and msg is not None and not waits(msg) and self.publisher.error is None:
                self.publisher.put(self._fold({"type": "CUSTOM", "name": ALIVE, "value": {}, "reply_id": msg.id}))


_ORIGIN = ("agent_path", "parent_tool_call_id")


def waits(msg: Msg) -> bool:
    """Whether an open reply waits for answers, and does nothing else meanwhile."""
    results = {block["id"]: block["state"] for block in msg.get_content_blocks("tool_result")}
    asking, running = False, False
    for block in msg.content:
        if block["type"] == "tool_call" and results.get(block["id"], "running") == "running":
            is_asking = block["state"] in ("asking", "submitted")
            asking = asking or is_asking
            # A call without a result may have to wait for the answer to another one.
            running = running or (block["id"] in results and not is_asking)
        elif block["type"] in ("text", "thinking", "data"):
            running = running or block.get("finished_at") is None
    return asking and not running


def closed(messages: list[Msg]) -> list[Msg]:
    """The messages as they are when the open reply, which is the last one, has been interrupted."""
    if not messages or messages[-1].role != "assistant":
        return messages
    last = copy.copy(messages[-1])
    for event in closing_events(last):
        last.append_event_tolerant(event)
    return [*messages[:-1], last]


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
) -> AsyncGenerator[Item, None]:
    """Publishes a stream while it passes through: yields its items unchanged."""
    publisher = to if isinstance(to, Publisher) else Publisher(to, **options)
    output = Output(publisher)
    patience: float | None = None
    try:
        async with output.kept_alive():
            async for item in stream:
                for event in translator.feed(item):
                    await output.write(event)
                yield item
            for event in translator.end():
                await output.write(event)
    except BaseException as error:
        # The task ends, or the loop over the stream was left: the publisher's thread sends the rest.
        patience = None if isinstance(error, Exception) else EXIT_PATIENCE
        failure = error if isinstance(error, Exception) else None
        output.break_off(failure, keeps_waiting=isinstance(error, GeneratorExit))
        raise
    finally:
        try:
            await _close(stream)
        finally:
            await _finish(publisher, is_ours=to is not publisher, patience=patience)


async def _close(stream: Any) -> None:
    """Ends the agent's own stream, if the loop over it was left."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        try:
            await close()
        except Exception:
            logger.debug("closing the stream of an agent failed", exc_info=True)


async def _finish(publisher: Publisher, *, is_ours: bool, patience: float | None) -> None:
    """Waits until everything is stored. In a task that ends it waits only for so long: the publisher's thread goes on
    alone."""
    flush = publisher.aclose if is_ours else publisher.aflush
    if patience is None:
        try:
            await flush()
            return
        except asyncio.CancelledError:
            await _finish(publisher, is_ours=is_ours, patience=EXIT_PATIENCE)
            raise
    try:
        await _shielded(flush(patience))
    except TimeoutError as error:
        logger.warning("the end of the session %s: %s", publisher.session, error)


async def _shielded(work: Coroutine[Any, Any, None]) -> None:
    """Finishes work although the task is cancelled; then the cancellation goes on."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    failed = task.exception()
    if cancelled is not None:
        raise cancelled
    if failed is not None:
        raise failed


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
    also in another process; what was approved is done at most once. A reply that broke off because the process died
    ends as interrupted.

    `store` keeps the state of the framework's conversation by session, such as a `shelve`; without it, or when the
    session went on without it, another process continues from the messages of the session. `until` ends it when the
    function returns true. Other options are those of `Publisher`.
    """
    async with AsyncClient(url, token=token, name=producer or agent.name) as client:
        found = await client.create(session, agent="external")
        publisher = Publisher(
            session, url=client.url, token=token, producer=producer or agent.name, fence=fence, **options
        )
        patience: float | None = None
        try:
            await _Served(agent, found, publisher, store).run(until)
        except asyncio.CancelledError:
            patience = EXIT_PATIENCE
            raise
        finally:
            await _finish(publisher, is_ours=True, patience=patience)


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
        # What was said about pending calls, by call, with the reply, and the replies that somebody stopped.
        self.answers: dict[str, tuple[str, Answer]] = {}
        self.stopped: set[str] = set()
        # The messages that a run has answered, or tried to.
        self.answered: set[str] = set()
        self.failure: BaseException | None = None
        self.closing: asyncio.Future[None] | None = None
        self.is_over = False

    async def run(self, until: Callable[[AsyncView], bool] | None) -> None:
        # Whoever served the session before is fenced out from here on.
        await self.publisher.asend({"type": "CUSTOM", "name": ALIVE, "value": {}})
        await self.publisher.aflush()
        async with self.session.view(limit=200) as view:
            await self._begin(view)
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
                self.is_over = True
                if self.task is not None:
                    self.task.cancel()
                    await asyncio.wait([self.task])
        if self.failure is not None:
            raise self.failure

    async def _begin(self, view: AsyncView) -> None:
        """Brings the agent to where the session is."""
        reply = view.streaming
        messages = view.messages if reply is not None else _before(view.messages)
        if reply is not None:
            await self._recall()
            if not view.pending and not self._answers_to(reply):
                logger.warning("the reply %s broke off earlier; it ends as interrupted", reply.id)
                messages = closed(messages)
                for msg, origin in view.agents:
                    if msg.finished_at is None:
                        await self._end(msg, origin)
                await self._end(reply)
        state = self._load_state(messages)
        if state is not None:
            self.agent.load(state)
        elif messages:
            self.agent.restore(await self._with_files(messages))

    def _load_state(self, messages: list[Msg]) -> bytes | None:
        """The state of the store, unless the session went on without it: a process that dies in a reply stores nothing
        of it."""
        stored = self.store.get(self.session.id) if self.store is not None else None
        if stored is None:
            return None
        head, _, state = stored.partition(b"\n")
        saved = json.loads(head)
        at = next((at for at, msg in enumerate(messages) if msg.id == saved["last"]), None)
        if at is None or (messages[at].finished_at is not None) != saved["is_ended"]:
            return None
        later = [block for msg in messages[at + 1 :] for block in msg.content]
        return state if all(block["type"] == "hint" for block in later) else None

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
        reply = str(event.get("reply_id") or "")
        if event["type"] == "CUSTOM" and event.get("name") == RESUMED:
            # The agent has had these answers.
            self.answers = {call: answer for call, answer in self.answers.items() if answer[0] != reply}
        confirmed: list[dict[str, Any]] = event.get("confirm_results") or []
        executed: list[dict[str, Any]] = event.get("execution_results") or []
        for result in confirmed:
            call: dict[str, Any] = result["tool_call"]
            self.answers[call["id"]] = (
                reply,
                Answer(
                    call["id"],
                    call.get("name", ""),
                    confirmed=bool(result.get("confirmed")),
                    reason=result.get("message") or "",
                    input=call.get("input") or "",
                ),
            )
        for result in executed:
            self.answers[result["id"]] = (
                reply,
                Answer(
                    result["id"],
                    result.get("name", ""),
                    is_external=True,
                    output=result.get("output"),
                    state=result.get("state", "success"),
                ),
            )

    def _answers_to(self, reply: Msg) -> list[Answer]:
        """The answers that its agent has not had yet."""
        calls = {call["id"] for call in reply.get_content_blocks("tool_call")}
        results = {block["id"] for block in reply.get_content_blocks("tool_result")}
        answers = [answer for id, (_, answer) in self.answers.items() if id in calls]
        return [answer for answer in answers if answer.is_external or answer.call_id not in results]

    def _advance(self, view: AsyncView) -> None:
        """Starts what is to be done next."""
        if self.task is not None or self.is_over or not self._has_caught_up(view):
            return
        open_reply = view.streaming
        if open_reply is not None:
            answers = self._answers_to(open_reply)
            if open_reply.id in self.stopped or "" in self.stopped:
                self._start(self._stop(open_reply, view.messages), view)
            elif answers and not view.pending:
                self._start(self._continue(open_reply, view.messages, answers), view)
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

    async def _continue(self, reply: Msg, messages: list[Msg], answers: list[Answer]) -> None:
        calls = {call["id"]: call for call in reply.get_content_blocks("tool_call")}
        for answer in answers:
            del self.answers[answer.call_id]
            answer.name = answer.name or calls[answer.call_id]["name"]
            answer.input = calls[answer.call_id]["input"]
        # Before the agent acts: if this process dies, no other one may do the same again.
        await self.publisher.asend({"type": "CUSTOM", "name": RESUMED, "value": {}, "reply_id": reply.id})
        await self.publisher.aflush()
        await self._answer(Turn(reply.id, [], messages, answers))

    async def _stop(self, reply: Msg, messages: list[Msg]) -> None:
        self.stopped.discard(reply.id)
        self.stopped.discard("")
        await self.agent.stopped(Turn(reply.id, [], await self._with_files(closed(messages))))
        await self._end(reply)
        self._save(reply.id, is_ended=True)

    async def _end(self, reply: Msg, origin: Origin | None = None) -> None:
        for event in closing_events(reply):
            await self.publisher.asend({**event, **(origin or {})})
        await self.publisher.aflush()

    async def _answer(self, turn: Turn) -> None:
        """Runs the agent until its reply ends, or waits."""
        is_continued = bool(turn.answers) and bool(turn.history)
        output = Output(self.publisher, turn.history[-1] if is_continued else None)
        patience: float | None = None
        events: AsyncIterator[Any] | None = None
        try:
            async with output.kept_alive():
                turn.messages = await self._with_files(turn.messages)
                events = self.agent.run(turn)
                is_first = True
                async for event in events:
                    await output.write(event)
                    if is_first:
                        # Another process that has taken over stops this one before its agent acts.
                        is_first = False
                        await self.publisher.aflush()
            output.start(turn.reply_id, self.agent.name)
            output.break_off(keeps_waiting=True)
        except asyncio.CancelledError:
            patience = EXIT_PATIENCE if self.is_over else None
            output.break_off()
        except Exception as error:
            if self.publisher.error is not None:
                raise
            logger.exception("the agent %s failed", self.agent.name)
            output.start(turn.reply_id, self.agent.name)
            output.break_off(error)
        finally:
            await _close(events)
        reply = output.reply
        if reply is not None:
            self._save(reply.id, is_ended=reply.finished_at is not None)
        await _finish(self.publisher, is_ours=False, patience=patience)

    async def _with_files(self, messages: list[Msg]) -> list[Msg]:
        """The messages with their files in them: a model provider cannot read the blobs of the server."""
        found: list[Msg] = []
        for msg in messages:
            fields: Any = msg.to_dict() if msg.role == "user" else {"content": []}
            links = [block["source"] for block in fields["content"] if _blob(block) is not None]
            for source in links:
                try:
                    data = await self.session.http.request("GET", _BLOB.sub(r"/v1/blobs/\1", source["url"]))
                except TurnwireError as error:
                    logger.warning("a file of the session %s is missing: %s", self.session.id, error)
                    continue
                kind = source.get("media_type") or "application/octet-stream"
                text = base64.b64encode(data).decode()
                source.clear()
                source.update({"type": "base64", "data": text, "media_type": kind})
            found.append(Msg(fields, msg.cursor()) if links else msg)
        return found

    def _save(self, last: str, *, is_ended: bool) -> None:
        """Stores the state of the agent, and the reply that it goes up to."""
        state = self.agent.dump()
        if self.store is not None and state is not None:
            head = json.dumps({"last": last, "is_ended": is_ended}).encode()
            self.store[self.session.id] = head + b"\n" + state


# A blob of the server, by any of its addresses.
_BLOB = re.compile(r"^(?:https?://[^/]+(?:/[^?]*)?)?/v1/blobs/([0-9a-f]{64})$")


def _blob(block: dict[str, Any]) -> re.Match[str] | None:
    source: dict[str, Any] = block.get("source") or {}
    return _BLOB.match(source.get("url") or "")


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
