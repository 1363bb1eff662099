//! Encoding replies as the Responses stream.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use serde_json::{Value, json};
use turnwire_core::block::ContentBlock;
use turnwire_core::event::{
    Block, Custom, CustomValue, ModelCallEnd, ModelCallStart, ReplyEnd, ReplyStart, SubAgent,
    TextBlockDelta, TextBlockEnd, TextBlockStart, ThinkingBlockDelta, ThinkingBlockEnd,
    ThinkingBlockStart, ToolCallDelta, ToolCallEnd, ToolCallStart, ToolResultStart,
};
use turnwire_core::{Event, EventKind, Fields, FinishedReason, Folder, Json, Msg, coalesce};
use turnwire_testkit::{Rng, check_property, stream, values};
use turnwire_wires::{DecoderOptions, EncoderOptions, Frames, Wire};

fn wire() -> &'static Wire {
    Wire::named("openai-responses").unwrap()
}

/// The frames for events, including those of the end.
fn frames<'e>(events: impl IntoIterator<Item = &'e Event<'static>>) -> Vec<Value> {
    let mut encoder = wire().encoder(&EncoderOptions::default()).unwrap();
    let mut frames = Frames::default();
    events.into_iter().for_each(|event| encoder.encode(event, &mut frames));
    encoder.end(&mut frames);
    frames.iter().map(|(_, text)| serde_json::from_str(text).unwrap()).collect()
}

fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

fn event(kind: impl Into<EventKind<'static>>) -> Event<'static> {
    Event::new("r", kind)
}

fn start() -> [Event<'static>; 2] {
    [event(ReplyStart::default()), event(ModelCallStart { model_name: "m".to_owned() })]
}

fn end() -> Event<'static> {
    event(ReplyEnd::default())
}

fn text(id: &'static str, pieces: &[&'static str]) -> Vec<Event<'static>> {
    let mut events = vec![event(TextBlockStart { block_id: id.into() })];
    for &delta in pieces {
        events.push(event(TextBlockDelta { block_id: id.into(), delta: delta.into() }));
    }
    events.push(event(TextBlockEnd { block_id: id.into(), text: None, extra: Fields::default() }));
    events
}

