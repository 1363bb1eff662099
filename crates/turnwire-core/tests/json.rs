//! Pins the JSON byte by byte: other programs read it.

#![expect(clippy::panic, reason = "a test that cannot go on has failed")]

use turnwire_core::{ErrorKind, Event, EventKind, Folder, Msg};

/// Reads an event and checks that it is written back as the same bytes.
fn same_event(line: &str) {
    let event = Event::from_json(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(event.kind.is_known(), "{line}");
    assert_eq!(event.to_json(), line);
    assert_eq!(event.into_owned().to_json(), line);
}

/// One line per type, as AgentScope 2.0.10 writes it, with short ids.
const THEIRS: &[&str] = &[
    r#"{"id":"e","created_at":"2026-11-15T08:22:02.482398","metadata":{},"type":"REPLY_START","session_id":"s","reply_id":"r","name":"n","role":"assistant"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"REPLY_END","session_id":"s","reply_id":"r","finished_reason":"completed","error":null}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"REPLY_END","session_id":"s","reply_id":"r","finished_reason":"error","error":{"type":"upstream","message":"m"}}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"MODEL_CALL_START","reply_id":"r","model_name":"m"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"MODEL_CALL_END","reply_id":"r","input_tokens":1,"output_tokens":2,"cache_input_tokens":0,"cache_creation_input_tokens":0,"finished_reason":"completed"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"hé\n"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"TEXT_BLOCK_END","reply_id":"r","block_id":"b","text":null}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"THINKING_BLOCK_START","reply_id":"r","block_id":"b"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"THINKING_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"d"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"THINKING_BLOCK_END","reply_id":"r","block_id":"b"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"DATA_BLOCK_START","reply_id":"r","block_id":"b","media_type":"image/png","name":null}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"DATA_BLOCK_DELTA","reply_id":"r","block_id":"b","media_type":"image/png","data":"aGk=","url":null}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"DATA_BLOCK_DELTA","reply_id":"r","block_id":"b","media_type":"image/png","data":null,"url":"https://example.com/"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"DATA_BLOCK_END","reply_id":"r","block_id":"b"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"HINT_BLOCK","reply_id":"r","block_id":"b","source":null,"hint":"h"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"HINT_BLOCK","reply_id":"r","block_id":"b","source":"alice","hint":[{"type":"text","text":"x","id":"q","created_at":"t","finished_at":null}]}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"TOOL_CALL_START","reply_id":"r","tool_call_id":"c","tool_call_name":"f"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"TOOL_CALL_DELTA","reply_id":"r","tool_call_id":"c","delta":"{"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"TOOL_CALL_END","reply_id":"r","tool_call_id":"c"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"TOOL_RESULT_START","reply_id":"r","tool_call_id":"c","tool_call_name":"f"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"TOOL_RESULT_TEXT_DELTA","reply_id":"r","tool_call_id":"c","delta":"d"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"TOOL_RESULT_DATA_DELTA","reply_id":"r","tool_call_id":"c","block_id":"b","media_type":"x","data":"aGk=","url":null}"#,
    r#"{"id":"e","created_at":"t","metadata":{"k":1},"type":"TOOL_RESULT_END","reply_id":"r","tool_call_id":"c","state":"success"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"EXCEED_MAX_ITERS","reply_id":"r","name":"n"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"REQUIRE_USER_CONFIRM","reply_id":"r","tool_calls":[{"type":"tool_call","id":"c","name":"f","input":"{}","state":"pending","suggested_rules":[{"tool_name":"f","rule_content":null,"behavior":"allow","source":"u"}],"created_at":"t","finished_at":null}]}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"REQUIRE_EXTERNAL_EXECUTION","reply_id":"r","tool_calls":[]}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"USER_CONFIRM_RESULT","reply_id":"r","confirm_results":[{"confirmed":true,"tool_call":{"type":"tool_call","id":"c","name":"f","input":"{}","state":"pending","suggested_rules":[],"created_at":"t","finished_at":null},"rules":null}]}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"USER_INTERRUPT","reply_id":"r"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"EXTERNAL_EXECUTION_RESULT","reply_id":"r","execution_results":[{"type":"tool_result","id":"c","name":"f","output":"ok","state":"success","metadata":{},"created_at":"t","finished_at":null}]}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"CUSTOM","name":"x","value":{}}"#,
];

/// Our own events and fields, and those of AgentScope for Java.
const OURS: &[&str] = &[
    r#"{"id":"e","created_at":"t","metadata":{},"type":"REPLY_END","session_id":"s","reply_id":"r","finished_reason":"completed","error":null,"structured_output":{"a":1.10},"message_metadata":{"k":[1]},"seq":9}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"MODEL_CALL_END","reply_id":"r","input_tokens":0,"output_tokens":0,"cache_input_tokens":0,"cache_creation_input_tokens":0,"finished_reason":"interrupted","discard":["b"]}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"THINKING_BLOCK_END","reply_id":"r","block_id":"b","extra":{"signature":"s"}}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"d","seq":7,"seq_from":3,"agent_path":"main/sub","parent_tool_call_id":"c","x_new":[null]}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"BLOCK","reply_id":"r","block":{"type":"x_kind","deep":{}}}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"MESSAGE","message":{"name":"a","content":[],"role":"user","id":"m","metadata":{},"created_at":"t","usage":null,"finished_at":null,"finished_reason":null,"structured_output":null,"error":null}}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"SUPERSEDE","message_ids":["m"]}"#,
    r#"{"metadata":{},"type":"RESET","epoch":"x","reason":"trimmed"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"REQUEST_STOP","reason":"budget","generate_reason":"MIDDLEWARE_STOP_REQUESTED"}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"ALL_TOOLS_DENIED","denied_tool_calls":[]}"#,
    r#"{"id":"e","created_at":"t","metadata":{},"type":"SUBAGENT_EXPOSED","session_id":"s","subagent_id":"sub","agent_id":"a","label":"l"}"#,
];

#[test]
fn events_have_these_bytes() {
    for line in THEIRS.iter().chain(OURS) {
        same_event(line);
    }
}

#[test]
fn every_type_of_event_is_pinned() {
    for word in EventKind::TYPES {
        let key = format!(r#""type":"{word}""#);
        assert!(THEIRS.iter().chain(OURS).any(|line| line.contains(&key)), "{word} is not");
    }
}

#[test]
fn a_message_has_these_bytes() {
    let line = concat!(
        r#"{"name":"f","content":[{"type":"text","text":"hé","id":"a","created_at":"t","finished_at":null},"#,
        r#"{"type":"thinking","thinking":"x","id":"b","created_at":"t","finished_at":null,"signature":"s"},"#,
        r#"{"type":"data","id":"d","source":{"type":"url","url":"https://example.com/","media_type":"image/png"},"name":null,"created_at":"t","finished_at":null},"#,
        r#"{"type":"data","id":"d2","source":{"type":"base64","data":"aGk=","media_type":"image/png"},"name":"a.png","created_at":"t","finished_at":"t"},"#,
        r#"{"type":"hint","hint":[{"type":"text","text":"x","id":"q","created_at":"t","finished_at":null}],"id":"h","source":null,"created_at":"t","finished_at":"t"},"#,
        r#"{"type":"tool_call","id":"c","name":"n","input":"{}","state":"pending","suggested_rules":[{"tool_name":"x","rule_content":null,"behavior":"allow","source":"u"}],"created_at":"t","finished_at":null},"#,
        r#"{"type":"tool_result","id":"c","name":"n","output":[],"state":"running","metadata":{},"created_at":"t","finished_at":null},"#,
        r#"{"type":"image","source":{"type":"url","url":"file:///a.png"},"minPixels":1},"#,
        r#"{"type":"x_kind","anything":[1.0,1e5]}],"#,
        r#""role":"assistant","id":"i","metadata":{"z":1,"a":[12345678901234567890]},"created_at":"2026-11-15 06:45:37.763","#,
        r#""usage":{"input_tokens":1,"output_tokens":2,"cache_input_tokens":0,"cache_creation_input_tokens":0},"#,
        r#""finished_at":null,"finished_reason":null,"structured_output":null,"error":null,"x_new":{"a":1}}"#,
    );
    assert_eq!(Msg::from_json(line).unwrap().to_json(), line);
}

#[test]
fn a_stream_folds_to_these_bytes() {
    let mut folder = Folder::default();
    for line in [
        r#"{"id":"1","created_at":"t1","type":"REPLY_START","reply_id":"r","name":"friday","role":"assistant"}"#,
        r#"{"id":"2","created_at":"t2","type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#,
        r#"{"id":"3","created_at":"t3","type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"Hello"}"#,
        r#"{"id":"4","created_at":"t4","type":"TEXT_BLOCK_END","reply_id":"r","block_id":"b","extra":{"phase":"final"}}"#,
        r#"{"id":"5","created_at":"t5","type":"TOOL_CALL_START","reply_id":"r","tool_call_id":"c","tool_call_name":"f"}"#,
        r#"{"id":"6","created_at":"t6","type":"TOOL_RESULT_START","reply_id":"r","tool_call_id":"c","tool_call_name":"f"}"#,
        r#"{"id":"7","created_at":"t7","type":"TOOL_RESULT_TEXT_DELTA","reply_id":"r","tool_call_id":"c","delta":"sun"}"#,
        r#"{"id":"8","created_at":"t8","type":"TOOL_RESULT_END","reply_id":"r","tool_call_id":"c","state":"success"}"#,
        r#"{"id":"9","created_at":"t9","type":"REPLY_END","reply_id":"r","structured_output":{"ok":true}}"#,
    ] {
        folder.push(&Event::from_json(line).unwrap()).unwrap();
    }
    assert_eq!(
        folder.get("r").unwrap().to_json(),
        concat!(
            r#"{"name":"friday","content":[{"type":"text","text":"Hello","id":"b","created_at":"t2","finished_at":"t4","phase":"final"},"#,
            r#"{"type":"tool_call","id":"c","name":"f","input":"","state":"finished","suggested_rules":[],"created_at":"t5","finished_at":null},"#,
            r#"{"type":"tool_result","id":"c","name":"f","output":[{"type":"text","text":"sun","id":"c-0","created_at":"t7","finished_at":null}],"state":"success","metadata":{},"created_at":"t6","finished_at":"t8"}],"#,
            r#""role":"assistant","id":"r","metadata":{},"created_at":"t1","usage":null,"finished_at":"t9","finished_reason":"completed","structured_output":{"ok":true},"error":null}"#,
        )
    );
}

#[test]
fn the_last_value_of_a_repeated_key_counts() {
    let line = r#"{"type":"USER_INTERRUPT","reply_id":"r","x":1,"x":2,"type":"USER_INTERRUPT"}"#;
    let event = Event::from_json(line).unwrap();
    assert_eq!(event.rest.get::<u8>("x").unwrap(), Some(2));
    let number = r#"{"type":"X","type":7,"reply_id":"r"}"#;
    assert_eq!(Event::from_json(number).unwrap_err().kind(), ErrorKind::NotAnEvent);
}

#[test]
fn a_reply_end_may_have_an_empty_reply_id() {
    let line = r#"{"id":"e","metadata":{},"type":"REPLY_END","session_id":"s","reply_id":"","finished_reason":"error","error":{"type":"internal","message":"Session no longer exists."}}"#;
    same_event(line);
    let event = Event::from_json(line).unwrap();
    assert_eq!(Folder::default().push(&event).unwrap(), turnwire_core::Outcome::Ignored);
}

#[test]
fn the_fast_and_the_slow_reader_read_unknown_fields_alike() {
    // An escaped key, or a common field that is not a string, needs the slow reader.
    let fast = Event::from_json(r#"{"type":"X","delta":"\u00e9\n"}"#).unwrap();
    let slow = Event::from_json(r#"{"\u0074ype":"X","delta":"\u00e9\n"}"#).unwrap();
    assert_eq!(fast, slow);
    assert_eq!(Event::from_json(&slow.to_json()).unwrap(), slow);
}

#[test]
fn line_breaks_inside_a_field_are_removed() {
    let event = Event::from_json("{\"type\":\"X\",\n\"deep\": {\n\"a\": \"b c\" }}").unwrap();
    assert_eq!(event.to_json(), r#"{"type":"X","deep":{"a":"b c"}}"#);
}

#[test]
fn the_error_states_why_json_is_not_an_event() {
    for (line, expected) in [
        ("", "NotJson: EOF while parsing a value at line 1 column 0"),
        ("{\"type\":", "NotJson: EOF while parsing a value at line 1 column 8"),
        ("nonsense", "NotJson: expected ident at line 1 column 2"),
        ("[1]", "NotAnEvent: invalid type: sequence, expected an object"),
        ("{}", "NotAnEvent: `type` is missing"),
        (r#"{"role":"user","content":[]}"#, "NotAnEvent: this is a message, not an event"),
        (r#"{"type":"USER_INTERRUPT"}"#, "NotAnEvent: USER_INTERRUPT has no `reply_id`"),
        (
            r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":7}"#,
            "NotAnEvent: delta: invalid type: integer `7`, expected a string",
        ),
        (
            r#"{"type":"DATA_BLOCK_DELTA","reply_id":"r","block_id":"b","data":"a","url":"b"}"#,
            "NotAnEvent: both `data` and `url`; only one of them is allowed",
        ),
        (
            r#"{"type":"DATA_BLOCK_DELTA","reply_id":"r","block_id":"b"}"#,
            "NotAnEvent: DATA_BLOCK_DELTA has no `data` or `url`",
        ),
        (
            r#"{"type":"USER_INTERRUPT","reply_id":"r","seq":0}"#,
            "NotAnEvent: seq: a seq counts from 1, so it cannot be 0",
        ),
        (
            r#"{"type":"REPLY_START","reply_id":"r","role":"boss"}"#,
            "NotAnEvent: role: unknown role `boss`; expected user, assistant, system or tool",
        ),
        (
            r#"{"type":"HINT_BLOCK","reply_id":"r","block_id":"h","hint":[{"type":"text"}]}"#,
            "NotAnEvent: hint: [0]: `text` is missing",
        ),
        (
            r#"{"type":"USER_CONFIRM_RESULT","reply_id":"r","confirm_results":[{"confirmed":true}]}"#,
            "NotAnEvent: confirm_results[0]: `tool_call` is missing",
        ),
        (
            r#"{"type":"TEXT_BLOCK_START","reply_id":"","block_id":"b"}"#,
            "NotAnEvent: TEXT_BLOCK_START has no `reply_id`",
        ),
        (
            r#"{"type":"MESSAGE","message":{"role":"tool","content":"x"}}"#,
            "WrongRole: message.content[0]: a tool message cannot contain the text block; it can contain only tool results",
        ),
    ] {
        assert_eq!(Event::from_json(line).unwrap_err().to_string(), expected, "{line}");
    }
}

#[test]
fn the_error_states_where_json_is_not_a_message() {
    for (line, expected) in [
        (r#"{"role":"user"}"#, "NotAMessage: `content` is missing"),
        (r#"{"content":"hi"}"#, "NotAMessage: `role` is missing"),
        (
            r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"data","source":{"type":"base64"}}]}"#,
            "NotAMessage: content[1].source: `data` is missing",
        ),
        (
            r#"{"role":"system","content":[{"type":"text","text":"a"},{"type":"data","source":{"type":"url","url":"x"}}]}"#,
            "WrongRole: content[1]: a system message cannot contain the data block; it can contain only text",
        ),
        (
            r#"{"role":"tool","content":"sunny"}"#,
            "WrongRole: content[0]: a tool message cannot contain the text block; it can contain only tool results",
        ),
    ] {
        assert_eq!(Msg::from_json(line).unwrap_err().to_string(), expected, "{line}");
    }
}

#[test]
fn deep_json_does_not_overflow_the_stack() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    let event = format!(r#"{{"type":"CUSTOM","name":"x","value":{deep},"y":{deep}}}"#);
    let read = Event::from_json(&event).unwrap();
    assert!(read.to_json().contains(&deep));
    let nested =
        r#"{"type":"tool_result","id":"c","output":["#.repeat(50_000) + &"]}".repeat(50_000);
    let event = format!(r#"{{"type":"BLOCK","reply_id":"r","block":{nested}}}"#);
    let read = Event::from_json(&event).unwrap();
    assert!(read.to_json().len() > nested.len());
}
