//! `close_reply` closes a reply in any state: the result folds strictly, and no content is lost.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::Cell;
use turnwire_agent::close_reply;
use turnwire_core::{
    ContentBlock, DataBlock, ErrorType, Event, EventKind, FinishedReason, FixedStamp, ModelCalls,
    Msg, Part, Payload, ReplyError, ToolCallState, ToolResult, ToolResultState,
};
use turnwire_testkit::{check_property, random_reply};

fn folded(lines: &[&str]) -> Msg {
    let mut msg = Msg::reply("r", "");
    for line in lines {
        msg.append_event(&Event::from_json(line).unwrap()).unwrap();
    }
    msg
}

/// Closes a reply as a server does: the events are stamped, written, read back and folded strictly.
fn closed(partial: &Msg) -> (Msg, Vec<String>) {
    closed_in(partial, &ModelCalls::default())
}

fn closed_in(partial: &Msg, calls: &ModelCalls) -> (Msg, Vec<String>) {
    let mut msg = partial.clone();
    let mut types = Vec::new();
    for event in close_reply(partial, calls, FinishedReason::Interrupted, None) {
        let line = event.stamped(&FixedStamp::default()).to_json();
        let mut event = Event::from_json(&line).unwrap();
        event.id = "".into();
        msg.append_event(&event).unwrap_or_else(|error| panic!("{error}: {line}"));
        types.push(event.kind.type_name().to_owned());
    }
    (msg, types)
}

fn bytes(block: &DataBlock) -> Option<Vec<u8>> {
    block.decoded().map(Result::unwrap)
}

/// Whether the closed block has all content of the open one.
fn assert_kept(before: &ContentBlock, after: &ContentBlock) {
    match (before, after) {
        (ContentBlock::Text(before), ContentBlock::Text(after)) => {
            assert_eq!((&before.id, &before.text), (&after.id, &after.text));
        }
        (ContentBlock::Thinking(before), ContentBlock::Thinking(after)) => {
            assert_eq!((&before.id, &before.thinking), (&after.id, &after.thinking));
        }
        (ContentBlock::Data(before), ContentBlock::Data(after)) => assert_data_kept(before, after),
        (ContentBlock::ToolCall(before), ContentBlock::ToolCall(after)) => {
            let words = |call: &turnwire_core::ToolCall| (call.name.clone(), call.input.clone());
            assert_eq!((&before.id, words(before)), (&after.id, words(after)));
            assert_eq!(after.state, ToolCallState::Finished);
        }
        (ContentBlock::ToolResult(before), ContentBlock::ToolResult(after)) => {
            assert_result_kept(before, after);
        }
        (before, after) => assert_eq!(before, after),
    }
}

fn assert_data_kept(before: &DataBlock, after: &DataBlock) {
    assert_eq!(before.id, after.id);
    if before.finished_at.is_some() {
        assert_eq!(before, after);
    }
    match (bytes(before), bytes(after)) {
        (Some(before), Some(after)) => {
            assert!(after.starts_with(&before));
            assert!(after.len() <= before.len() + 1, "at most the byte that was cut is filled up");
        }
        (before, after) => assert_eq!(before, after),
    }
}

fn assert_result_kept(before: &ToolResult, after: &ToolResult) {
    if before.finished_at.is_some() {
        assert_eq!(before, after);
        return;
    }
    assert_eq!((&before.id, &before.name), (&after.id, &after.name));
    let is_running = before.state == ToolResultState::Running;
    let state = if is_running { &ToolResultState::Interrupted } else { &before.state };
    assert_eq!(&after.state, state);
    let is_empty = match &before.output {
        Payload::Text(text) => text.is_empty(),
        Payload::Parts(parts) => parts.is_empty(),
    };
    if is_running && is_empty {
        assert_eq!(after.output.text(""), "interrupted", "a result without output says why");
        return;
    }
    let (Payload::Parts(before), Payload::Parts(after)) = (&before.output, &after.output) else {
        assert_eq!(before.output, after.output);
        return;
    };
    for (before, after) in before.iter().zip(after) {
        match (before, after) {
            (Part::Data(before), Part::Data(after)) => assert_data_kept(before, after),
            (before, after) => assert_eq!(before, after),
        }
    }
    assert!(after.len() >= before.len());
}

