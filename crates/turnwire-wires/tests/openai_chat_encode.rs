//! Encoding the events of a turn as one chat completion.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use turnwire_core::event::{
    Block, ConfirmResult, Custom, CustomValue, DataBlockEnd, DataBlockStart,
    ExternalExecutionResult, Message, ModelCallEnd, ModelCallStart, ReplyEnd, ReplyStart,
    RequireExternalExecution, SubAgent, TextBlockDelta, TextBlockEnd, TextBlockStart,
    ThinkingBlockDelta, ThinkingBlockEnd, ThinkingBlockStart, TokenCounts, ToolCallDelta,
    ToolCallEnd, ToolCallStart, ToolResultEnd, ToolResultStart, ToolResultTextDelta,
    UserConfirmResult,
};
use turnwire_core::{
    ErrorType, Event, EventKind, Fields, FinishedReason, Folder, Json, Msg, ReplyError, Seq,
    TextBlock, ToolCall, ToolResult, ToolResultState, coalesce,
};
use turnwire_testkit::{check_property, values};
use turnwire_wires::openai_chat::StreamOptions;
use turnwire_wires::{DecoderOptions, EncoderOptions, Frames, Wire};

type Kind = EventKind<'static>;

fn event(kind: impl Into<Kind>) -> Event<'static> {
    Event::new("r", kind)
}

fn start() -> Event<'static> {
    let mut start = event(ReplyStart { name: "friday".into(), ..ReplyStart::default() });
    start.created_at = "2026-02-02T02:40:00.5Z".into();
    start
}

fn model() -> Event<'static> {
    event(ModelCallStart { model_name: "m".into() })
}

fn text(id: &'static str, pieces: &[&'static str]) -> Vec<Event<'static>> {
    let block_id = || id.into();
    let mut events = vec![event(TextBlockStart { block_id: block_id() })];
    for piece in pieces {
        events.push(event(TextBlockDelta { block_id: block_id(), delta: (*piece).into() }));
    }
    events.push(event(TextBlockEnd { block_id: block_id(), text: None, extra: Fields::default() }));
    events
}

fn thinking(id: &'static str, piece: &'static str) -> Vec<Event<'static>> {
    vec![
        event(ThinkingBlockStart { block_id: id.into() }),
        event(ThinkingBlockDelta { block_id: id.into(), delta: piece.into() }),
        event(ThinkingBlockEnd { block_id: id.into(), extra: Fields::default() }),
    ]
}

fn call(id: &'static str, name: &'static str, pieces: &[&'static str]) -> Vec<Event<'static>> {
    let mut events =
        vec![event(ToolCallStart { tool_call_id: id.into(), tool_call_name: name.into() })];
    for piece in pieces {
        events.push(event(ToolCallDelta { tool_call_id: id.into(), delta: (*piece).into() }));
    }
    events.push(event(ToolCallEnd { tool_call_id: id.into(), extra: Fields::default() }));
    events
}

fn result(id: &'static str) -> Vec<Event<'static>> {
    vec![
        event(ToolResultStart { tool_call_id: id.into(), tool_call_name: "f".into() }),
        event(ToolResultTextDelta { tool_call_id: id.into(), delta: "sunny".into() }),
        event(ToolResultEnd { tool_call_id: id.into(), state: ToolResultState::Success }),
    ]
}

fn end(finished_reason: FinishedReason) -> Event<'static> {
    event(ReplyEnd { finished_reason, ..ReplyEnd::default() })
}

fn completed() -> Event<'static> {
    end(FinishedReason::Completed)
}

fn outside(id: &str) -> Event<'static> {
    event(RequireExternalExecution { tool_calls: vec![ToolCall::new(id, "", "")] })
}

