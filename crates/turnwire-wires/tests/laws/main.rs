//! Law 6: the same on every wire, except for the wire's losses. `remove_losses.rs` removes each
//! loss from a message.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[expect(dead_code, reason = "the tests of this wire use the rest")]
#[path = "../ag_ui/fake_client.rs"]
mod ag_ui_client;
#[path = "../ai_sdk/fake_client.rs"]
mod ai_sdk_client;
mod remove_losses;

use remove_losses::{PlainMessage, remove_all};
use serde_json::{Value, json};
use turnwire_core::{Event, Folder, Msg, coalesce};
use turnwire_testkit::{Rng, check_property, stream, values};
use turnwire_wires::openai_chat::StreamOptions;
use turnwire_wires::{DecoderOptions, EncoderOptions, Frames, Loss, Wire, sse};

/// Encodes these events as a stream.
fn encoded(wire: &Wire, events: &[Event<'_>]) -> String {
    frames(wire, &[], events)
}

fn decoded(wire: &Wire, body: &str) -> Vec<Event<'static>> {
    let decoder = wire.decoder(&DecoderOptions::default()).unwrap();
    decoder
        .decode_all(body.as_bytes())
        .unwrap_or_else(|error| panic!("{}: {error}\n{body}", wire.name))
}

fn folded(wire: &Wire, events: &[Event<'_>]) -> Vec<Msg> {
    let mut folder = Folder::default();
    for event in events {
        folder
            .push(event)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", wire.name, event.to_json()));
    }
    folder.into_messages().collect()
}

/// The messages that a client has after reading this stream.
fn received(wire: &Wire, body: &str) -> Vec<Msg> {
    if wire.can_decode() {
        return folded(wire, &decoded(wire, body));
    }
    let frames = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let frames = frames.filter(|frame| Some(*frame) != wire.end_marker);
    let messages = match wire.name {
        "ag-ui" => {
            let mut client = ag_ui_client::Client::default();
            frames.for_each(|frame| client.apply_frame(frame));
            return read_ag_ui_client(wire, client);
        }
        "ai-sdk" => {
            let mut client = ai_sdk_client::Client::default();
            let chunks: Vec<Value> =
                frames.map(|frame| serde_json::from_str(frame).unwrap()).collect();
            client.response(&chunks);
            let ai_sdk_client::Client { id, metadata, mut parts, .. } = client;
            // The replies of sub-agents.
            parts.retain(|part| part["type"] != "data-subagent");
            json!([{"id": id, "role": "assistant", "metadata": metadata, "parts": parts}])
        }
        name => panic!("no client reads the streams of {name}"),
    };
    wire.decode_messages(&messages.to_string())
        .unwrap_or_else(|error| panic!("{}: {error}\n{body}", wire.name))
}

/// The messages of an AG-UI client, with what the ends of its runs say about the reply.
fn read_ag_ui_client(wire: &Wire, client: ag_ui_client::Client) -> Vec<Msg> {
    let mut messages = wire.decode_messages(&Value::from(client.messages).to_string()).unwrap();
    let Some((reply, end)) = messages.first_mut().zip(client.ends.last()) else { return messages };
    let mut fields: Value = serde_json::from_str(&reply.to_json()).unwrap();
    let ended = match end["code"].as_str() {
        Some("incomplete") => Value::Null,
        Some(code) => {
            fields["error"] = json!({"type": code, "message": end["message"]});
            "error".into()
        }
        None => {
            fields["structured_output"] = end["result"].clone();
            let pending = end["outcome"]["pendingToolCallIds"].as_array();
            match end["outcome"]["type"].as_str() {
                Some("cancelled") => "interrupted".into(),
                Some("success") if pending.is_none_or(Vec::is_empty) => {
                    let reason = &end["metadata"]["turnwire"]["finished_reason"];
                    if reason.is_null() { "completed".into() } else { reason.clone() }
                }
                _ => Value::Null,
            }
        }
    };
    fields["finished_reason"] = ended;
    let models = client.ends.iter().filter_map(|end| end["usage"].as_array()).flatten();
    let sum = |key: &str| models.clone().filter_map(|model| model[key].as_u64()).sum::<u64>();
    if models.clone().next().is_some() {
        fields["usage"] = json!({
            "input_tokens": sum("inputTokens"), "output_tokens": sum("outputTokens"),
            "cache_input_tokens": sum("cachedInputTokens"),
            "cache_creation_input_tokens": sum("cacheWriteInputTokens"),
        });
    }
    *reply = Msg::from_json(&fields.to_string()).unwrap();
    messages
}

fn encoders() -> impl Iterator<Item = &'static Wire> {
    Wire::all().filter(|wire| wire.can_encode())
}

