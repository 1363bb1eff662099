"""Messages and the fold: the vectors of the Rust fold, and how Python calls it."""

import copy
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import turnwire
from turnwire import Folder, FoldError, Msg

REPOSITORY = Path(__file__).parents[3]
VECTORS = REPOSITORY / "clients/typescript/test/vectors"

START = {"id": "1", "type": "REPLY_START", "reply_id": "r", "name": "friday"}
BLOCK = {"id": "2", "type": "TEXT_BLOCK_START", "reply_id": "r", "block_id": "b"}
DELTA = {"id": "3", "type": "TEXT_BLOCK_DELTA", "reply_id": "r", "block_id": "b", "delta": "Hello"}
END = {"id": "4", "type": "REPLY_END", "reply_id": "r"}


def vectors(name: str) -> list[Any]:
    """Streams and what the Rust fold makes of them."""
    cases: list[Any] = json.loads((VECTORS / f"{name}.json").read_bytes())["cases"]
    return cases


@pytest.mark.parametrize("name", ["replies", "repeats", "disorder"])
def test_a_stream_folds_to_what_rust_folds_it_to(name: str) -> None:
    for case in vectors(name):
        for mode in ("strict", "tolerant"):
            folder, outcomes = Folder(), []
            for event in case["events"]:
                if mode == "tolerant":
                    outcome, problem = folder.push_tolerant(event)
                    outcomes.append(f"{outcome} {problem.kind}".lower() if problem else outcome)
                    continue
                try:
                    outcomes.append(folder.push(event))
                except FoldError as error:
                    outcomes.append(f"skipped {error.kind}".lower())
            assert outcomes == case[mode]["outcomes"]
            assert [msg.to_dict() for msg in folder.messages()] == case[mode]["messages"]
            assert [msg.id for msg in folder.history()] == case[mode]["history"]


@pytest.mark.parametrize("name", ["replies", "repeats", "disorder"])
def test_a_body_folds_as_its_events_do(name: str) -> None:
    for case in vectors(name):
        body = "\n".join(json.dumps(event) for event in case["events"])
        folder = Folder()
        problems = folder.feed_tolerant(body.encode())
        wrong = [outcome.split()[1] for outcome in case["tolerant"]["outcomes"] if " " in outcome]
        assert [problem.kind.lower() for problem in problems] == wrong
        assert [msg.to_dict() for msg in folder.messages()] == case["tolerant"]["messages"]


def test_a_message_that_was_stored_in_the_middle_continues() -> None:
    for case in vectors("splits"):
        msg = Msg.reply("r")
        for event in case["before"]:
            msg.append_event(event)
        assert msg.to_dict() == case["message"]
        assert msg.cursor() == case["cursor"]
        for later in (Msg(msg.to_json(), msg.cursor()), pickle.loads(pickle.dumps(msg)), copy.deepcopy(msg)):
            for event in case["before"] + case["behind"]:
                later.append_event(event)
            assert later.to_dict() == case["whole"]


def test_a_folder_that_was_stored_at_any_event_continues() -> None:
    for case in vectors("replies"):
        whole, split = Folder(), Folder()
        for event in case["events"]:
            whole.push_tolerant(event)
            split = Folder.load(split.dump())
            split.push_tolerant(event)
        assert split.dump() == whole.dump()
        assert split.history() == whole.history()


def test_a_message_is_read_as_rust_reads_it() -> None:
    for case in vectors("messages"):
        if "error" in case:
            with pytest.raises(FoldError) as error:
                Msg(case["read"])
            assert error.value.kind == case["error"]
        else:
            assert Msg(case["read"]).to_dict() == case["written"]


def test_events_come_as_dictionaries_text_or_bytes() -> None:
    msg = Msg.reply("r")
    assert msg.append_event(START) == "applied"
    assert msg.append_event(json.dumps(BLOCK)) == "applied"
    assert msg.append_event(json.dumps(DELTA).encode()) == "applied"
    assert msg.append_event(DELTA) == "repeated"
    assert (msg.name, msg.role, msg.get_text_content()) == ("friday", "assistant", "Hello")
    assert msg.finished_at is None
    msg.append_event(END | {"created_at": "2026-11-16T09:00:00.200Z"})
    assert (msg.finished_at, msg.finished_reason) == ("2026-11-16T09:00:00.200Z", "completed")