fn encode(encoding: &EncoderOptions, events: &[Event<'_>]) -> Vec<Value> {
    let mut encoder = Wire::named("openai-chat").unwrap().encoder(encoding).unwrap();
    let mut frames = Frames::default();
    for event in events {
        encoder.encode(event, &mut frames);
    }
    encoder.end(&mut frames);
    frames.iter().map(|(_, text)| serde_json::from_str(text).unwrap()).collect()
}

/// The frames in short: deltas, finish reasons, usage and errors.
fn short(frames: &[Value]) -> Vec<Value> {
    let one = |frame: &Value| {
        let Some(choice) = frame.pointer("/choices/0") else {
            return frame.get("usage").or(frame.get("error")).unwrap_or(frame).clone();
        };
        match choice.get("finish_reason").unwrap() {
            Value::Null => choice.get("delta").unwrap().clone(),
            reason => json!([reason, choice.get("native_finish_reason")]),
        }
    };
    frames.iter().map(one).collect()
}

fn written(events: &[Event<'_>]) -> Vec<Value> {
    short(&encode(&EncoderOptions::default(), events))
}

fn role() -> Value {
    json!({"role": "assistant", "content": ""})
}

fn piece(index: u8, id: &str, name: &str, arguments: &str) -> Value {
    let function = json!({"name": name, "arguments": arguments});
    json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
}

#[test]
fn a_plain_answer_is_written_as_openai_writes_it() {
    let usage = TokenCounts {
        input_tokens: 7,
        output_tokens: 2,
        cache_input_tokens: 3,
        ..TokenCounts::default()
    };
    let model_end = event(ModelCallEnd { usage, ..ModelCallEnd::default() });
    let events = [
        vec![start(), model()],
        thinking("t", "Hm"),
        text("b", &["Hel", "", "lo"]),
        vec![model_end.clone(), model_end, completed()],
    ]
    .concat();
    let chunk = |choices: Value| {
        json!({"id": "r", "object": "chat.completion.chunk", "created": 1_770_000_000,
            "model": "m", "choices": choices})
    };
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]));
    let mut usage = chunk(json!([]));
    usage.as_object_mut().unwrap().insert(
        "usage".into(),
        json!({"prompt_tokens": 14, "completion_tokens": 4, "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 0}}),
    );
    assert_eq!(
        encode(&EncoderOptions::default().with(StreamOptions { include_usage: true }), &events),
        [
            delta(role()),
            delta(json!({"reasoning_content": "Hm"})),
            delta(json!({"content": "Hel"})),
            delta(json!({"content": "lo"})),
            chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}])),
            usage,
        ]
    );
}

#[test]
fn the_model_is_the_one_that_the_server_names() {
    let encoding = EncoderOptions { model: Some("friday".into()), ..EncoderOptions::default() };
    let frames = encode(&encoding, &[start(), model(), completed()]);
    assert!(frames.iter().all(|frame| frame.get("model").unwrap() == "friday"));
}

#[test]
fn calls_that_the_agent_serves_itself_are_left_out() {
    let events = [
        vec![start()],
        text("a", &["Let me see."]),
        call("1", "f", &["{}"]),
        call("2", "g", &["{}"]),
        result("1"),
        vec![
            outside("2"),
            event(ExternalExecutionResult {
                execution_results: vec![ToolResult::success("2", "x")],
            }),
        ],
        text("b", &["Sunny."]),
        vec![completed()],
    ]
    .concat();
    assert_eq!(
        written(&events),
        [
            role(),
            json!({"content": "Let me see."}),
            json!({"content": "Sunny."}),
            json!(["stop", null])
        ]
    );
}

#[test]
fn calls_without_a_result_are_for_the_client() {
    let events = [
        vec![start()],
        call("1", "f", &["{\"a\"", ":1}"]),
        call("2", "g", &[]),
        text("b", &["Wait."]),
        vec![completed()],
    ]
    .concat();
    assert_eq!(
        written(&events),
        [
            role(),
            json!({"content": "Wait."}),
            piece(0, "1", "f", "{\"a\":1}"),
            piece(1, "2", "g", "{}"),
            json!(["tool_calls", null])
        ]
    );
}

#[test]
fn a_turn_that_waits_for_the_client_ends_with_its_calls() {
    let events = [vec![start()], call("1", "f", &["{}"]), vec![outside("1")]].concat();
    assert_eq!(written(&events), [role(), piece(0, "1", "f", "{}"), json!(["tool_calls", null])]);
}

#[test]
fn a_turn_that_waited_continues_as_another_response() {
    let encoding =
        EncoderOptions { id: Some("chatcmpl-2".to_owned()), ..EncoderOptions::default() };
    let mut encoder = Wire::named("openai-chat").unwrap().encoder(&encoding).unwrap();
    let mut frames = Frames::default();
    for event in [vec![start(), model()], call("c", "f", &["{}"]), vec![outside("c")]].concat() {
        encoder.encode(&event, &mut frames);
    }
    encoder.end(&mut frames);
    frames.clear();
    let answer =
        ExternalExecutionResult { execution_results: vec![ToolResult::success("c", "ok")] };
    for event in [vec![event(answer)], text("b", &["Done."]), vec![completed()]].concat() {
        encoder.encode(&event, &mut frames);
    }
    encoder.end(&mut frames);
    let frames: Vec<Value> =
        frames.iter().map(|(_, text)| serde_json::from_str(text).unwrap()).collect();
    let expected = [role(), json!({"content": "Done."}), json!(["stop", null])];
    assert_eq!(short(&frames), expected);
    assert!(frames.iter().all(|frame| frame.get("id") == Some(&json!("chatcmpl-2"))));
}