#[test]
fn a_reply_cut_at_any_event_can_be_closed_and_keeps_what_it_had() {
    let filled_up = Cell::new(0);
    check_property("a_reply_cut_at_any_event_can_be_closed", 200, |rng| {
        let made = random_reply(rng, "r");
        let (mut partial, mut calls) = (Msg::reply("r", ""), ModelCalls::default());
        for cut in 0..=made.events.len() {
            if let Some(event) = cut.checked_sub(1).and_then(|last| made.events.get(last)) {
                partial.append_event(event).unwrap();
                calls.observe(event);
            }
            let (msg, types) = closed_in(&partial, &calls);
            if partial.finished_at().is_some() {
                assert_eq!(types, [""; 0], "a reply that has ended needs nothing");
                continue;
            }
            let is_filling = |it: &&String| it.contains("DATA") && it.ends_with("DELTA");
            filled_up.set(filled_up.get() + types.iter().filter(is_filling).count());
            let ended = types.iter().filter(|it| *it == "MODEL_CALL_END").count();
            assert_eq!(ended, usize::from(calls.open_blocks.is_some()));
            assert_eq!(msg.finished_reason(), Some(&FinishedReason::Interrupted));
            assert!(msg.finished_at().is_some());
            for (call, result) in msg.tool_calls() {
                assert!(call.finished_at.is_some(), "{call:?}");
                assert!(result.unwrap().finished_at.is_some(), "{call:?}");
            }
            assert!(msg.content().len() >= partial.content().len());
            for (before, after) in partial.content().iter().zip(msg.content()) {
                assert_kept(before, after);
            }
            // The same for a message that was stored as JSON.
            let stored = Msg::from_json(&partial.to_json()).unwrap().with_cursor(partial.cursor());
            assert_eq!(closed_in(&stored, &calls).0, msg);
        }
    });
    assert!(filled_up.get() > 0, "no data was cut inside a group");
}

#[test]
fn an_empty_reply_closes_with_its_end_alone() {
    let (msg, types) = closed(&Msg::reply("r", ""));
    assert_eq!(types, ["REPLY_END"]);
    assert!(msg.content().is_empty());
}

#[test]
fn the_reason_and_the_error_come_with_the_end() {
    let error = ReplyError {
        r#type: ErrorType::Upstream,
        message: "gone".to_owned(),
        ..ReplyError::default()
    };
    let (reply, calls) = (Msg::reply("r", ""), ModelCalls::default());
    let events = close_reply(&reply, &calls, FinishedReason::Error, Some(error.clone()));
    let EventKind::ReplyEnd(end) = &events.last().unwrap().kind else { panic!() };
    assert_eq!((&end.finished_reason, &end.error), (&FinishedReason::Error, &Some(error)));
}

#[test]
fn pending_and_client_side_calls_are_interrupted() {
    let partial = folded(&[
        r#"{"type":"TOOL_CALL_START","reply_id":"r","tool_call_id":"a","tool_call_name":"buy"}"#,
        r#"{"type":"TOOL_CALL_START","reply_id":"r","tool_call_id":"b","tool_call_name":"open"}"#,
        r#"{"type":"TOOL_CALL_END","reply_id":"r","tool_call_id":"a"}"#,
        r#"{"type":"TOOL_CALL_END","reply_id":"r","tool_call_id":"b"}"#,
        r#"{"type":"REQUIRE_USER_CONFIRM","reply_id":"r","tool_calls":[{"type":"tool_call","id":"a"}]}"#,
        r#"{"type":"REQUIRE_EXTERNAL_EXECUTION","reply_id":"r","tool_calls":[{"type":"tool_call","id":"b"}]}"#,
    ]);
    let (msg, types) = closed(&partial);
    let result = ["TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END"];
    assert_eq!(types, [&result[..], &result[..], &["REPLY_END"]].concat());
    for (call, result) in msg.tool_calls() {
        let result = result.unwrap();
        assert_eq!(call.state, ToolCallState::Finished);
        assert_eq!(
            (result.name.as_str(), result.output.text("")),
            (&*call.name, "interrupted".into())
        );
        assert_eq!(result.state, ToolResultState::Interrupted);
    }
}