def test_an_event_that_does_not_fit_changes_nothing_and_says_why() -> None:
    msg = Msg.reply("r")
    with pytest.raises(FoldError) as error:
        msg.append_event(DELTA)
    assert error.value.kind == "UnknownBlock"
    assert str(error.value).startswith("UnknownBlock: ")
    assert msg == Msg.reply("r")
    outcome, problem = msg.append_event_tolerant(DELTA)
    assert outcome == "skipped"
    assert problem is not None
    assert problem.kind == "UnknownBlock"


def test_a_bad_line_of_a_body_is_named() -> None:
    body = "\n".join(json.dumps(event) for event in (START, BLOCK)) + "\n{oops\n" + json.dumps(DELTA)
    folder = Folder()
    with pytest.raises(FoldError, match="line 3: NotJson") as error:
        folder.feed(body)
    assert error.value.line == 3
    # What came before is folded, what came behind is not.
    assert folder.messages()[0].content == [{"type": "text", "text": "", "id": "b", "finished_at": None}]
    assert [problem.line for problem in Folder().feed_tolerant(body)] == [3]


@pytest.mark.parametrize("wrong", [b"\xff", "\ud800", "", "[]", "{}", b"null"])
def test_what_is_no_event_is_a_fold_error(wrong: Any) -> None:
    with pytest.raises(FoldError):
        Folder().push(wrong)
    assert Folder().push_tolerant('{"type": "NEW_KIND", "reply_id": "r"}')[1] is None


def test_what_json_cannot_write_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        Folder().push({"type": object()})  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Msg.user(object())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_messages_are_built_and_their_roles_checked() -> None:
    msg = Msg.user([{"type": "text", "text": "hi"}], name="alice", id="m1", metadata={"a": 1})
    assert (msg.role, msg.name, msg.id, msg.metadata) == ("user", "alice", "m1", {"a": 1})
    assert msg.get_content_blocks("text")[0]["text"] == "hi"
    assert msg.has_content_blocks("text")
    assert not msg.has_content_blocks("tool_call")
    with pytest.raises(FoldError) as error:
        Msg.system([{"type": "thinking", "thinking": "hm"}])
    assert error.value.kind == "WrongRole"
    assert Msg.assistant("x").usage is None
    assert repr(Msg.user("hello")).startswith("<Msg user")


def test_unknown_blocks_are_kept_and_found_by_their_type() -> None:
    block = {"type": "chart", "points": [1, 2**70]}
    msg = Msg({"role": "assistant", "name": "a", "content": [block]})
    assert msg.get_content_blocks("chart") == [block]
    assert Msg(msg.to_json()).content == [block]


def test_a_folder_continues_messages_from_their_cursors() -> None:
    first = Folder()
    for event in (START, BLOCK, DELTA):
        first.push(event)
    later = Folder(first.messages())
    assert later.push(DELTA) == "repeated"
    assert later.push(END) == "applied"
    assert later.ids() == ["r"]
    assert (len(later), later.get("r") is not None, later.get("s")) == (1, True, None)


def test_threads_share_a_folder() -> None:
    folder, threads = Folder(), 8
    lines = [json.dumps(DELTA | {"id": f"d{n}", "delta": "x"}) for n in range(2000)]
    folder.feed("\n".join(map(json.dumps, (START, BLOCK))))

    def work(part: int) -> None:
        mine = lines[part::threads]
        folder.feed("\n".join(mine[:100]))
        for line in mine[100:]:
            folder.push(line)
            folder.get("r")

    running = [threading.Thread(target=work, args=(part,)) for part in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert folder.messages()[0].get_text_content() == "x" * 2000


def test_the_example_of_the_repository_folds() -> None:
    folder = turnwire.Folder()
    folder.feed((REPOSITORY / "examples/weather.ndjson").read_bytes())
    assert folder.messages()[-1].finished_reason == "completed"