#[test]
fn a_call_that_was_edited_is_written_as_edited_and_a_denied_one_is_not_written() {
    let answer = |id: &str, confirmed: bool, input: &str| ConfirmResult {
        confirmed,
        tool_call: ToolCall::new(id, "f", input),
        rules: None,
        rest: Fields::default(),
    };
    let confirm_results = vec![answer("1", true, "[2]"), answer("2", false, "")];
    let events = [
        vec![start()],
        call("1", "f", &["[1]"]),
        call("2", "f", &["[3]"]),
        vec![event(UserConfirmResult { confirm_results }), completed()],
    ]
    .concat();
    assert_eq!(written(&events), [role(), piece(0, "1", "f", "[2]"), json!(["tool_calls", null])]);
}

#[test]
fn each_end_has_a_word_that_clients_know_and_ours_beside_it() {
    for (reason, word, native) in [
        ("completed", "stop", None),
        ("length", "length", None),
        ("content_filter", "content_filter", None),
        ("interrupted", "stop", Some("interrupted")),
        ("exceed_max_iters", "length", Some("exceed_max_iters")),
        ("refusal", "content_filter", Some("refusal")),
        ("tool_calls", "stop", Some("tool_calls")),
        ("x_tired", "stop", Some("x_tired")),
    ] {
        let events = [start(), end(reason.into())];
        assert_eq!(written(&events), [role(), json!([word, native])]);
        let body: Vec<String> =
            encode(&EncoderOptions::default(), &events).iter().map(Value::to_string).collect();
        let decoder =
            Wire::named("openai-chat").unwrap().decoder(&DecoderOptions::default()).unwrap();
        let events = decoder.decode_all(body.join("\n").as_bytes()).unwrap();
        let EventKind::ReplyEnd(end) = &events.last().unwrap().kind else { unreachable!() };
        let expected = if reason == "x_tired" { "completed" } else { reason };
        assert_eq!(end.finished_reason.as_str(), expected);
    }
}

#[test]
fn an_error_comes_last_and_behind_the_usage() {
    let error = ReplyError {
        r#type: ErrorType::RateLimit,
        message: "slow down".into(),
        ..ReplyError::default()
    };
    let failed = event(ReplyEnd {
        finished_reason: FinishedReason::Error,
        error: Some(error),
        ..ReplyEnd::default()
    });
    let events = [vec![start()], text("b", &["par"]), vec![failed]].concat();
    let frames = short(&encode(
        &EncoderOptions::default().with(StreamOptions { include_usage: true }),
        &events,
    ));
    assert_eq!(frames.get(..2).unwrap(), [role(), json!({"content": "par"})]);
    assert_eq!(frames.get(2).unwrap().get("total_tokens").unwrap(), 0);
    assert_eq!(
        frames.get(3..).unwrap(),
        [json!({"message": "slow down", "type": "rate_limit_error", "param": null,
            "code": "rate_limit"})]
    );
}

#[test]
fn a_truncated_turn_is_not_a_success() {
    let events = [start(), event(TextBlockStart { block_id: "b".into() })];
    assert_eq!(
        written(&events),
        [
            role(),
            json!({"message": "the reply was cut off", "type": "server_error",
                "param": null, "code": "connection", "native_finish_reason": "truncated"})
        ]
    );
}

