//! Reads any bytes as a body, and its frames as JSON of the two lossless wires.
//!
//! Frames do not depend on how the body is split. An event or message that was read is written as one
//! line of JSON on both wires, and reads back as the same value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Debug;
use turnwire_core::{Event, EventKind, Msg, Result};
use turnwire_fuzz::assert_one_line_of_json;
use turnwire_fuzz::pieces::split_bytes;
use turnwire_wires::agentscope;
use turnwire_wires::body::{BadFrame, Frame, FrameReader};

/// A frame limit that inputs of a few hundred bytes exceed.
const SMALL_LIMIT: usize = 40;

fuzz_target!(|body: &[u8]| {
    for text in frames(body, FrameReader::default).into_iter().filter_map(|(_, text)| text.ok()) {
        read_event(&text);
        read_message(&text);
    }
    frames(body, || FrameReader::with_limit(SMALL_LIMIT));
});

/// An owned frame.
type OwnedFrame = (u64, Result<String, BadFrame>);

/// The body's frames. They must be the same for every split.
fn frames(body: &[u8], reader: impl Fn() -> FrameReader) -> Vec<OwnedFrame> {
    let whole = read_frames(reader(), [body]);
    assert_eq!(read_frames(reader(), split_bytes(body)), whole, "split into pieces");
    assert_eq!(read_frames(reader(), body.chunks(1)), whole, "split into bytes");
    whole
}

fn read_frames<'b>(
    mut reader: FrameReader,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> Vec<OwnedFrame> {
    let mut found = Vec::new();
    let mut keep = |frame: Frame<'_>| found.push((frame.line, frame.text.map(str::to_owned)));
    for piece in pieces {
        reader.feed(piece, &mut keep);
    }
    reader.end(&mut keep);
    found
}

fn read_event(text: &str) {
    match both_or_neither(Event::from_json(text), agentscope::decode_event(text)) {
        Ok(events) => events.iter().for_each(check_event_survives),
        Err(error) => {
            assert!(!has_unknown_type(text), "an event of an unknown type must be read: {error}")
        }
    }
}

fn check_event_survives(event: &Event<'_>) {
    assert_eq!(event.clone().into_owned(), *event);
    let line = event.to_json();
    assert_one_line_of_json(&line);
    assert_eq!(Event::from_json(&line).as_ref(), Ok(event), "wrote {line}");
    let line = agentscope::encode_event(event);
    assert_one_line_of_json(&line);
    assert_eq!(agentscope::decode_event(&line).as_ref(), Ok(event), "wrote {line}");
}

fn read_message(text: &str) {
    if let Ok(messages) = both_or_neither(Msg::from_json(text), agentscope::decode_message(text)) {
        messages.iter().for_each(check_message_survives);
    }
}

fn check_message_survives(msg: &Msg) {
    let line = msg.to_json();
    assert_one_line_of_json(&line);
    assert_eq!(Msg::from_json(&line).as_ref(), Ok(msg), "wrote {line}");
    let line = agentscope::encode_message(msg);
    assert_one_line_of_json(&line);
    assert_eq!(agentscope::decode_message(&line).as_ref(), Ok(msg), "wrote {line}");
}

/// Both wires have the same JSON, so what one reads the other must read too.
fn both_or_neither<T: Debug>(one: Result<T>, other: Result<T>) -> Result<[T; 2]> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok([one, other]),
        (Err(error), Err(_)) => Err(error),
        (Ok(read), Err(refused)) | (Err(refused), Ok(read)) => {
            panic!("one wire reads {read:?}, another says {refused}")
        }
    }
}

/// Whether the text is an object with an unknown `type`.
fn has_unknown_type(text: &str) -> bool {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    fields
        .get("type")
        .and_then(|word| serde_json::from_str::<String>(word.get()).ok())
        .is_some_and(|word| !EventKind::TYPES.contains(&&*word))
}
