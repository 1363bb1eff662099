//! The `agentscope-java` wire: everything that Java wrote survives, and its streams fold to one
//! message per reply.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use turnwire_core::event::{SubAgent, Supersede, TextBlockDelta};
use turnwire_core::{
    ContentBlock, Event, EventKind, FinishedReason, Folder, Msg, Role, Seq, ToolCallState,
    ToolResultState,
};
use turnwire_testkit::check_property;
use turnwire_wires::{DecoderOptions, EncoderOptions, Frames, Wire, agentscope_java};

fn wire() -> &'static Wire {
    Wire::named("agentscope-java").unwrap()
}

/// The lines that Java wrote; none if the fixture is missing.
fn fixture() -> Vec<String> {
    let Some(folder) = turnwire_testkit::fixtures("events and messages that Java wrote") else {
        return Vec::new();
    };
    let text = std::fs::read_to_string(folder.join("agentscope-java.ndjson")).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn decoded(lines: &str) -> Vec<Event<'static>> {
    wire().decoder(&DecoderOptions::default()).unwrap().decode_all(lines.as_bytes()).unwrap()
}

fn encoded(events: &[Event<'_>]) -> Vec<String> {
    let mut encoder = wire().encoder(&EncoderOptions::default()).unwrap();
    let mut frames = Frames::default();
    for event in events {
        encoder.encode(event, &mut frames);
    }
    encoder.end(&mut frames);
    frames.iter().map(|(_, text)| text.to_owned()).collect()
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn values(lines: &[String]) -> Vec<Value> {
    lines.iter().map(|line| value(line)).collect()
}

fn folded(events: &[Event<'_>]) -> Vec<Msg> {
    let mut folder = Folder::default();
    for event in events {
        folder.push(event).unwrap_or_else(|error| panic!("{error}: {}", event.to_json()));
    }
    folder.into_messages().collect()
}

fn is_event(line: &str) -> bool {
    line.starts_with(r#"{"type""#)
}

#[test]
fn every_java_event_survives_on_its_own() {
    for line in fixture().iter().filter(|line| is_event(line)) {
        let events = decoded(line);
        assert_eq!(events.len(), 1, "{line}");
        assert_eq!(values(&encoded(&events)), [value(line)]);
    }
}

#[test]
fn every_java_event_survives_in_its_stream() {
    let lines: Vec<String> = fixture().into_iter().filter(|line| is_event(line)).collect();
    let events = decoded(&lines.join("\n"));
    assert_eq!(values(&encoded(&events)), values(&lines));
}

/// The log stores the canonical form, so it must contain everything.
#[test]
fn every_java_event_survives_in_the_log() {
    let lines: Vec<String> = fixture().into_iter().filter(|line| is_event(line)).collect();
    let stored: Vec<String> = decoded(&lines.join("\n")).iter().map(Event::to_json).collect();
    let events: Vec<Event<'_>> =
        stored.iter().map(|line| Event::from_json(line).unwrap()).collect();
    assert_eq!(values(&encoded(&events)), values(&lines));
}

#[test]
fn every_java_message_survives() {
    for line in fixture().iter().filter(|line| !is_event(line)) {
        let msg = agentscope_java::decode_message(line).unwrap();
        let stored = Msg::from_json(&msg.to_json()).unwrap();
        assert_eq!(value(&agentscope_java::encode_message(&stored)), value(line));
    }
}

#[test]
fn the_fixture_has_only_known_events_except_agent_result() {
    for event in decoded(
        &fixture().iter().filter(|line| is_event(line)).cloned().collect::<Vec<_>>().join("\n"),
    ) {
        let known = event.kind.is_known();
        assert_eq!(known, event.kind.type_name() != "AGENT_RESULT", "{}", event.to_json());
    }
}

/// A reply of a Java agent: two model calls and a batch of tools, each with an id of its own, and a
/// sub-agent's reply in between.
const STEPS: &str = r#"
{"type":"AGENT_START","id":"1","createdAt":"2026-11-15T06:45:37.000000001Z","sessionId":"s","replyId":"r","name":"bot","role":"assistant","type":"AGENT_START"}
{"type":"MODEL_CALL_START","id":"2","createdAt":"2026-11-15T06:45:37.000000002Z","replyId":"m1"}
{"type":"THINKING_BLOCK_START","id":"3","createdAt":"t","replyId":"m1","blockId":"thinking"}
{"type":"THINKING_BLOCK_DELTA","id":"4","createdAt":"t","replyId":"m1","blockId":"thinking","delta":"hm"}
{"type":"TEXT_BLOCK_START","id":"5","createdAt":"t","replyId":"m1","blockId":"text"}
{"type":"TEXT_BLOCK_DELTA","id":"6","createdAt":"t","replyId":"m1","blockId":"text","delta":"Let me "}
{"type":"TEXT_BLOCK_DELTA","id":"7","createdAt":"t","replyId":"m1","blockId":"text","delta":"ask."}
{"type":"THINKING_BLOCK_END","id":"8","createdAt":"t","replyId":"m1","blockId":"thinking"}
{"type":"TEXT_BLOCK_END","id":"9","createdAt":"t","replyId":"m1","blockId":"text"}
{"type":"TOOL_CALL_START","id":"10","createdAt":"t","replyId":"m1","toolCallId":"c","toolCallName":"ask"}
{"type":"TOOL_CALL_DELTA","id":"11","createdAt":"t","replyId":"m1","toolCallId":"c","toolCallName":"ask","delta":"{\"q\":1}"}
{"type":"TOOL_CALL_END","id":"12","createdAt":"t","replyId":"m1","toolCallId":"c","toolCallName":"ask"}
{"type":"MODEL_CALL_END","id":"13","createdAt":"t","replyId":"m1","usage":{"inputTokens":10,"outputTokens":5,"cachedTokens":2,"time":0.5,"totalTokens":15}}
{"type":"TOOL_RESULT_START","id":"14","createdAt":"t","replyId":"t1","toolCallId":"c","toolCallName":"ask"}
{"type":"AGENT_START","id":"15","createdAt":"t","replyId":"sub","name":"helper","role":"assistant","source":"main/helper"}
{"type":"MODEL_CALL_START","id":"16","createdAt":"t","replyId":"sm","source":"main/helper"}
{"type":"TEXT_BLOCK_START","id":"17","createdAt":"t","replyId":"sm","blockId":"text","source":"main/helper"}
{"type":"TEXT_BLOCK_DELTA","id":"18","createdAt":"t","replyId":"sm","blockId":"text","delta":"from below","source":"main/helper","metadata":{"taskId":"t1"}}
{"type":"TEXT_BLOCK_END","id":"19","createdAt":"t","replyId":"sm","blockId":"text","source":"main/helper"}
{"type":"AGENT_END","id":"20","createdAt":"t","replyId":"sub","source":"main/helper"}
{"type":"TOOL_RESULT_TEXT_DELTA","id":"21","createdAt":"t","replyId":"t1","toolCallId":"c","toolCallName":"ask","delta":"yes"}
{"type":"TOOL_RESULT_DATA_DELTA","id":"22","createdAt":"t","replyId":"t1","toolCallId":"c","toolCallName":"ask","data":{"type":"image","source":{"type":"url","url":"http://x/a.png","mime_type":"image/png"}}}
{"type":"TOOL_RESULT_END","id":"23","createdAt":"t","replyId":"t1","toolCallId":"c","toolCallName":"ask","state":"success"}
{"type":"MODEL_CALL_START","id":"24","createdAt":"t","replyId":"m2"}
{"type":"TEXT_BLOCK_START","id":"25","createdAt":"t","replyId":"m2","blockId":"text"}
{"type":"TEXT_BLOCK_DELTA","id":"26","createdAt":"t","replyId":"m2","blockId":"text","delta":"Done."}
{"type":"TEXT_BLOCK_END","id":"27","createdAt":"t","replyId":"m2","blockId":"text"}
{"type":"MODEL_CALL_END","id":"28","createdAt":"t","replyId":"m2"}
{"type":"REQUEST_STOP","id":"29","createdAt":"t","reason":"budget","generateReason":"MIDDLEWARE_STOP_REQUESTED"}
{"type":"AGENT_RESULT","id":"30","createdAt":"t","result":{"id":"x","name":"bot","role":"ASSISTANT","content":[{"type":"text","text":"Done."}],"metadata":{"agentscope_generate_reason":"INTERRUPTED","_structured_output":{"a":1},"k":2},"timestamp":"2026-11-15 06:45:38.002","usage":null}}
{"type":"AGENT_END","id":"31","createdAt":"2026-11-15T06:45:38Z","replyId":"r"}
"#;

#[test]
fn the_steps_of_a_reply_fold_to_one_message() {
    let messages = folded(&decoded(STEPS));
    let ids: Vec<&str> = messages.iter().map(Msg::id).collect();
    assert_eq!(ids, ["r", "sub"]);

    let reply = &messages[0];
    assert_eq!((reply.name(), reply.created_at()), ("bot", "2026-11-15T06:45:37.000000001Z"));
    let blocks: Vec<(&str, &str)> =
        reply.content().iter().map(|block| (block.block_type().as_str(), block.id())).collect();
    assert_eq!(
        blocks,
        [
            ("thinking", "m1:thinking"),
            ("text", "m1:text"),
            ("tool_call", "c"),
            ("tool_result", "c"),
            ("text", "m2:text"),
        ]
    );
    assert_eq!(reply.text("|").as_deref(), Some("Let me ask.|Done."));
    let (call, result) = reply.tool_calls().next().unwrap();
    assert_eq!((call.name.as_str(), call.input.as_str()), ("ask", r#"{"q":1}"#));
    assert_eq!(call.state, ToolCallState::Finished);
    let result = result.unwrap();
    assert_eq!(
        (result.state.clone(), result.output.text("")),
        (ToolResultState::Success, "yes".into())
    );
    let usage = reply.usage().unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_input_tokens), (10, 5, 2));
    assert_eq!(reply.finished_reason(), Some(&FinishedReason::Interrupted));
    assert_eq!(reply.finished_at(), Some("2026-11-15T06:45:38Z"));
    assert_eq!(reply.structured_output().unwrap().text(), r#"{"a":1}"#);
    assert_eq!(reply.metadata().get::<u8>("k").unwrap(), Some(2));

    assert_eq!(messages[1].text("").as_deref(), Some("from below"));
    assert_eq!(messages[1].name(), "helper");
}

#[test]
fn the_steps_of_a_reply_survive() {
    let lines: Vec<String> = STEPS.trim().lines().map(str::to_owned).collect();
    assert_eq!(values(&encoded(&decoded(STEPS))), values(&lines));
}

#[test]
fn every_event_keeps_the_id_of_its_step() {
    for (event, line) in decoded(STEPS).iter().zip(STEPS.trim().lines()) {
        let own = value(line)["replyId"].as_str().unwrap_or("r").to_owned();
        if own != *event.reply_id {
            assert_eq!(value(&event.to_json())["java"]["set"]["replyId"], json!(own));
        }
    }
}

/// The log adds a seq to every event.
#[test]
fn events_with_a_seq_keep_the_ids_of_their_steps() {
    let mut events = decoded(STEPS);
    for (seq, event) in (1..).zip(&mut events) {
        event.seq = Seq::new(seq);
    }
    let lines = encoded(&events);
    let mut bare = values(&lines);
    for line in &mut bare {
        let line = line.as_object_mut().unwrap();
        let metadata = line["metadata"].as_object_mut().unwrap();
        assert!(metadata.shift_remove("turnwire").is_some());
        if metadata.is_empty() {
            line.shift_remove("metadata");
        }
    }
    let java: Vec<Value> = STEPS.trim().lines().map(value).collect();
    assert_eq!(bare, java);
    assert_eq!(decoded(&lines.join("\n")), events);
}

#[test]
fn blocks_of_model_calls_with_one_reply_id_are_separate() {
    let stream = r#"
{"type":"AGENT_START","replyId":"r","role":"assistant"}
{"type":"MODEL_CALL_START","replyId":"r"}
{"type":"TEXT_BLOCK_START","replyId":"r","blockId":"text"}
{"type":"TEXT_BLOCK_DELTA","replyId":"r","blockId":"text","delta":"one"}
{"type":"TEXT_BLOCK_END","replyId":"r","blockId":"text"}
{"type":"MODEL_CALL_START","replyId":"r"}
{"type":"TEXT_BLOCK_START","replyId":"r","blockId":"text"}
{"type":"TEXT_BLOCK_DELTA","replyId":"r","blockId":"text","delta":"two"}
{"type":"TEXT_BLOCK_END","replyId":"r","blockId":"text"}
{"type":"AGENT_END","replyId":"r"}"#;
    let events = decoded(stream);
    let messages = folded(&events);
    assert_eq!(messages[0].text("|").as_deref(), Some("one|two"));
    let lines: Vec<Value> = stream.trim().lines().map(value).collect();
    assert_eq!(values(&encoded(&events)), lines);
}

#[test]
fn a_sub_agents_event_with_the_parents_reply_id_is_separate() {
    let stream = r#"
{"type":"AGENT_START","replyId":"r","role":"assistant"}
{"type":"TEXT_BLOCK_START","replyId":"r","blockId":"b","source":"main/sub"}
{"type":"TEXT_BLOCK_DELTA","replyId":"r","blockId":"b","delta":"below","source":"main/sub"}"#;
    let events = decoded(stream);
    let ids: Vec<String> = folded(&events).iter().map(|msg| msg.id().to_owned()).collect();
    assert_eq!(ids, ["r", "r/main/sub"]);
    let lines: Vec<Value> = stream.trim().lines().map(value).collect();
    assert_eq!(values(&encoded(&events)), lines);
}

#[test]
fn a_decoder_that_starts_inside_a_reply_needs_its_id() {
    let line = br#"{"type":"TEXT_BLOCK_START","replyId":"m2","blockId":"text"}"#;
    let decoding = DecoderOptions { reply_id: Some("r".to_owned()), ..DecoderOptions::default() };
    let events = wire().decoder(&decoding).unwrap().decode_all(line).unwrap();
    assert_eq!(events[0].reply_id, "r");
    let EventKind::TextBlockStart(start) = &events[0].kind else { panic!() };
    assert_eq!(start.block_id, "m2:text");
}

#[test]
fn unknown_java_events_and_fields_survive() {
    for line in [
        r#"{"type":"COMPACTION_START","id":"1","createdAt":"t","replyId":"r","before":{"n":1}}"#,
        r#"{"type":"TOOL_PROGRESS","java":{"x":1},"metadata":{"turnwire":1},"source":"main/a"}"#,
        r#"{"type":"TEXT_BLOCK_DELTA","replyId":"r","blockId":"b","delta":"d","mood":null,"id":7}"#,
        r#"{"type":"AGENT_START","replyId":"r","sessionId":null,"name":"","role":"ROBOT","model":"m"}"#,
        r#"{"type":"MODEL_CALL_END","replyId":"r","usage":{"inputTokens":"many","x":1}}"#,
        r#"{"type":"TOOL_RESULT_DATA_DELTA","replyId":"r","toolCallId":"c","data":{"type":"text","text":"t"}}"#,
        r#"{"type":"CUSTOM","name":"supersede","value":{"type":"SUPERSEDE","message_ids":["m"]},"id":"1"}"#,
        r#"{"type":"REPLY_START","replyId":"r","role":"assistant"}"#,
        r#"{"type":"CUSTOM","name":"n","metadata":[1]}"#,
    ] {
        let events = decoded(line);
        let again = encoded(&events);
        // A custom event with our event is that event.
        if !line.contains("supersede") {
            assert_eq!(values(&again), [value(line)]);
        }
        assert_eq!(decoded(&again[0]), events);
    }
}

#[test]
fn an_invalid_event_is_reported_and_decoding_continues() {
    let body = b"{\"id\":\"m\",\"role\":\"USER\",\"content\":[]}\nnope\n[1]\n{\"type\":\"TEXT_BLOCK_START\",\"replyId\":\"r\"}\n{\"type\":\"AGENT_END\",\"replyId\":\"r\"}\n";
    let mut decoder = wire().decoder(&DecoderOptions::default()).unwrap();
    let mut seen = Vec::new();
    decoder.feed(body, &mut |decoded| {
        seen.push(match decoded.event {
            Ok(event) => event.kind.type_name().to_owned(),
            Err(error) => format!("{} {:?}", error.kind(), decoded.reply_id),
        });
    });
    assert_eq!(
        seen,
        [
            "NotAnEvent None",
            "NotJson None",
            "NotAnEvent None",
            "NotAnEvent Some(\"r\")",
            "REPLY_END"
        ]
    );
}

/// The names, types and words that Jackson reads.
#[test]
fn our_events_are_written_in_javas_form() {
    let mut delta = Event::new("r", TextBlockDelta { block_id: "b".into(), delta: "hi".into() });
    delta.id = "e".into();
    delta.created_at = "2026-11-15T06:45:37Z".into();
    delta.seq = Seq::new(7);
    delta.agent = Some(Box::new(SubAgent {
        agent_path: Some("main/sub".to_owned()),
        parent_tool_call_id: Some("c".to_owned()),
    }));
    assert_eq!(
        values(&encoded(&[delta])),
        [json!({
            "type": "TEXT_BLOCK_DELTA", "id": "e", "createdAt": "2026-11-15T06:45:37Z",
            "replyId": "r", "blockId": "b", "delta": "hi", "source": "main/sub",
            "metadata": {"turnwire": {"set": {"seq": 7, "parent_tool_call_id": "c"}}}
        })]
    );
    let supersede = Event::new("", Supersede { message_ids: vec!["m".to_owned()] });
    assert_eq!(
        values(&encoded(&[supersede])),
        [json!({
            "type": "CUSTOM", "name": "supersede",
            "value": {"metadata": {}, "type": "SUPERSEDE", "message_ids": ["m"]}
        })]
    );
}

#[test]
fn documents_of_version_1_are_read() {
    let call = r#"{"name":"Assistant","role":"ASSISTANT","id":"a1","timestamp":"2024-01-15T10:30:00Z",
        "content":[{"type":"thinking","thinking":"hm"},
            {"type":"tool_use","id":"call_9","name":"get_weather","arguments":{"location":"Oslo"}}]}"#;
    let msg = agentscope_java::decode_message(call).unwrap();
    assert_eq!(msg.created_at(), "2024-01-15T10:30:00Z");
    let [ContentBlock::Thinking(_), ContentBlock::ToolCall(call)] = msg.content() else {
        panic!("{}", msg.to_json())
    };
    assert_eq!(call.input, r#"{"location":"Oslo"}"#);
    let again = value(&agentscope_java::encode_message(&msg));
    assert_eq!(again["timestamp"], "2024-01-15 10:30:00.000");
    assert_eq!(again["content"][1]["input"], json!({"location": "Oslo"}));
    assert_eq!(agentscope_java::decode_message(&again.to_string()).unwrap(), msg);

    for output in [
        r#""result":{"type":"text","text":"Sunny"}"#,
        r#""result":[{"type":"text","text":"Sunny"}]"#,
        r#""output":{"type":"text","text":"Sunny"}"#,
        r#""output":[{"type":"text","text":"Sunny"}]"#,
        r#""output":"Sunny""#,
    ] {
        for id in ["toolUseId", "id"] {
            let text = format!(
                r#"{{"role":"TOOL","name":"system","content":[{{"type":"tool_result","{id}":"call_9",{output}}}]}}"#
            );
            let msg = agentscope_java::decode_message(&text).unwrap();
            assert_eq!(msg.role(), Role::Tool);
            let [ContentBlock::ToolResult(result)] = msg.content() else { panic!("{text}") };
            assert_eq!((result.id.as_str(), result.output.text("")), ("call_9", "Sunny".into()));
            // The current Java version reads only this form.
            let again = value(&agentscope_java::encode_message(&msg));
            assert_eq!(again["content"][0]["id"], "call_9");
            let output = &again["content"][0]["output"];
            assert_eq!(output, &json!([{"type": "text", "text": "Sunny"}]));
        }
    }
}

#[test]
fn times_are_written_in_javas_form_and_survive() {
    for (time, java) in [
        ("2026-11-15T08:22:02.123456Z", "2026-11-15 08:22:02.123"),
        ("2026-11-15T08:22:02", "2026-11-15 08:22:02.000"),
        ("2026-11-15T08:22:02.5+02:00", "2026-11-15 08:22:02.500"),
        ("2026-11-15 08:22:02.763", "2026-11-15 08:22:02.763"),
        ("yesterday", "yesterday"),
    ] {
        let msg = Msg::builder(Role::User).text("hi").created_at(time).build().unwrap();
        let text = agentscope_java::encode_message(&msg);
        assert_eq!(value(&text)["timestamp"], json!(java));
        assert_eq!(agentscope_java::decode_message(&text).unwrap(), msg);
    }
}

#[test]
fn a_generate_reason_and_a_structured_output_are_in_the_metadata() {
    let java = json!({
        "id": "m", "name": "bot", "role": "ASSISTANT", "content": [{"type": "text", "text": "hi"}],
        "metadata": {"agentscope_generate_reason": "MAX_ITERATIONS", "_structured_output": {"a": 1}},
        "timestamp": "2026-11-15 06:45:37.763", "usage": null
    });
    let msg = agentscope_java::decode_message(&java.to_string()).unwrap();
    assert_eq!(msg.finished_reason(), Some(&FinishedReason::ExceedMaxIters));
    assert_eq!(msg.structured_output().unwrap().text(), r#"{"a":1}"#);
    assert_eq!(value(&agentscope_java::encode_message(&msg)), java);

    let ours = Msg::builder(Role::Assistant)
        .text("hi")
        .finished_reason(FinishedReason::Interrupted)
        .structured_output(json!([1]))
        .build()
        .unwrap();
    let java = value(&agentscope_java::encode_message(&ours));
    assert_eq!(java["metadata"]["agentscope_generate_reason"], "INTERRUPTED");
    assert_eq!(java["metadata"]["_structured_output"], json!([1]));
}

#[test]
fn confirm_results_are_in_the_metadata() {
    let java = json!({
        "id": "m", "name": "alice", "role": "USER", "content": [],
        "metadata": {"agentscope_confirm_results": [{
            "confirmed": true,
            "toolCall": {"type": "tool_use", "id": "c", "name": "trade", "input": {"n": 1},
                "content": "{\"n\":1}", "metadata": {}, "state": "asking"},
            "rules": [{"tool_name": "trade", "rule_content": null, "behavior": "allow", "source": "user"}]
        }]},
        "timestamp": "2026-11-15 06:45:37.763", "usage": null
    });
    let msg = agentscope_java::decode_message(&java.to_string()).unwrap();
    let answers = agentscope_java::confirm_results(&msg).unwrap();
    assert_eq!(answers.len(), 1);
    assert!(answers[0].confirmed);
    assert_eq!(answers[0].tool_call.input, r#"{"n":1}"#);
    assert_eq!(answers[0].rules.as_ref().unwrap()[0].tool_name, "trade");

    let bare = Msg::builder(Role::User).id("m").name("alice").created_at(msg.created_at());
    let ours = agentscope_java::with_confirm_results(&bare.build().unwrap(), &answers);
    assert_eq!(value(&agentscope_java::encode_message(&ours)), java);
}

#[test]
fn results_in_tool_messages_join_the_messages_with_their_calls() {
    let history = r#"[
        {"id":"u","role":"USER","content":[{"type":"text","text":"hi"}]},
        {"id":"a","role":"ASSISTANT","content":[
            {"type":"tool_use","id":"c1","name":"f","input":{}},
            {"type":"tool_use","id":"c2","name":"g","input":{}}]},
        {"id":"t1","role":"TOOL","content":[{"type":"tool_result","id":"c2","output":[]}]},
        {"id":"t2","role":"TOOL","content":[
            {"type":"tool_result","id":"c1","output":[]},
            {"type":"tool_result","id":"nobody","output":[]}]},
        {"id":"b","role":"ASSISTANT","content":[{"type":"text","text":"done"}]},
        {"id":"t3","role":"TOOL","content":[{"type":"tool_result","id":"c1","output":[]}]}
    ]"#;
    let messages = wire().decode_messages(history).unwrap();
    let joined = agentscope_java::join_tool_messages(messages);
    let shape: Vec<(&str, Vec<&str>)> = joined
        .iter()
        .map(|msg| (msg.id(), msg.content().iter().map(ContentBlock::id).collect()))
        .collect();
    assert_eq!(
        shape,
        [
            ("u", vec![""]),
            ("a", vec!["c1", "c2", "c2", "c1"]),
            ("t2", vec!["nobody"]),
            ("b", vec![""]),
            ("t3", vec!["c1"]),
        ]
    );
}

/// The patch is relative to what we wrote; later changes by Java win.
#[test]
fn changes_by_java_win_over_the_patch() {
    let msg = Msg::builder(Role::Assistant)
        .id("m")
        .text("old")
        .created_at("2026-11-15T08:22:02Z")
        .build()
        .unwrap()
        .stamped(&turnwire_core::FixedStamp::default());
    let mut java = value(&agentscope_java::encode_message(&msg));
    java["content"][0]["text"] = json!("new");
    java["content"].as_array_mut().unwrap().push(json!({"type": "text", "text": "more"}));
    let again = agentscope_java::decode_message(&java.to_string()).unwrap();
    assert_eq!(again.text("|").as_deref(), Some("new|more"));
}

/// Law 6 over whole streams: encoder and decoder must keep the same state.
#[test]
fn streams_of_many_replies_survive() {
    check_property("streams_of_many_replies_survive", 60, |rng| {
        let (mut events, _) = turnwire_testkit::stream::random_replies(rng);
        for event in &mut events {
            if rng.bool() {
                event.seq = Seq::new(rng.u64(1..99));
            }
            if rng.u8(..4) == 0 {
                event.rest = turnwire_core::Fields::default();
            }
            if rng.u8(..9) == 0 {
                event.agent = Some(Box::new(SubAgent {
                    agent_path: Some("main/sub".to_owned()),
                    parent_tool_call_id: None,
                }));
            }
        }
        assert_eq!(decoded(&encoded(&events).join("\n")), events);
    });
}