#[test]
fn structured_output_is_the_text_of_a_reply_without_text() {
    let output = || Some(Json::parse(r#"{"a":1}"#).unwrap());
    let done = event(ReplyEnd { structured_output: output(), ..ReplyEnd::default() });
    assert_eq!(
        written(&[start(), done.clone()]),
        [role(), json!({"content": "{\"a\":1}"}), json!(["stop", null])]
    );
    let events = [text("b", &["{}"]), vec![done]].concat();
    assert_eq!(written(&events), [role(), json!({"content": "{}"}), json!(["stop", null])]);
}

#[test]
fn citations_and_log_probabilities_come_with_the_end_of_a_text() {
    let note = json!([{"type": "url_citation", "url_citation": {"url": "https://a.example"}}]);
    let tokens = json!([{"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}]);
    let mut events = text("b", &["x"]);
    let mut extra = Fields::default();
    extra.insert("annotations", note.clone());
    extra.insert("logprobs", tokens.clone());
    events.pop();
    events.push(event(TextBlockEnd { block_id: "b".into(), text: None, extra }));
    events.push(completed());
    let frames = encode(&EncoderOptions::default(), &events);
    assert_eq!(frames.last().unwrap().pointer("/choices/0/delta/annotations").unwrap(), &note);
    let logprobs = json!({"content": tokens, "refusal": null});
    assert_eq!(frames.last().unwrap()["choices"][0]["logprobs"], logprobs);
    let collecting = EncoderOptions { collects: true, ..EncoderOptions::default() };
    let mut encoder = Wire::named("openai-chat").unwrap().encoder(&collecting).unwrap();
    let mut written = Frames::default();
    for event in &events {
        encoder.encode(event, &mut written);
    }
    let whole: Value = encoder.take_response().unwrap().unwrap().parse_as().unwrap();
    assert_eq!(whole["choices"][0]["logprobs"], logprobs);
}

#[test]
fn log_probabilities_come_beside_their_tokens_as_the_provider_sent_them() {
    let wire = Wire::named("openai-chat").unwrap();
    let token =
        |text: &str| json!({"token": text, "logprob": -0.5, "bytes": null, "top_logprobs": []});
    let sent = ["Hel", "<", "lo"].map(|text| {
        let logprobs = json!({"content": [token(text)], "refusal": null});
        json!({"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "logprobs": logprobs}]})
    });
    let lines = sent.map(|chunk| chunk.to_string()).join("\n");
    let decoder = wire.decoder(&DecoderOptions::default()).unwrap();
    let events = decoder.decode_all(lines.as_bytes()).unwrap();
    let frames = encode(&EncoderOptions::default(), &events);
    let written: Vec<(Value, Value)> = frames
        .iter()
        .map(|frame| &frame["choices"][0])
        .filter(|choice| choice["logprobs"].is_object())
        .map(|choice| (choice["delta"]["content"].clone(), choice["logprobs"]["content"].clone()))
        .collect();
    // The `<` may begin a tag: it comes with the text behind it.
    let expected =
        [(json!("Hel"), json!([token("Hel")])), (json!("<lo"), json!([token("<"), token("lo")]))];
    assert_eq!(written, expected);
    // The message has all of them.
    let mut folder = Folder::default();
    for event in &events {
        folder.push(event).unwrap();
    }
    let msg = folder.into_messages().next().unwrap();
    let all = json!({"logprobs": [token("Hel"), token("<"), token("lo")]});
    assert_eq!(msg.first::<TextBlock>().unwrap().rest.parse_as::<Value>().unwrap(), all);
}

#[test]
fn sub_agents_and_other_replies_are_left_out() {
    let mut inner = text("x", &["inner"]);
    for event in &mut inner {
        event.reply_id = "sub".into();
        event.agent = Some(Box::new(SubAgent {
            agent_path: Some("main/sub".into()),
            parent_tool_call_id: Some("1".into()),
        }));
    }
    let mut other = text("y", &["other"]);
    for event in &mut other {
        event.reply_id = "r2".into();
    }
    let events = [vec![start()], inner, other, text("b", &["mine"]), vec![completed()]].concat();
    assert_eq!(written(&events), [role(), json!({"content": "mine"}), json!(["stop", null])]);
}

#[test]
fn nothing_that_comes_out_of_turn_breaks_the_stream() {
    let late = event(TextBlockDelta { block_id: "b".into(), delta: "late".into() });
    let nobody = Event::new("", ReplyEnd::default());
    let message = event(Message { message: Box::new(Msg::user("ann", "hi")) });
    let unknown = Event::new("r", EventKind::Unknown("X".into()));
    let mut next = text("n", &["next"]);
    for event in &mut next {
        event.reply_id = "r2".into();
    }
    let events = [
        vec![
            completed_reply("r0"),
            start(),
            start(),
            late.clone(),
            nobody.clone(),
            message,
            unknown,
        ],
        result("nobody's"),
        text("b", &["a"]),
        vec![start()],
        vec![event(Block { block: Box::new(TextBlock::new("b").into()) }), completed()],
        vec![late, completed(), nobody],
        next,
        vec![completed_reply("r2")],
    ]
    .concat();
    let stop = || json!(["stop", null]);
    assert_eq!(
        written(&events),
        [
            role(),
            stop(),
            role(),
            json!({"content": "a"}),
            json!({"content": "b"}),
            stop(),
            role(),
            json!({"content": "next"}),
            stop()
        ]
    );
}

fn completed_reply(reply: &'static str) -> Event<'static> {
    Event::new(reply, ReplyEnd::default())
}

#[test]
fn a_frame_of_this_wire_that_nobody_knew_is_written_back() {
    let frame = json!({"type": "heartbeat", "n": 1});
    let custom = Custom { name: "openai-chat".into(), value: CustomValue(frame.clone().into()) };
    let other = Custom { name: "mine".into(), value: CustomValue::default() };
    assert_eq!(encode(&EncoderOptions::default(), &[event(custom), event(other)]), [frame]);
}

/// A client that joins late gets merged deltas, and the same answer.
#[test]
fn merged_deltas_give_the_same_answer() {
    check_property("merged_deltas_give_the_same_answer", 300, |rng| {
        let mut events = turnwire_testkit::random_reply(rng, "r").events;
        for (event, seq) in events.iter_mut().zip(1..) {
            event.seq = Seq::new(seq);
        }
        let merged: Vec<Event<'_>> = coalesce(events.iter().cloned()).collect();
        let sum = |events: &[Event<'_>]| {
            let frames = encode(
                &EncoderOptions::default().with(StreamOptions { include_usage: true }),
                events,
            );
            let all = |field: &str| -> String {
                let path = format!("/choices/0/delta/{field}");
                frames.iter().filter_map(|frame| frame.pointer(&path)?.as_str()).collect()
            };
            let rest: Vec<Value> = frames
                .iter()
                .filter(|frame| {
                    let delta = frame.pointer("/choices/0/delta");
                    delta.is_none_or(|it| {
                        it.get("content").is_none() && it.get("reasoning_content").is_none()
                    })
                })
                .cloned()
                .collect();
            (all("content"), all("reasoning_content"), rest)
        };
        assert_eq!(sum(&merged), sum(&events));
    });
}

#[test]
fn no_event_breaks_the_encoder() {
    check_property("no_event_breaks_the_encoder", 300, |rng| {
        let events: Vec<Event<'_>> = (0..rng.usize(..40))
            .map(|_| {
                let mut event = values::event(rng);
                if rng.bool() {
                    event.reply_id = "r".into();
                    event.agent = None;
                }
                event
            })
            .collect();
        // Each frame is JSON on a line of its own.
        let frames =
            encode(&EncoderOptions::default().with(StreamOptions { include_usage: true }), &events);
        assert!(frames.iter().all(|frame| !frame.to_string().contains('\n')));
    });
}

#[test]
fn audio_goes_through_as_it_came_with_its_transcript() {
    let deltas = [
        json!({"audio": {"id": "au1"}}),
        json!({"audio": {"transcript": "Hel"}}),
        json!({"audio": {"data": "AAE"}}),
        json!({"audio": {"transcript": "lo"}}),
        json!({"audio": {"data": "C"}}),
        json!({"audio": {"expires_at": 9}}),
    ];
    let chunk = |delta: &Value, reason: Option<&str>| json!({"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let mut frames: Vec<Value> = deltas.iter().map(|delta| chunk(delta, None)).collect();
    frames.push(chunk(&json!({}), Some("stop")));
    let lines: Vec<String> = frames.iter().map(Value::to_string).collect();
    let wire = Wire::named("openai-chat").unwrap();
    let decoder = wire.decoder(&DecoderOptions::default()).unwrap();
    let events = decoder.decode_all(lines.join("\n").as_bytes()).unwrap();
    let expected: Vec<Value> =
        [role()].into_iter().chain(deltas).chain([json!(["stop", null])]).collect();
    assert_eq!(written(&events), expected);

    let mut encoder =
        wire.encoder(&EncoderOptions { collects: true, ..EncoderOptions::default() }).unwrap();
    for event in &events {
        encoder.encode(event, &mut Frames::default());
    }
    let whole: Value = encoder.take_response().unwrap().unwrap().parse_as().unwrap();
    let message = whole.pointer("/choices/0/message").unwrap();
    assert_eq!(message.get("content"), Some(&Value::Null));
    let audio = json!({"id": "au1", "data": "AAEC", "transcript": "Hello", "expires_at": 9});
    assert_eq!(message.get("audio"), Some(&audio));
}

#[test]
fn data_other_than_audio_output_is_left_out() {
    let block_id = || "d".into();
    let media_type = Some("audio/mpeg".to_owned());
    let events = [
        vec![start(), event(DataBlockStart { block_id: block_id(), media_type, name: None })],
        text("b", &["Hi"]),
        vec![event(DataBlockEnd { block_id: block_id(), extra: Fields::default() }), completed()],
    ]
    .concat();
    assert_eq!(written(&events), [role(), json!({"content": "Hi"}), json!(["stop", null])]);
}
