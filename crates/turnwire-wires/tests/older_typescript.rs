//! Recordings of AgentScope's older TypeScript fold on both wires that read the current names.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use turnwire_core::{ContentBlock, Event, FinishedReason, Folder, Msg, ToolCallState};
use turnwire_wires::{DecoderOptions, Wire};

fn both() -> [&'static Wire; 2] {
    ["turnwire", "agentscope"].map(|name| Wire::named(name).unwrap())
}

fn decoded(wire: &Wire, lines: &str) -> Vec<Event<'static>> {
    wire.decoder(&DecoderOptions::default()).unwrap().decode_all(lines.as_bytes()).unwrap()
}

const RECORDING: &str = r#"
{"id":"1","createdAt":"2026-01-01T00:00:01Z","type":"RUN_STARTED","sessionId":"","replyId":"r","name":"friday","role":"assistant"}
{"id":"2","createdAt":"2026-01-01T00:00:02Z","type":"MODEL_CALL_STARTED","replyId":"r","modelName":"m"}
{"id":"3","createdAt":"2026-01-01T00:00:03Z","type":"THINKING_BLOCK_START","replyId":"r","blockId":"k"}
{"id":"4","createdAt":"2026-01-01T00:00:04Z","type":"THINKING_BLOCK_DELTA","replyId":"r","blockId":"k","delta":"hm"}
{"id":"5","createdAt":"2026-01-01T00:00:05Z","type":"THINKING_BLOCK_END","replyId":"r","blockId":"k"}
{"id":"6","createdAt":"2026-01-01T00:00:06Z","type":"BINARY_BLOCK_START","replyId":"r","blockId":"d","mediaType":"image/png"}
{"id":"7","createdAt":"2026-01-01T00:00:07Z","type":"BINARY_BLOCK_DELTA","replyId":"r","blockId":"d","data":"aGk=","mediaType":"image/png"}
{"id":"8","createdAt":"2026-01-01T00:00:08Z","type":"BINARY_BLOCK_END","replyId":"r","blockId":"d"}
{"id":"9","createdAt":"2026-01-01T00:00:09Z","type":"TOOL_CALL_START","replyId":"r","toolCallId":"c","toolCallName":"trade"}
{"id":"10","createdAt":"2026-01-01T00:00:10Z","type":"TOOL_CALL_DELTA","replyId":"r","toolCallId":"c","delta":"{\"n\":1}"}
{"id":"11","createdAt":"2026-01-01T00:00:11Z","type":"TOOL_CALL_END","replyId":"r","toolCallId":"c"}
{"id":"12","createdAt":"2026-01-01T00:00:12Z","type":"MODEL_CALL_ENDED","replyId":"r","inputTokens":7,"outputTokens":3}
{"id":"13","createdAt":"2026-01-01T00:00:13Z","type":"REQUIRE_USER_CONFIRM","replyId":"r","toolCalls":[{"type":"tool_call","id":"c","name":"trade","input":"{\"n\":1}","awaitUserConfirmation":true}]}
{"id":"14","createdAt":"2026-01-01T00:00:14Z","type":"USER_CONFIRM_RESULT","replyId":"r","confirmResults":[{"confirmed":true,"toolCall":{"type":"tool_call","id":"c","name":"trade","input":"{\"n\":2}"}}]}
{"id":"15","createdAt":"2026-01-01T00:00:15Z","type":"TOOL_RESULT_START","replyId":"r","toolCallId":"c","toolCallName":"trade"}
{"id":"16","createdAt":"2026-01-01T00:00:16Z","type":"TOOL_RESULT_TEXT_DELTA","replyId":"r","toolCallId":"c","delta":"ok"}
{"id":"17","createdAt":"2026-01-01T00:00:17Z","type":"TOOL_RESULT_BINARY_DELTA","replyId":"r","toolCallId":"c","mediaType":"image/png","url":"http://x/a.png"}
{"id":"18","createdAt":"2026-01-01T00:00:18Z","type":"TOOL_RESULT_END","replyId":"r","toolCallId":"c","state":"success"}
{"id":"19","createdAt":"2026-01-01T00:00:19Z","type":"REQUIRE_EXTERNAL_EXECUTION","replyId":"r","toolCalls":[]}
{"id":"20","createdAt":"2026-01-01T00:00:20Z","type":"EXTERNAL_EXECUTION_RESULT","replyId":"r","executionResults":[{"type":"tool_result","id":"x","name":"f","output":[{"type":"data","id":"p","source":{"type":"base64","data":"aGk=","mediaType":"image/png"}}],"state":"success"}]}
{"id":"21","createdAt":"2026-01-01T00:00:21Z","type":"TEXT_BLOCK_START","replyId":"r","blockId":"t"}
{"id":"22","createdAt":"2026-01-01T00:00:22Z","type":"TEXT_BLOCK_DELTA","replyId":"r","blockId":"t","delta":"Done."}
{"id":"23","createdAt":"2026-01-01T00:00:23Z","type":"TEXT_BLOCK_END","replyId":"r","blockId":"t"}
{"id":"24","createdAt":"2026-01-01T00:00:24Z","type":"EXCEED_MAX_ITERS","replyId":"r","agentId":"a","name":"friday"}
{"id":"25","createdAt":"2026-01-01T00:00:25Z","type":"RUN_FINISHED","sessionId":"","replyId":"r"}
"#;