fn call(id: &'static str) -> Vec<Event<'static>> {
    vec![
        event(ToolCallStart { tool_call_id: id.into(), tool_call_name: "f".into() }),
        event(ToolCallDelta { tool_call_id: id.into(), delta: "{".into() }),
        event(ToolCallDelta { tool_call_id: id.into(), delta: "}".into() }),
        event(ToolCallEnd { tool_call_id: id.into(), extra: Fields::default() }),
    ]
}

fn decoded(frames: &[Value]) -> Msg {
    let lines: Vec<String> = frames.iter().map(Value::to_string).collect();
    let events = wire()
        .decoder(&DecoderOptions::default())
        .unwrap()
        .decode_all(lines.join("\n").as_bytes())
        .unwrap();
    let mut folder = Folder::default();
    for event in &events {
        folder.push(event).unwrap_or_else(|error| panic!("{error}: {}", event.to_json()));
    }
    folder.into_messages().next().unwrap()
}

#[test]
fn a_text_is_written_as_it_comes() {
    let events: Vec<_> =
        start().into_iter().chain(text("b", &["Hel", "lo"])).chain([end()]).collect();
    let frames = frames(&events);
    assert_eq!(
        types(&frames),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert_eq!(
        frames[5],
        json!({"type": "response.output_text.delta", "sequence_number": 5, "item_id": "b", "output_index": 0,
            "content_index": 0, "delta": "lo", "logprobs": []})
    );
    assert_eq!(
        frames[9]["response"]["output"],
        json!([{"id": "b", "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "Hello"}]}])
    );
}

#[test]
fn the_log_probabilities_of_a_text_come_with_its_end() {
    let tokens = json!([{"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}]);
    let mut events = [start().to_vec(), text("b", &["x"])].concat();
    events.pop();
    let extra = [("logprobs", Json::from(tokens.clone()))].into_iter().collect();
    events.push(event(TextBlockEnd { block_id: "b".into(), text: None, extra }));
    events.push(end());
    let frames = frames(&events);
    let of_type = |kind: &str| frames.iter().find(|frame| frame["type"] == kind).unwrap();
    assert_eq!(of_type("response.output_text.done")["logprobs"], tokens);
    assert_eq!(of_type("response.content_part.done")["part"]["logprobs"], tokens);
    let output = &of_type("response.completed")["response"]["output"];
    assert_eq!(output[0]["content"][0]["logprobs"], tokens);
}

#[test]
fn log_probabilities_come_beside_their_tokens_as_the_provider_sent_them() {
    let token =
        |text: &str| json!({"token": text, "logprob": -0.5, "bytes": null, "top_logprobs": []});
    let mut events = [start().to_vec(), text("b", &["Hel", "lo"]), vec![end()]].concat();
    for event in &mut events {
        if let EventKind::TextBlockDelta(delta) = &event.kind {
            let tokens = Json::from(json!([token(&delta.delta)]));
            event.metadata.insert("logprobs", tokens);
        }
    }
    let sent = frames(&events);
    let of_deltas = |frames: &[Value]| -> Vec<Value> {
        let deltas = frames.iter().filter(|frame| frame["type"] == "response.output_text.delta");
        deltas.map(|frame| json!([frame["delta"], frame["logprobs"]])).collect()
    };
    let expected = [json!(["Hel", [token("Hel")]]), json!(["lo", [token("lo")]])];
    assert_eq!(of_deltas(&sent), expected);
    // They come back from a decoder.
    let lines: Vec<String> = sent.iter().map(Value::to_string).collect();
    let decoder = wire().decoder(&DecoderOptions::default()).unwrap();
    let again = decoder.decode_all(lines.join("\n").as_bytes()).unwrap();
    let metadata = |event: &Event<'_>| match &event.kind {
        EventKind::TextBlockDelta(_) => event.metadata.get::<Value>("logprobs").unwrap(),
        _ => None,
    };
    let found: Vec<Value> = again.iter().filter_map(metadata).collect();
    assert_eq!(found, [json!([token("Hel")]), json!([token("lo")])]);
}

#[test]
fn blocks_after_a_call_wait_until_it_is_known_who_executes_it() {
    let mut encoder = wire().encoder(&EncoderOptions::default()).unwrap();
    let mut frames = Frames::default();
    for event in start().into_iter().chain(call("c")).chain(text("b", &["Hi"])) {
        encoder.encode(&event, &mut frames);
    }
    assert_eq!(frames.len(), 2, "nothing but the announcement");
    let result = ToolResultStart { tool_call_id: "c".into(), tool_call_name: "f".into() };
    encoder.encode(&event(result), &mut frames);
    let written: Vec<Value> =
        frames.iter().map(|(_, text)| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(
        types(&written)[2..5],
        ["response.output_item.added", "response.content_part.added", "response.output_text.delta"]
    );
    assert_eq!(written[2]["output_index"], 0);
}

#[test]
fn blocks_keep_their_order_around_a_call_of_the_client() {
    let events: Vec<_> = start()
        .into_iter()
        .chain(text("a", &["1"]))
        .chain(call("c"))
        .chain(text("b", &["2"]))
        .collect();
    let frames = frames(&events);
    let output = &frames.last().unwrap()["response"]["output"];
    let kinds: Vec<&Value> = output.as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "function_call", "message"]);
    assert_eq!(types(&frames).last(), Some(&"response.completed"));
}

#[test]
fn a_discarded_block_is_not_in_the_response() {
    for ended in [false, true] {
        let mut script = text("b", &["Hel"]);
        if !ended {
            script.pop();
        }
        let discard = ModelCallEnd { discard: vec!["b".to_owned()], ..ModelCallEnd::default() };
        let events: Vec<_> = start()
            .into_iter()
            .chain(script)
            .chain([event(discard)])
            .chain(text("c", &["Hello"]))
            .chain([end()])
            .collect();
        let frames = frames(&events);
        let last = frames.last().unwrap();
        assert_eq!(last["response"]["output"].as_array().unwrap().len(), 1);
        assert_eq!(decoded(&frames).text("|").unwrap(), "Hello");
    }
}

#[test]
fn the_parts_of_a_reasoning_item_are_one_item_again() {
    let part = |id: &'static str, text: &'static str, extra: Fields| {
        [
            event(ThinkingBlockStart { block_id: id.into() }),
            event(ThinkingBlockDelta { block_id: id.into(), delta: text.into() }),
            event(ThinkingBlockEnd { block_id: id.into(), extra }),
        ]
    };
    let first: Fields = [("item_id", "rs")].into_iter().collect();
    let mut last = first.clone();
    last.insert("summary", json!([]));
    last.insert("encrypted_content", "opaque");
    let events: Vec<_> = start()
        .into_iter()
        .chain(part("rs", "one", first))
        .chain(part("rs-1", "two", last))
        .chain(text("b", &["Hi"]))
        .chain([end()])
        .collect();
    let frames = frames(&events);
    assert_eq!(
        frames.last().unwrap()["response"]["output"][0],
        json!({"id": "rs", "type": "reasoning", "encrypted_content": "opaque",
            "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]})
    );
    let msg = decoded(&frames);
    let ids: Vec<&str> = msg.content().iter().map(ContentBlock::id).collect();
    assert_eq!(ids, ["rs", "rs-1", "b"]);
}

#[test]
fn items_and_events_of_this_wire_are_written_back() {
    let item = json!({"type": "web_search_call", "id": "ws", "status": "completed", "from_wire": "openai-responses"});
    let block: Fields = serde_json::from_value(item.clone()).unwrap();
    let progress = json!({"type": "response.web_search_call.searching", "output_index": 0, "sequence_number": 99});
    let custom = |name: &str| Custom {
        name: name.to_owned(),
        value: CustomValue(Json::from_value(&progress).unwrap()),
    };
    let events: Vec<_> = start()
        .into_iter()
        .chain([
            event(custom("openai-responses")),
            event(custom("somebody else's")),
            event(Block { block: Box::new(ContentBlock::Other(block)) }),
            end(),
        ])
        .collect();
    let frames = frames(&events);
    assert_eq!(
        types(&frames)[2..5],
        [
            "response.web_search_call.searching",
            "response.output_item.added",
            "response.output_item.done"
        ]
    );
    assert_eq!(frames[2]["sequence_number"], 2);
    assert_eq!(
        frames.last().unwrap()["response"]["output"],
        json!([{"type": "web_search_call", "id": "ws", "status": "completed"}])
    );
}

#[test]
fn turns_one_after_the_other_are_responses_of_their_own() {
    let of = |reply: &'static str, event: Event<'static>| {
        let mut event = event;
        event.reply_id = reply.into();
        event
    };
    let turn: Vec<_> = start().into_iter().chain(text("b", &["Hi"])).chain([end()]).collect();
    let mut events: Vec<_> = turn.iter().cloned().map(|event| of("r1", event)).collect();
    // Nothing comes after the end of a reply.
    events.push(of("r1", event(TextBlockStart { block_id: "late".into() })));
    events.extend(turn.iter().cloned().map(|event| of("r2", event)));
    // This one never ends, and yet another begins.
    events.extend(turn.iter().take(3).cloned().map(|event| of("r3", event)));
    events.extend(turn.iter().cloned().map(|event| of("r4", event)));
    // And an end without a start.
    events.push(of("r5", end()));
    let frames = frames(&events);
    let mut ends = Vec::new();
    let mut next = 0;
    for frame in &frames {
        assert_eq!(frame["sequence_number"], next);
        next += 1;
        if let Some(status) =
            frame["response"]["status"].as_str().filter(|word| *word != "in_progress")
        {
            ends.push((frame["response"]["id"].as_str().unwrap(), status));
            next = 0;
        }
    }
    assert_eq!(
        ends,
        [
            ("r1", "completed"),
            ("r2", "completed"),
            ("r3", "incomplete"),
            ("r4", "completed"),
            ("r5", "completed")
        ]
    );
}

#[test]
fn a_pause_for_the_client_completes_and_a_break_does_not() {
    let waits: Vec<_> = start().into_iter().chain(call("c")).collect();
    assert_eq!(frames(&waits).last().unwrap()["response"]["status"], "completed");
    let broken: Vec<_> = start().into_iter().chain(text("b", &["Hi"])).collect();
    assert_eq!(frames(&broken).last().unwrap()["response"]["status"], "incomplete");
    assert_eq!(frames(&[]), [] as [Value; 0]);
}

#[test]
fn reasons_come_back() {
    for reason in [
        FinishedReason::Completed,
        FinishedReason::Interrupted,
        FinishedReason::ExceedMaxIters,
        FinishedReason::Length,
        FinishedReason::Refusal,
        FinishedReason::ContentFilter,
        FinishedReason::Truncated,
    ] {
        let last = event(ReplyEnd { finished_reason: reason.clone(), ..ReplyEnd::default() });
        let events: Vec<_> = start().into_iter().chain(text("b", &["Hi"])).chain([last]).collect();
        assert_eq!(decoded(&frames(&events)).finished_reason(), Some(&reason));
    }
}

/// Checks the rules that every stream of one turn must keep.
fn is_sound(frames: &[Value]) {
    let numbers: Vec<u64> =
        frames.iter().map(|frame| frame["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..frames.len() as u64).collect::<Vec<_>>());
    let terminal = ["response.completed", "response.incomplete", "response.failed"];
    let ends = types(frames).iter().filter(|word| terminal.contains(word)).count();
    assert_eq!((ends, terminal.contains(types(frames).last().unwrap())), (1, true));
    let mut open = Vec::new();
    for frame in frames {
        let index = &frame["output_index"];
        match frame["type"].as_str().unwrap() {
            "response.output_item.added" => {
                assert_eq!(*index, json!(open.len()));
                open.push(frame["item"]["id"].clone());
            }
            "response.created" | "response.in_progress" => {}
            word if terminal.contains(&word) => {}
            _ => assert!(index.as_u64().unwrap() < open.len() as u64, "{frame}"),
        }
    }
}

fn reply(rng: &mut Rng) -> Vec<Event<'static>> {
    stream::with_seqs(turnwire_testkit::random_reply(rng, "r").events)
}

#[test]
fn every_reply_is_a_sound_stream() {
    check_property("every_reply_is_a_sound_stream", 400, |rng| {
        let frames = frames(&reply(rng));
        if !frames.is_empty() {
            is_sound(&frames);
        }
    });
}

#[test]
fn merged_deltas_end_in_the_same_response_under_the_same_number() {
    check_property("merged_deltas_end_in_the_same_response_under_the_same_number", 400, |rng| {
        let mut events = reply(rng);
        for event in &mut events {
            event.rest = Fields::default();
        }
        let merged: Vec<_> = coalesce(events.clone()).collect();
        assert_eq!(frames(&events).last(), frames(&merged).last());
    });
}

#[test]
fn nothing_that_comes_in_between_stops_the_stream() {
    check_property("nothing_that_comes_in_between_stops_the_stream", 300, |rng| {
        let mut events = Vec::new();
        for event in reply(rng) {
            events.push(event);
            match rng.u8(..8) {
                0 => events.push(stream::misfit(rng, "r")),
                // Of a sub-agent, with whatever in it.
                1 => {
                    let mut other = values::event(rng);
                    other.agent = Some(Box::new(SubAgent {
                        agent_path: Some("main/x".to_owned()),
                        parent_tool_call_id: None,
                    }));
                    events.push(other);
                }
                _ => {}
            }
        }
        let frames = frames(&events);
        if !frames.is_empty() {
            is_sound(&frames);
        }
        // Whatever else an event may be.
        let noise: Vec<_> = (0..50).map(|_| values::event(rng)).collect();
        let mut encoder = wire().encoder(&EncoderOptions::default()).unwrap();
        let mut out = Frames::default();
        for event in &noise {
            encoder.encode(event, &mut out);
        }
        encoder.end(&mut out);
    });
}

#[test]
fn a_response_is_called_what_the_server_calls_it() {
    let encoding = EncoderOptions { id: Some("resp_s~r".to_owned()), ..EncoderOptions::default() };
    let mut encoder = wire().encoder(&encoding).unwrap();
    let mut out = Frames::default();
    start().iter().chain([&end()]).for_each(|event| encoder.encode(event, &mut out));
    let frames: Vec<Value> =
        out.iter().map(|(_, text)| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(types(&frames), ["response.created", "response.in_progress", "response.completed"]);
    for frame in frames {
        assert_eq!(frame["response"]["id"], "resp_s~r");
    }
}

#[test]
fn events_after_a_pause_are_another_response() {
    let encoding = EncoderOptions { id: Some("second".to_owned()), ..EncoderOptions::default() };
    let mut encoder = wire().encoder(&encoding).unwrap();
    let mut out = Frames::default();
    let mut first: Vec<_> = start().into_iter().chain(text("a", &["One"])).collect();
    first.extend(call("c"));
    for event in &first {
        encoder.encode(event, &mut out);
    }
    encoder.end(&mut out);
    out.clear();
    let result = ToolResultStart { tool_call_id: "c".into(), tool_call_name: "f".into() };
    let mut then = vec![event(result)];
    then.extend(text("b", &["Two"]));
    then.push(end());
    for event in &then {
        encoder.encode(event, &mut out);
    }
    encoder.end(&mut out);
    let second: Vec<Value> =
        out.iter().map(|(_, text)| serde_json::from_str(text).unwrap()).collect();
    is_sound(&second);
    let output = &second.last().unwrap()["response"]["output"];
    assert_eq!(output[0]["content"][0]["text"], "Two", "{output}");
    assert_eq!(output.as_array().unwrap().len(), 1);
}

#[test]
fn a_stopped_reply_is_a_cancelled_response() {
    let stop =
        event(ReplyEnd { finished_reason: FinishedReason::Interrupted, ..ReplyEnd::default() });
    let events: Vec<_> = start().into_iter().chain(text("b", &["Hi"])).chain([stop]).collect();
    let frames = frames(&events);
    let last = frames.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["status"], "cancelled");
    assert_eq!(last["response"]["incomplete_details"], Value::Null);
}

#[test]
fn a_client_that_requested_json_gets_only_json() {
    let told = |events: &[Event<'static>]| {
        let encoding = EncoderOptions { wants_json: true, ..EncoderOptions::default() };
        let mut encoder = wire().encoder(&encoding).unwrap();
        let mut out = Frames::default();
        for event in events {
            encoder.encode(event, &mut out);
        }
        encoder.end(&mut out);
        let frames: Vec<Value> =
            out.iter().map(|(_, text)| serde_json::from_str(text).unwrap()).collect();
        is_sound(&frames);
        let output = &frames.last().unwrap()["response"]["output"];
        let texts =
            output.as_array().unwrap().iter().map(|item| item["content"][0]["text"].clone());
        (texts.collect::<Vec<_>>(), frames.len())
    };
    let structured = || {
        let structured_output = Some(Json::parse(r#"{"a":1}"#).unwrap());
        event(ReplyEnd { structured_output, ..ReplyEnd::default() })
    };
    let with = |blocks: Vec<Event<'static>>, end: Event<'static>| {
        let events: Vec<_> = start().into_iter().chain(blocks).chain([end]).collect();
        told(&events)
    };
    // Prose gives way to the structured output, and stays where there is none.
    assert_eq!(with(text("b", &["Here ", "it is"]), structured()).0, [r#"{"a":1}"#]);
    assert_eq!(with(text("b", &["Here ", "it is"]), end()).0, ["Here it is"]);
    // JSON is written as it comes, once.
    let (texts, frames) = with(text("b", &[" ", "{", "\"a\"", ":1}"]), structured());
    assert_eq!((texts, frames), (vec![json!(r#" {"a":1}"#)], 11));
    // A response with calls has only these.
    let blocks: Vec<_> = text("b", &["Let me see"]).into_iter().chain(call("c")).collect();
    let events: Vec<_> = start().into_iter().chain(blocks).collect();
    assert_eq!(told(&events).0, [Value::Null]);
}
