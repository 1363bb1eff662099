//! Runs recordings of real providers through a decoder, framed and cut in many ways.
//!
//! Each provider's test computes the expected message in another way than the decoder: from whole JSON trees, with the
//! complete stream at hand.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use turnwire_core::{FinishedReason, Folder, Msg, TextBlock, ThinkingBlock, ToolCall};
use turnwire_testkit::{Rng, check_property, fixtures};
use turnwire_wires::{Decoded, DecoderOptions, Wire};

/// What a recording must become.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// All text, joined.
    pub text: String,
    /// All thinking, joined.
    pub thinking: String,
    /// The tool calls: name and arguments as the provider wrote them.
    pub calls: Vec<(String, String)>,
    /// Tokens read and written.
    pub usage: (i64, i64),
    /// Our finish reason.
    pub reason: String,
}

/// The recordings of one provider.
pub struct Provider {
    /// The wire.
    pub wire: &'static str,
    /// Whether a recording of this name is on this wire.
    pub claims: fn(&str) -> bool,
    /// What the payloads must become.
    pub expected: fn(&[Value]) -> Expected,
    /// Whether the stream may count as ended once this payload was seen.
    pub is_terminal: fn(&Value) -> bool,
    /// Frames without content that real servers send between the others.
    pub pings: &'static [&'static str],
    /// What the provider sends after the last frame.
    pub last_word: Option<&'static str>,
}

/// Checks all recordings of the provider, and that there are at least this many. Records a skip if the fixtures are missing.
pub fn check_all(provider: &Provider, at_least: usize) {
    let Some(recordings) = read_recordings(provider.wire, provider.claims) else { return };
    for (name, text) in &recordings {
        let payloads: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        check_one(provider, name, &payloads);
    }
    assert!(recordings.len() >= at_least, "only {} recordings", recordings.len());
}

/// The recordings of a wire, by name. Records a skip if the fixtures are missing.
pub fn read_recordings(wire: &str, claims: fn(&str) -> bool) -> Option<BTreeMap<String, String>> {
    let folder = fixtures(&format!("recordings of {wire}"))?.join("provider-streams");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry)));
    let claimed = named.filter(|(name, _)| claims(name));
    Some(claimed.map(|(name, entry)| (name, fs::read_to_string(entry.path()).unwrap())).collect())
}

fn check_one(provider: &Provider, name: &str, payloads: &[&str]) {
    let trees: Vec<Value> =
        payloads.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let plain = fold(provider.wire, &[lines(payloads).as_bytes()], name);
    assert_eq!(summarize(&plain), (provider.expected)(&trees), "{name}");

    check_property(name, 12, |rng| {
        let body = frame_randomly(rng, provider, payloads);
        let pieces = cut_randomly(rng, body.as_bytes());
        assert_eq!(fold(provider.wire, &pieces, name), plain, "{name} framed as\n{body}");

        let end = rng.usize(..body.len());
        let half = fold(provider.wire, &[body.as_bytes().get(..end).unwrap()], name);
        let whole_frames = whole_frames(body.get(..end).unwrap_or(""), payloads);
        let ended = trees.iter().take(whole_frames).any(|tree| (provider.is_terminal)(tree));
        if !ended {
            let reason = half.finished_reason();
            assert_ne!(reason, Some(&FinishedReason::Completed), "{name} cut at byte {end}");
            assert_ne!(reason, None, "{name} cut at byte {end}");
        }
    });
}

/// How many payloads are complete in a body that was cut.
fn whole_frames(body: &str, payloads: &[&str]) -> usize {
    let mut from = 0;
    let mut count = 0;
    for payload in payloads {
        match body.get(from..).and_then(|rest| rest.find(payload)) {
            Some(at) => from += at + payload.len(),
            None => break,
        }
        count += 1;
    }
    count
}

fn lines(payloads: &[&str]) -> String {
    payloads.join("\n")
}

/// The payloads as a real server may send them.
fn frame_randomly(rng: &mut Rng, provider: &Provider, payloads: &[&str]) -> String {
    let end = if rng.bool() { "\r\n" } else { "\n" };
    let mut body = String::new();
    let noise = |rng: &mut Rng, body: &mut String| match rng.usize(..8) {
        0 => write!(body, ": keep-alive{end}{end}").unwrap(),
        1 if !provider.pings.is_empty() => {
            let ping = provider.pings[rng.usize(..provider.pings.len())];
            write!(body, "event: ping{end}data: {ping}{end}{end}").unwrap();
        }
        _ => {}
    };
    for payload in payloads {
        noise(rng, &mut body);
        if rng.bool() {
            write!(body, "event: message{end}").unwrap();
        }
        write!(body, "data: {payload}{end}{end}").unwrap();
    }
    noise(rng, &mut body);
    if let Some(word) = provider.last_word {
        write!(body, "data: {word}{end}{end}").unwrap();
    }
    body
}

fn cut_randomly<'b>(rng: &mut Rng, body: &'b [u8]) -> Vec<&'b [u8]> {
    let longest = *turnwire_testkit::pick(rng, &[1, 3, 40, 4000]);
    let mut pieces = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rng.usize(1..=longest.min(rest.len())));
        pieces.push(piece);
        rest = more;
    }
    pieces
}

/// The one message that the pieces fold to, without errors.
fn fold(wire: &str, pieces: &[&[u8]], name: &str) -> Msg {
    let mut decoder = Wire::named(wire).unwrap().decoder(&DecoderOptions::default()).unwrap();
    let mut folder = Folder::default();
    let mut each = |decoded: Decoded<'_>| match decoded.event {
        Ok(event) => {
            folder
                .push(&event)
                .unwrap_or_else(|error| panic!("{name}: {error}: {}", event.to_json()));
        }
        Err(error) => panic!("{name}, line {}: {error}", decoded.line),
    };
    for piece in pieces {
        decoder.feed(piece, &mut each);
    }
    decoder.end(&mut each);
    let mut messages = folder.into_messages();
    let msg = messages.next().unwrap_or_else(|| panic!("{name}: no message"));
    assert!(messages.next().is_none(), "{name}: one stream is one reply");
    msg
}

fn summarize(msg: &Msg) -> Expected {
    let text = msg.blocks::<TextBlock>().map(|block| block.text.as_str()).collect();
    let thinking = msg.blocks::<ThinkingBlock>().map(|block| block.thinking.as_str()).collect();
    let calls = msg.blocks::<ToolCall>().map(|call| (call.name.clone(), call.input.clone()));
    Expected {
        text,
        thinking,
        calls: calls.collect(),
        usage: msg.usage().map_or((0, 0), |usage| (usage.input_tokens, usage.output_tokens)),
        reason: msg.finished_reason().map_or(String::new(), ToString::to_string),
    }
}
