//! Any bytes as a body, and as JSON of the canonical wires.
//!
//! Frames do not depend on where the body is cut. What is read as an event or a message on a wire
//! that loses nothing is written as one line of JSON on every such wire, and reads back as the same
//! value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Debug;
use turnwire_core::{Event, EventKind, Msg, Result};
use turnwire_fuzz::{assert_one_line_of_json, cut};
use turnwire_wires::agentscope;
use turnwire_wires::body::{BadFrame, Body, Frame};

/// So small that inputs of a few hundred bytes go beyond it.
const SMALL: usize = 40;

fuzz_target!(|body: &[u8]| {
    for text in frames(body, FrameReader::default).into_iter().filter_map(|(_, text)| text.ok()) {
        read_event(&text);
        read_message(&text);
    }
    frames(body, || FrameReader::with_limit(SMALL));
});

/// A frame that can be kept.
type Kept = (u64, Result<String, BadFrame>);

/// The body's frames, which are the same however it is cut.
fn frames(body: &[u8], reader: impl Fn() -> Body) -> Vec<Kept> {
    let whole = cut_into_frames(reader(), [body]);
    assert_eq!(cut_into_frames(reader(), cut::bytes(body)), whole, "cut into pieces");
    assert_eq!(cut_into_frames(reader(), body.chunks(1)), whole, "cut into bytes");
    whole
}

fn cut_into_frames<'b>(
    mut reader: FrameReader,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> Vec<Kept> {
    let mut found = Vec::new();
    let mut keep = |frame: Frame<'_>| found.push((frame.line, frame.text.map(str::to_owned)));
    for piece in pieces {
        reader.feed(piece, &mut keep);
    }
    reader.end(&mut keep);
    found
}

fn read_event(text: &str) {
    match alike(Event::from_json(text), agentscope::decode_event(text)) {
        Ok(events) => events.iter().for_each(event_survives),
        Err(error) => assert!(!is_of_unknown_type(text), "unknown, so it survives: {error}"),
    }
}

fn event_survives(event: &Event<'_>) {
    assert_eq!(event.clone().into_owned(), *event);
    let line = event.to_json();
    assert_one_line_of_json(&line);
    assert_eq!(Event::from_json(&line).as_ref(), Ok(event), "wrote {line}");
    let line = agentscope::encode_event(event);
    assert_one_line_of_json(&line);
    assert_eq!(agentscope::decode_event(&line).as_ref(), Ok(event), "wrote {line}");
}

fn read_message(text: &str) {
    if let Ok(messages) = alike(Msg::from_json(text), agentscope::decode_message(text)) {
        messages.iter().for_each(message_survives);
    }
}

fn message_survives(msg: &Msg) {
    let line = msg.to_json();
    assert_one_line_of_json(&line);
    assert_eq!(Msg::from_json(&line).as_ref(), Ok(msg), "wrote {line}");
    let line = agentscope::encode_message(msg);
    assert_one_line_of_json(&line);
    assert_eq!(agentscope::decode_message(&line).as_ref(), Ok(msg), "wrote {line}");
}

/// Both are the same JSON, so what one of them reads the other reads too.
fn alike<T: Debug>(one: Result<T>, other: Result<T>) -> Result<[T; 2]> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok([one, other]),
        (Err(error), Err(_)) => Err(error),
        (Ok(read), Err(refused)) | (Err(refused), Ok(read)) => {
            panic!("one wire reads {read:?}, another says {refused}")
        }
    }
}

/// Whether the text is an object whose type this version does not know.
fn is_of_unknown_type(text: &str) -> bool {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    fields
        .get("type")
        .and_then(|word| serde_json::from_str::<String>(word.get()).ok())
        .is_some_and(|word| !EventKind::TYPES.contains(&&*word))
}