#[test]
fn output_that_came_is_kept_as_it_is() {
    let partial = folded(&[
        r#"{"type":"TOOL_CALL_START","reply_id":"r","tool_call_id":"a"}"#,
        r#"{"type":"TOOL_RESULT_START","reply_id":"r","tool_call_id":"a"}"#,
        r#"{"type":"TOOL_RESULT_TEXT_DELTA","reply_id":"r","tool_call_id":"a","delta":"18 °C"}"#,
    ]);
    let (msg, types) = closed(&partial);
    assert_eq!(types, ["TOOL_CALL_END", "TOOL_RESULT_END", "REPLY_END"]);
    assert_eq!(msg.first::<ToolResult>().unwrap().output.text(""), "18 °C");
}

#[test]
fn data_that_breaks_off_inside_a_byte_is_filled_up() {
    for (data, expected) in [
        ("aGVsb", &b"hell"[..]),
        ("a", b"h"),
        ("aGk=a", b"hih"),
        ("aGVsbG", b"hell"),
        ("aGVsbG8", b"hello"),
        ("aGVsbG8=", b"hello"),
        ("aA=", b"h"),
    ] {
        let start = r#"{"type":"DATA_BLOCK_START","reply_id":"r","block_id":"d"}"#;
        let delta = format!(
            r#"{{"type":"DATA_BLOCK_DELTA","reply_id":"r","block_id":"d","data":"{data}"}}"#
        );
        let (msg, _) = closed(&folded(&[start, &delta]));
        let bytes = bytes(msg.first::<DataBlock>().unwrap()).unwrap();
        assert_eq!(bytes, expected, "{data}");
    }
}

#[test]
fn data_inside_a_result_is_filled_up_too() {
    let (msg, _) = closed(&folded(&[
        r#"{"type":"TOOL_RESULT_START","reply_id":"r","tool_call_id":"a"}"#,
        r#"{"type":"TOOL_RESULT_DATA_DELTA","reply_id":"r","tool_call_id":"a","block_id":"x","data":"aGVsb"}"#,
        r#"{"type":"TOOL_RESULT_DATA_DELTA","reply_id":"r","tool_call_id":"a","block_id":"y","data":"aGk"}"#,
        r#"{"type":"TOOL_RESULT_DATA_DELTA","reply_id":"r","tool_call_id":"a","block_id":"z","data":"a"}"#,
    ]));
    let result = msg.first::<ToolResult>().unwrap();
    let Payload::Parts(parts) = &result.output else { panic!() };
    let data: Vec<_> = parts
        .iter()
        .map(|part| match part {
            Part::Data(block) => bytes(block).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(data, [b"hell".to_vec(), b"hi".to_vec(), b"h".to_vec()]);
    assert_eq!(result.state, ToolResultState::Interrupted);
}

#[test]
fn blocks_that_share_an_id_or_have_none_are_no_hindrance() {
    let (msg, types) = closed(&folded(&[
        r#"{"type":"BLOCK","reply_id":"r","block":{"type":"text","text":"one"}}"#,
        r#"{"type":"BLOCK","reply_id":"r","block":{"type":"text","text":"two"}}"#,
        r#"{"type":"BLOCK","reply_id":"r","block":{"type":"tool_call","id":"","name":"x"}}"#,
        r#"{"type":"BLOCK","reply_id":"r","block":{"type":"image","source":{"type":"base64","data":"é==="}}}"#,
        r#"{"type":"TEXT_BLOCK_START","reply_id":"r","block_id":"same"}"#,
        r#"{"type":"THINKING_BLOCK_START","reply_id":"r","block_id":"same"}"#,
    ]));
    assert_eq!(msg.text(" ").as_deref(), Some("one two "));
    let ends = types.iter().filter(|it| it.ends_with("_BLOCK_END")).count();
    assert_eq!(ends, 4, "{types:?}");
}
