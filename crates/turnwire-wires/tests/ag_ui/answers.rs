//! One encoder that serves several requests.

use crate::{encoder, event, events, input};
use serde_json::{Value, json};
use turnwire_core::{Event, Msg};
use turnwire_wires::ag_ui::HistoryDifference;
use turnwire_wires::ag_ui::RunOptions;
use turnwire_wires::{Encode, EncoderOptions, Frames, Wire};

fn encode_all(encoder: &mut dyn Encode, events: &[Event<'_>]) -> Vec<Value> {
    let mut frames = Frames::default();
    for event in events {
        encoder.encode(event, &mut frames);
    }
    read(&frames)
}

fn read(frames: &Frames) -> Vec<Value> {
    frames.iter().map(|(_, text)| serde_json::from_str(text).unwrap()).collect()
}

fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

fn asking_events() -> Vec<Event<'static>> {
    events(vec![
        json!({"type": "REPLY_START", "name": "friday"}),
        json!({"type": "TOOL_CALL_START", "tool_call_id": "c", "tool_call_name": "trade"}),
        json!({"type": "TOOL_CALL_DELTA", "tool_call_id": "c", "delta": "{}"}),
        json!({"type": "TOOL_CALL_END", "tool_call_id": "c"}),
        json!({"type": "REQUIRE_USER_CONFIRM", "tool_calls": [
            {"type": "tool_call", "id": "c", "name": "trade", "input": "{}"}]}),
    ])
}

#[test]
fn after_a_pause_the_next_request_names_the_run() {
    let mut encoder = encoder(Some("mine"));
    encode_all(&mut *encoder, &asking_events());
    encoder.end(&mut Frames::default());
    let frames = encode_all(
        &mut *encoder,
        &events(vec![
            json!({"type": "USER_CONFIRM_RESULT", "confirm_results": [{"confirmed": true,
                "tool_call": {"type": "tool_call", "id": "c", "name": "trade", "input": "{}"}}]}),
            json!({"type": "TOOL_RESULT_START", "tool_call_id": "c", "tool_call_name": "trade"}),
            json!({"type": "TOOL_RESULT_END", "tool_call_id": "c", "state": "success"}),
            json!({"type": "REPLY_END", "finished_reason": "completed"}),
        ]),
    );
    assert_eq!(types(&frames), ["RUN_STARTED", "TOOL_CALL_RESULT", "RUN_FINISHED"]);
    assert_eq!((&frames[0]["runId"], &frames[2]["runId"]), (&json!("mine"), &json!("mine")));
}

#[test]
fn unanswered_approvals_are_interrupts_again_at_the_end() {
    let mut encoder = encoder(Some("mine"));
    let mut both = asking_events();
    let two = json!([
        {"type": "tool_call", "id": "c", "name": "trade", "input": "{}"},
        {"type": "tool_call", "id": "d", "name": "mail", "input": "{}"}]);
    both.pop();
    both.push(event(json!({"type": "REQUIRE_USER_CONFIRM", "tool_calls": two})));
    encode_all(&mut *encoder, &both);
    encoder.end(&mut Frames::default());
    let answer = json!({"type": "USER_CONFIRM_RESULT", "confirm_results": [{"confirmed": true,
        "tool_call": {"type": "tool_call", "id": "c", "name": "trade", "input": "{}"}}]});
    encode_all(&mut *encoder, &events(vec![answer]));
    let mut frames = Frames::default();
    encoder.end(&mut frames);
    let frames = read(&frames);
    assert_eq!(types(&frames), ["RUN_FINISHED"]);
    let interrupts = frames[0]["outcome"]["interrupts"].as_array().unwrap();
    assert_eq!(interrupts.iter().map(|ask| &ask["id"]).collect::<Vec<_>>(), ["d"]);
}

fn conversation() -> Vec<Msg> {
    let read = |value: Value| Msg::from_json(&value.to_string()).unwrap();
    vec![
        read(json!({"id": "u1", "role": "user", "name": "ann", "content": "hi",
            "metadata": {"client": {"instructions": "on the moon"}}})),
        read(json!({"id": "r1", "role": "assistant", "name": "friday", "content": [
            {"type": "thinking", "id": "h", "thinking": "Hm."},
            {"type": "tool_call", "id": "c", "name": "trade", "input": "{}", "state": "finished"},
            {"type": "tool_result", "id": "c", "name": "trade", "output": "sold", "state": "success"},
            {"type": "text", "id": "x", "text": "Done."}]})),
        read(json!({"id": "u2", "role": "user", "name": "ann", "content": "and?"})),
    ]
}