/// The same events with the current names.
fn todays() -> String {
    let mut text = RECORDING.to_owned();
    for (older, today) in [
        ("RUN_STARTED", "REPLY_START"),
        ("RUN_FINISHED", "REPLY_END"),
        ("MODEL_CALL_STARTED", "MODEL_CALL_START"),
        ("MODEL_CALL_ENDED", "MODEL_CALL_END"),
        ("TOOL_RESULT_BINARY_DELTA", "TOOL_RESULT_DATA_DELTA"),
        ("BINARY_BLOCK", "DATA_BLOCK"),
        ("createdAt", "created_at"),
        ("sessionId", "session_id"),
        ("replyId", "reply_id"),
        ("blockId", "block_id"),
        ("modelName", "model_name"),
        ("mediaType", "media_type"),
        ("toolCallId", "tool_call_id"),
        ("toolCallName", "tool_call_name"),
        ("toolCalls", "tool_calls"),
        ("toolCall\"", "tool_call\""),
        ("confirmResults", "confirm_results"),
        ("executionResults", "execution_results"),
        ("inputTokens", "input_tokens"),
        ("outputTokens", "output_tokens"),
    ] {
        text = text.replace(older, today);
    }
    text
}

#[test]
fn a_recording_reads_as_events_with_current_names() {
    for wire in both() {
        assert_eq!(decoded(wire, RECORDING), decoded(wire, &todays()), "{}", wire.name);
    }
}

#[test]
fn a_recording_folds() {
    for wire in both() {
        let mut folder = Folder::default();
        for event in decoded(wire, RECORDING) {
            let pushed = folder.push(&event);
            // Unsolicited; in the recording only for their names.
            if !matches!(&*event.id, "19") {
                pushed.unwrap_or_else(|error| panic!("{error}: {}", event.to_json()));
            }
        }
        let messages: Vec<Msg> = folder.into_messages().collect();
        let [msg] = messages.as_slice() else { panic!("{messages:?}") };
        assert_eq!(msg.text("").as_deref(), Some("Done."));
        let types: Vec<&str> = msg.content().iter().map(|b| b.block_type().as_str()).collect();
        assert_eq!(types, ["thinking", "data", "tool_call", "tool_result", "tool_result", "text"]);
        let (call, _) = msg.tool_calls().next().unwrap();
        assert_eq!((call.input.as_str(), &call.state), (r#"{"n":2}"#, &ToolCallState::Finished));
        let Some(ContentBlock::Data(data)) = msg.content().get(1) else { panic!() };
        assert_eq!(data.media_type(), Some("image/png"));
        assert_eq!(msg.usage().unwrap().input_tokens, 7);
        assert_eq!(msg.finished_reason(), Some(&FinishedReason::Completed));
        assert_eq!(msg.created_at(), "2026-01-01T00:00:01Z");
    }
}

#[test]
fn events_with_current_names_are_not_renamed() {
    for wire in both() {
        for line in [
            // Foreign fields that look like older names.
            r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"d","replyId":"other","blockId":"x"}"#,
            r#"{"type":"CUSTOM","name":"n","value":{"toolCalls":[]},"replyId":"r"}"#,
            // AG-UI's events, which name no reply of ours.
            r#"{"type":"RUN_STARTED","threadId":"t","runId":"u"}"#,
            r#"{"type":"X_OTHER","replyId":"r","createdAt":"t"}"#,
        ] {
            let expected = Event::from_json(line).unwrap();
            assert_eq!(decoded(wire, line), [expected], "{}", wire.name);
        }
        let mut decoder = wire.decoder(&DecoderOptions::default()).unwrap();
        let mut problems = Vec::new();
        decoder.feed(b"{\"type\":\"TEXT_BLOCK_DELTA\",\"replyId\":\"r\"}\n", &mut |decoded| {
            problems.push((decoded.event.unwrap_err().to_string(), decoded.reply_id));
        });
        let why = "NotAnEvent: TEXT_BLOCK_DELTA has no `block_id`".to_owned();
        assert_eq!(problems, [(why, Some("r".to_owned()))]);
    }
}
