//! Law 6: the same on every wire, except for the wire's losses. `remove_losses.rs` removes each
//! loss from a message.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod remove_losses;

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

fn both_ways() -> impl Iterator<Item = &'static Wire> {
    Wire::all().filter(|wire| wire.can_decode() && wire.can_encode())
}

/// Wires without losses in their streams: every event survives.
#[test]
fn law_6_same_on_every_wire_for_events() {
    check_property("law_6_same_on_every_wire_for_events", 3000, |rng| {
        let event = values::event(rng);
        for wire in both_ways().filter(|wire| wire.stream_losses.is_empty()) {
            let body = encoded(wire, std::slice::from_ref(&event));
            assert_eq!(decoded(wire, &body), std::slice::from_ref(&event), "{}: {body}", wire.name);
        }
    });
}

/// A whole reply survives as the same message, except for the wire's losses.
#[test]
fn law_6_same_on_every_wire_for_replies() {
    check_property("law_6_same_on_every_wire_for_replies", 500, |rng| {
        for wire in both_ways() {
            reply_survives(rng, wire);
        }
    });
}

fn reply_survives(rng: &mut Rng, wire: &Wire) {
    let events = reply_for(rng, wire);
    let (there, back) = there_and_back(wire, &events);
    // An empty provider's stream is still a reply: a truncated one.
    if there.is_empty() {
        return;
    }
    let losses = wire.stream_losses;
    let seen = || encoded(wire, &events);
    assert_eq!(
        remove_losses::remove_all(losses, &back),
        remove_losses::remove_all(losses, &there),
        "{}:\n{}",
        wire.name,
        seen()
    );
}

/// A random reply that the wire can carry as a stream.
fn reply_for(rng: &mut Rng, wire: &Wire) -> Vec<Event<'static>> {
    let mut events = turnwire_testkit::random_reply(rng, "r").events;
    if wire.stream_losses.contains(&Loss::Interleaving) {
        events = stream::sequential(events);
    }
    if wire.stream_losses.contains(&Loss::Corrections) {
        events = stream::without_corrections(events);
    }
    events
}

/// The messages of these events, before and after a round trip.
fn there_and_back(wire: &Wire, events: &[Event<'_>]) -> (Vec<Msg>, Vec<Msg>) {
    let body = encoded(wire, events);
    (folded(wire, events), folded(wire, &decoded(wire, &body)))
}

#[test]
fn law_6_same_on_every_wire_for_messages() {
    check_property("law_6_same_on_every_wire_for_messages", 1500, |rng| {
        let messages = messages(rng);
        for wire in Wire::all().filter(|wire| wire.has_messages()) {
            let (list, again) = messages_there_and_back(wire, &messages);
            let losses = wire.message_losses;
            let expected = remove_losses::remove_all(losses, &messages);
            assert_eq!(
                remove_losses::remove_all(losses, &again),
                expected,
                "{}:\n{list}",
                wire.name
            );
        }
    });
}

fn messages(rng: &mut Rng) -> Vec<Msg> {
    (0..rng.usize(1..4)).map(|_| values::message(rng)).collect()
}

/// The written messages, and the messages read back.
fn messages_there_and_back(wire: &Wire, messages: &[Msg]) -> (String, Vec<Msg>) {
    let written = wire.encode_messages(messages).unwrap();
    let texts: Vec<&str> = written.iter().map(turnwire_core::Json::text).collect();
    let list = format!("[{}]", texts.join(","));
    let again = wire.decode_messages(&list);
    let again = again.unwrap_or_else(|error| panic!("{}: {error}\n{list}", wire.name));
    (list, again)
}

/// A late client is served by an encoder that has seen the same events, merged, with its frames
/// discarded. It ends with the same messages as an early client.
#[test]
fn law_6_a_late_client_ends_with_what_an_early_one_ended_with() {
    check_property("law_6_a_late_client_ends_with_what_an_early_one_ended_with", 300, |rng| {
        let events = stream::with_seqs(turnwire_testkit::random_reply(rng, "r").events);
        for wire in both_ways() {
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
    }
    sse::write(&frames, None, &mut body);
    body
}

/// Every listed loss is real: if any one is not removed, some case differs.
#[test]
fn law_6_every_listed_loss_is_real() {
    let mut rng = Rng::with_seed(6);
    let mut claims = Vec::new();
    for wire in Wire::all() {
        // The losses of a wire without a decoder can be tested only with its own clients.
        if wire.can_decode() && wire.can_encode() {
            let mut unproven = UnprovenLosses::new(wire.stream_losses);
            for _ in 0..TRIES {
                if unproven.left.is_empty() {
                    break;
                }
                let (there, back) = there_and_back(wire, &reply_for(&mut rng, wire));
                unproven.check_case(&there, &back);
                let any = turnwire_testkit::random_reply(&mut rng, "r").events;
                let (there, back) = there_and_back(wire, &any);
                unproven.check_order(&there, &back);
            }
            let special = special_replies().map(|events| there_and_back(wire, &events));
            for (there, back) in special {
                unproven.check_case(&there, &back);
            }
            claims.extend(unproven.unproven_claims(wire, "stream"));
        }
        if wire.has_messages() {
            let mut unproven = UnprovenLosses::new(wire.message_losses);
            for _ in 0..TRIES {
                if unproven.left.is_empty() {
                    break;
                }
                let there = messages(&mut rng);
                let (_, back) = messages_there_and_back(wire, &there);
                unproven.check_case(&there, &back);
            }
            claims.extend(unproven.unproven_claims(wire, "messages"));
        }
    }
    assert!(claims.is_empty(), "{}", claims.join("\n"));
}

const TRIES: usize = 1000;

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

/// Losses that no case has shown yet.
struct UnprovenLosses {
    all: Vec<Loss>,
    left: Vec<Loss>,
}

impl UnprovenLosses {
    fn new(losses: &[Loss]) -> Self {
        let mut all = losses.to_vec();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), losses.len(), "a loss is listed twice");
        Self { left: all.clone(), all }
    }

    /// A case that survives except for the losses: without removing one of them it differs.
    fn check_case(&mut self, there: &[Msg], back: &[Msg]) {
        let Self { all, left } = self;
        left.retain(|loss| {
            let others: Vec<Loss> = all.iter().copied().filter(|other| other != loss).collect();
            remove_losses::remove_all(&others, there) == remove_losses::remove_all(&others, back)
        });
    }

    /// Any case: it differs although every loss is removed, because of the order of its events.
    fn check_order(&mut self, there: &[Msg], back: &[Msg]) {
        if remove_losses::remove_all(&self.all, there) != remove_losses::remove_all(&self.all, back)
        {
            self.left.retain(|loss| !matches!(loss, Loss::Interleaving | Loss::Corrections));
        }
    }

    fn unproven_claims(&self, wire: &Wire, of: &str) -> Option<String> {
        let left = &self.left;
        (!left.is_empty()).then(|| format!("{}: its {of} lose no {left:?}", wire.name))
    }
}