/// Wires without losses in their streams: every event survives.
#[test]
fn law_6_same_on_every_wire_for_events() {
    check_property("law_6_same_on_every_wire_for_events", 3000, |rng| {
        let event = values::event(rng);
        for wire in encoders().filter(|wire| wire.stream_losses.is_empty()) {
            let body = encoded(wire, std::slice::from_ref(&event));
            assert_eq!(decoded(wire, &body), std::slice::from_ref(&event), "{}: {body}", wire.name);
        }
    });
}

/// A whole reply survives as the same message, except for the wire's losses.
#[test]
fn law_6_same_on_every_wire_for_replies() {
    check_property("law_6_same_on_every_wire_for_replies", 500, |rng| {
        for wire in encoders() {
            let events = turnwire_testkit::random_reply(rng, "r").events;
            let [there, back] = send_reply(wire, wire.stream_losses, &events);
            assert_eq!(back, there, "{}:\n{}", wire.name, encoded(wire, &events));
        }
    });
}

/// The message of these events before and after the wire, without these losses.
fn send_reply(wire: &Wire, losses: &[Loss], events: &[Event<'static>]) -> [Vec<PlainMessage>; 2] {
    let mut events = events.to_vec();
    if losses.contains(&Loss::Interleaving) {
        events = stream::sequential(events);
    }
    if losses.contains(&Loss::Corrections) {
        events = stream::without_corrections(events);
    }
    if losses.contains(&Loss::RewrittenBlocks) {
        events = stream::without_rewrites(events);
    }
    let mut there = folded(wire, &events);
    if !wire.can_decode() {
        // Clients read JSON into their own numbers and texts.
        for msg in &mut there {
            let value: Value = serde_json::from_str(&msg.to_json()).unwrap();
            *msg = Msg::from_json(&value.to_string()).unwrap();
        }
    }
    // An empty provider's stream is still a reply: a truncated one.
    let back = if there.is_empty() { Vec::new() } else { received(wire, &encoded(wire, &events)) };
    [there, back].map(|messages| remove_all(losses, &messages))
}

#[test]
fn law_6_same_on_every_wire_for_messages() {
    check_property("law_6_same_on_every_wire_for_messages", 1500, |rng| {
        let messages = messages(rng);
        for wire in Wire::all().filter(|wire| wire.has_messages()) {
            let [there, back] = send_messages(wire, wire.message_losses, &messages);
            assert_eq!(back, there, "{}", wire.name);
        }
    });
}

fn messages(rng: &mut Rng) -> Vec<Msg> {
    (0..rng.usize(1..4)).map(|_| values::message(rng)).collect()
}

/// The messages before and after the wire, without these losses.
fn send_messages(wire: &Wire, losses: &[Loss], messages: &[Msg]) -> [Vec<PlainMessage>; 2] {
    let written = wire.encode_messages(messages).unwrap();
    let list = serde_json::to_string(&written).unwrap();
    let back = wire.decode_messages(&list);
    let back = back.unwrap_or_else(|error| panic!("{}: {error}\n{list}", wire.name));
    [messages, &back].map(|messages| remove_all(losses, messages))
}

/// A late client is served by an encoder that has seen the same events, merged, with its frames
/// discarded. It ends with the same messages as an early client. AG-UI and the AI SDK are not part of this: their
/// late clients get a snapshot, or the whole reply again (`Wire::resume`), which `tests/ag_ui` and `tests/ai_sdk` test.
#[test]
fn law_6_a_late_client_ends_with_what_an_early_one_ended_with() {
    check_property("law_6_a_late_client_ends_with_what_an_early_one_ended_with", 300, |rng| {
        let events = stream::with_seqs(turnwire_testkit::random_reply(rng, "r").events);
        for wire in Wire::all().filter(|wire| wire.can_decode() && wire.can_encode()) {
            let at = rng.usize(..=events.len());
            let (seen, tail) = events.split_at(at);
            let early = frames(wire, &[], &events);
            let merged: Vec<Event<'_>> = coalesce(seen.iter().cloned()).collect();
            let joined = frames_of(wire, &[], seen, false) + &frames(wire, &merged, tail);
            let [early, late] = [early, joined].map(|body| folded(wire, &decoded(wire, &body)));
            assert_eq!(late, early, "{}, who came at event {at}", wire.name);
        }
    });
}

/// The frames of an encoder that has seen some events before.
fn frames(wire: &Wire, before: &[Event<'_>], events: &[Event<'_>]) -> String {
    frames_of(wire, before, events, true)
}

fn frames_of(wire: &Wire, before: &[Event<'_>], events: &[Event<'_>], to_the_end: bool) -> String {
    let mut encoder = wire
        .encoder(&EncoderOptions::default().with(StreamOptions { include_usage: true }))
        .unwrap();
    let (mut frames, mut body) = (Frames::default(), String::new());
    for event in before {
        encoder.encode(event, &mut frames);
    }
    frames.clear();
    for event in events {
        encoder.encode(event, &mut frames);
    }
    if to_the_end {
        encoder.end(&mut frames);
        wire.end_marker.into_iter().for_each(|marker| frames.push_text("", marker));
    }
    sse::write(&frames, None, &mut body);
    body
}

/// Every listed loss is real: it alone makes some case differ.
#[test]
fn law_6_every_listed_loss_is_real() {
    let mut rng = Rng::with_seed(6);
    let mut claims = Vec::new();
    for wire in Wire::all() {
        if wire.can_encode() {
            let random = (0..TRIES).map(|_| turnwire_testkit::random_reply(&mut rng, "r").events);
            let replies = special_replies().into_iter().chain(random);
            let left = unproven(wire, wire.stream_losses, replies, |losses, events| {
                send_reply(wire, losses, events)
            });
            claims.extend(left.map(|loss| format!("{}: its stream loses no {loss:?}", wire.name)));
        }
        if wire.has_messages() {
            let random = (0..TRIES).map(|_| messages(&mut rng));
            let left = unproven(wire, wire.message_losses, random, |losses, messages| {
                send_messages(wire, losses, messages)
            });
            claims.extend(left.map(|loss| format!("{}: its messages lose no {loss:?}", wire.name)));
        }
    }
    assert!(claims.is_empty(), "{}", claims.join("\n"));
}

const TRIES: usize = 1000;

/// The losses that no case proves. Every case survives without all losses. It proves a loss if it does not
/// survive without all but this one.
fn unproven<C>(
    wire: &Wire,
    losses: &[Loss],
    cases: impl Iterator<Item = C>,
    send: impl Fn(&[Loss], &C) -> [Vec<PlainMessage>; 2],
) -> impl Iterator<Item = Loss> {
    let mut left: Vec<usize> = (0..losses.len()).collect();
    for case in cases {
        if left.is_empty() {
            break;
        }
        let [there, without_losses] = send(losses, &case);
        assert_eq!(without_losses, there, "{}: a loss is not listed", wire.name);
        left.retain(|at| {
            // By position: a loss that is listed twice is never proven.
            let [there, back] = send(&[&losses[..*at], &losses[at + 1..]].concat(), &case);
            there == back || (leaves_out_blocks(losses[*at]) && back != without_losses)
        });
    }
    left.into_iter().map(|at| losses[at])
}

/// Whether the other side has no such blocks.
fn leaves_out_blocks(loss: Loss) -> bool {
    matches!(loss, Loss::Hints | Loss::Data | Loss::OtherBlocks | Loss::ToolResults)
}

/// Replies that are never generated: a long result, an unknown finish reason, tags, a sub-agent.
fn special_replies() -> [Vec<Event<'static>>; 4] {
    let long = "long ".repeat(200);
    [
        vec![
            r#"{"type":"REPLY_START","reply_id":"r"}"#.to_owned(),
            r#"{"type":"TOOL_CALL_START","reply_id":"r","tool_call_id":"c","tool_call_name":"t"}"#.into(),
            r#"{"type":"TOOL_CALL_END","reply_id":"r","tool_call_id":"c"}"#.into(),
            r#"{"type":"TOOL_RESULT_START","reply_id":"r","tool_call_id":"c"}"#.into(),
            format!(
                r#"{{"type":"TOOL_RESULT_TEXT_DELTA","reply_id":"r","tool_call_id":"c","delta":"{long}"}}"#
            ),
            r#"{"type":"TOOL_RESULT_END","reply_id":"r","tool_call_id":"c","state":"success"}"#.into(),
            r#"{"type":"REPLY_END","reply_id":"r"}"#.into(),
        ],
        vec![
            r#"{"type":"REPLY_START","reply_id":"r"}"#.to_owned(),
            r#"{"type":"REPLY_END","reply_id":"r","finished_reason":"sleepy"}"#.into(),
        ],
        vec![
            r#"{"type":"REPLY_START","reply_id":"r"}"#.to_owned(),
            r#"{"type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#.into(),
            r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"<think>a</think>b"}"#.into(),
            r#"{"type":"REPLY_END","reply_id":"r"}"#.into(),
        ],
        vec![
            r#"{"type":"REPLY_START","reply_id":"r"}"#.to_owned(),
            r#"{"type":"REPLY_START","reply_id":"s","agent_path":"a/b","parent_tool_call_id":"c"}"#.into(),
            r#"{"type":"TEXT_BLOCK_START","reply_id":"s","agent_path":"a/b","parent_tool_call_id":"c","block_id":"b"}"#.into(),
            r#"{"type":"REPLY_END","reply_id":"s","agent_path":"a/b","parent_tool_call_id":"c"}"#.into(),
            r#"{"type":"REPLY_END","reply_id":"r"}"#.into(),
        ],
    ]
    .map(|lines| lines.iter().map(|line| Event::from_json(line).unwrap().into_owned()).collect())
}
