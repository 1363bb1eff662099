//! Builds events and encoders.

use serde_json::{Value, json};
use turnwire_core::{Event, Seq};
use turnwire_wires::blocks::DisplayMode;
use turnwire_wires::{Encode, EncoderOptions, Frames, Wire};

/// The events of these values: of the reply `m1`, ten milliseconds apart, with seqs.
pub fn events(values: impl IntoIterator<Item = Value>) -> Vec<Event<'static>> {
    let numbered = (1..).zip(values).map(|(seq, mut value)| {
        let fields = value.as_object_mut().unwrap();
        if fields["type"] != "MESSAGE" && fields["type"] != "CUSTOM" {
            fields.entry("reply_id").or_insert("m1".into());
        }
        fields.entry("id").or_insert(format!("e{seq}").into());
        let at = format!("2024-03-09T16:00:{:02}.{:02}0Z", seq / 100, seq % 100);
        fields.entry("created_at").or_insert(at.into());
        let mut event = Event::from_json(&value.to_string()).unwrap().into_owned();
        event.seq = Seq::new(seq);
        event
    });
    numbered.collect()
}

pub fn start() -> Vec<Value> {
    vec![json!({"type": "REPLY_START", "session_id": "abc-123", "name": ""})]
}

pub fn model() -> Vec<Value> {
    vec![json!({"type": "MODEL_CALL_START", "model_name": "m"})]
}

pub fn model_end() -> Vec<Value> {
    vec![json!({"type": "MODEL_CALL_END"})]
}

pub fn end(reason: &str) -> Vec<Value> {
    vec![json!({"type": "REPLY_END", "finished_reason": reason})]
}

pub fn text(id: &str, pieces: &[&str]) -> Vec<Value> {
    block("TEXT_BLOCK", id, pieces)
}

pub fn thinking(id: &str, pieces: &[&str]) -> Vec<Value> {
    block("THINKING_BLOCK", id, pieces)
}

fn block(word: &str, id: &str, pieces: &[&str]) -> Vec<Value> {
    let mut values = vec![json!({"type": format!("{word}_START"), "block_id": id})];
    for piece in pieces {
        values.push(json!({"type": format!("{word}_DELTA"), "block_id": id, "delta": piece}));
    }
    values.push(json!({"type": format!("{word}_END"), "block_id": id}));
    values
}

pub fn call(id: &str, name: &str, pieces: &[&str]) -> Vec<Value> {
    let mut values =
        vec![json!({"type": "TOOL_CALL_START", "tool_call_id": id, "tool_call_name": name})];
    for piece in pieces {
        values.push(json!({"type": "TOOL_CALL_DELTA", "tool_call_id": id, "delta": piece}));
    }
    values.push(json!({"type": "TOOL_CALL_END", "tool_call_id": id}));
    values
}

pub fn result(id: &str, name: &str, pieces: &[&str], state: &str) -> Vec<Value> {
    let mut values =
        vec![json!({"type": "TOOL_RESULT_START", "tool_call_id": id, "tool_call_name": name})];
    for piece in pieces {
        values.push(json!({"type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": id, "delta": piece}));
    }
    values.push(json!({"type": "TOOL_RESULT_END", "tool_call_id": id, "state": state}));
    values
}

pub fn ask(id: &str, name: &str, input: &str) -> Vec<Value> {
    vec![
        json!({"type": "REQUIRE_USER_CONFIRM", "tool_calls": [{"id": id, "name": name, "input": input}]}),
    ]
}

pub fn answer(id: &str, confirmed: bool, input: &str) -> Vec<Value> {
    let call = json!({"id": id, "name": "execute_trade", "input": input});
    vec![
        json!({"type": "USER_CONFIRM_RESULT", "confirm_results": [{"confirmed": confirmed, "tool_call": call}]}),
    ]
}

/// The same values as a sub-agent's.
pub fn of_subagent(name: &str, parent: &str, values: Vec<Value>) -> Vec<Value> {
    let mark = |mut value: Value| {
        let fields = value.as_object_mut().unwrap();
        fields.insert("reply_id".to_owned(), format!("sub-{name}").into());
        fields.insert("agent_path".to_owned(), format!("main/{name}").into());
        fields.insert("parent_tool_call_id".to_owned(), parent.into());
        value
    };
    values.into_iter().map(mark).collect()
}

pub fn encoder(display_mode: DisplayMode) -> Box<dyn Encode> {
    let wire = Wire::named("blocks").unwrap();
    wire.encoder(&EncoderOptions::default().with(display_mode)).unwrap()
}

/// The frames of each event.
pub fn frames_of(encoder: &mut dyn Encode, events: &[Event<'_>]) -> Vec<Vec<String>> {
    let mut each = Vec::new();
    for event in events {
        let mut frames = Frames::default();
        encoder.encode(event, &mut frames);
        each.push(frames.iter().map(|(_, text)| text.to_owned()).collect());
    }
    each
}

/// All frames of a turn in the display mode `agent`.
pub fn frames(events: &[Event<'_>]) -> Vec<String> {
    frames_of(&mut *encoder(DisplayMode::Agent), events).concat()
}

/// A turn with every kind of event.
pub fn full_turn() -> Vec<Event<'static>> {
    let file =
        |value: Value| vec![json!({"type": "CUSTOM", "name": "file_processing", "value": value})];
    let mut last = end("error");
    last[0]["error"] = json!({"type": "rate_limit", "message": "slow down"});
    events(
        [
            start(),
            file(json!({"status": "processing", "files": [{"url": "https://example.com/a"}]})),
            file(json!({"status": "completed", "message": "1"})),
            model(),
            thinking("b1", &["hm", "m"]),
            text("b2", &["One ", "moment."]),
            call("t", "execute_trade", &["{\"quantity\":", "100}"]),
            model_end(),
            ask("t", "execute_trade", "{\"quantity\":100}"),
            answer("t", true, "{\"quantity\":10}"),
            start(),
            of_subagent(
                "broker",
                "t",
                [start(), text("b", &["Selling."]), end("completed")].concat(),
            ),
            result("t", "execute_trade", &["sold"], "success"),
            vec![json!({"type": "BLOCK", "block": {"type": "x_map", "id": "x", "at": [1, 2]}})],
            vec![json!({"type": "BLOCK", "block": {"type": "tool_use", "id": "y", "at": [1, 2]}})],
            text("b3", &["Done."]),
            last,
        ]
        .concat(),
    )
}