#[test]
fn after_a_user_message_without_a_reply_the_run_waits_for_the_reply_or_the_end() {
    let coming = || {
        let mut encoder = encoder(Some("mine"));
        let mut frames = Frames::default();
        encoder.resume(&conversation(), &mut frames);
        assert_eq!(types(&read(&frames)), ["RUN_STARTED", "MESSAGES_SNAPSHOT"]);
        encoder
    };
    let mut ended = Frames::default();
    coming().end(&mut ended);
    let ended = read(&ended);
    assert_eq!(types(&ended), ["RUN_FINISHED"]);
    assert_eq!(ended[0]["outcome"]["type"], "success");

    let answered = encode_all(
        &mut *coming(),
        &events(vec![
            json!({"type": "REPLY_START", "name": "friday"}),
            json!({"type": "TEXT_BLOCK_START", "block_id": "b"}),
            json!({"type": "TEXT_BLOCK_END", "block_id": "b"}),
            json!({"type": "REPLY_END", "finished_reason": "completed"}),
        ]),
    );
    assert_eq!(types(&answered), ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_FINISHED"]);
    assert_eq!(answered[2]["runId"], "mine");
}

#[test]
fn a_client_with_gaps_is_cleared_first() {
    let run = RunOptions {
        run_id: Some("mine".to_owned()),
        resets_client: true,
        ..RunOptions::default()
    };
    let encoding = EncoderOptions::default().with(run);
    let mut encoder = Wire::named("ag-ui").unwrap().encoder(&encoding).unwrap();
    let mut frames = Frames::default();
    encoder.resume(&conversation(), &mut frames);
    let frames = read(&frames);
    assert_eq!(types(&frames), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "MESSAGES_SNAPSHOT"]);
    let ids = |frame: &Value| -> Vec<String> {
        let messages = frame["messages"].as_array().unwrap();
        messages.iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect()
    };
    // The client drops reasoning only if the snapshot has some.
    assert_eq!(ids(&frames[1]), ["u1", "h"]);
    assert_eq!(ids(&frames[2]), ["u1", "h", "c", "c-result", "x", "u2"]);
}

#[test]
fn client_context_is_not_sent_to_other_clients() {
    let mut frames = Frames::default();
    encoder(Some("mine")).resume(&conversation(), &mut frames);
    assert!(!frames.iter().any(|(_, text)| text.contains("on the moon")));
}

#[test]
fn a_client_is_compared_with_the_conversation() {
    let call = json!([{"id": "c", "type": "function",
        "function": {"name": "trade", "arguments": "{}"}, "metadata": {"any": 1}}]);
    let all = [
        json!({"id": "u1", "role": "user", "content": [{"type": "text", "text": "hi"}]}),
        json!({"id": "c", "role": "assistant", "toolCalls": call}),
        json!({"id": "c-result", "role": "tool", "toolCallId": "c", "content": "sold"}),
        json!({"id": "x", "role": "assistant", "content": "Done."}),
        json!({"id": "u2", "role": "user", "content": "and?"}),
    ];
    let compare = |messages: &[Value]| {
        let input = input(&json!({"threadId": "t", "runId": "n", "messages": messages}));
        input.compare(&conversation())
    };
    assert_eq!(compare(&all), HistoryDifference::None, "reasoning does not count");
    assert_eq!(compare(&all[..2]), HistoryDifference::Behind);
    assert_eq!(compare(&[]), HistoryDifference::Behind);
    assert_eq!(compare(&[all[0].clone(), all[4].clone()]), HistoryDifference::Gaps);
    let changed = |at: usize, key: &str, value: Value| {
        let mut messages = all[..=at].to_vec();
        messages[at][key] = value;
        compare(&messages)
    };
    assert_eq!(changed(3, "content", json!("Do")), HistoryDifference::Behind, "half of it");
    assert_eq!(changed(2, "content", json!("so")), HistoryDifference::Behind);
    assert_eq!(changed(1, "toolCalls", json!([])), HistoryDifference::Behind);
    assert_eq!(changed(3, "role", json!("user")), HistoryDifference::Behind);
    let mut own = all.to_vec();
    own.insert(0, json!({"id": "s", "role": "system", "content": "Obey."}));
    assert_eq!(compare(&own), HistoryDifference::None, "what is the client's alone does not count");
}
