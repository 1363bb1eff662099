//! Any bytes as a body.
//!
//! Frames do not depend on where the body is cut. What is read as an event or a message on any wire
//! is written as one line of JSON on every wire, and reads back as the same value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Debug;
use turnwire_core::{Event, EventKind, Msg, Result};
use turnwire_fuzz::cut;
use turnwire_wires::Wire;
use turnwire_wires::frames::{BadFrame, Frame, Frames};

/// So small that inputs of a few hundred bytes go beyond it.
const SMALL: usize = 40;

fuzz_target!(|body: &[u8]| {
    for text in frames(body, Frames::default).into_iter().filter_map(|(_, text)| text.ok()) {
        read_event(&text);
        read_message(&text);
    }
    frames(body, || Frames::with_limit(SMALL));
});

/// A frame that can be kept.
type Kept = (u64, Result<String, BadFrame>);

/// The body's frames, which are the same however it is cut.
fn frames(body: &[u8], reader: impl Fn() -> Frames) -> Vec<Kept> {
    let whole = cut_into_frames(reader(), [body]);
    assert_eq!(cut_into_frames(reader(), cut::bytes(body)), whole, "cut into pieces");
    assert_eq!(cut_into_frames(reader(), body.chunks(1)), whole, "cut into bytes");
    whole
}

fn cut_into_frames<'b>(
    mut reader: Frames,
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
    match read_alike(|wire| wire.decode_event(text)) {
        Ok(events) => events.iter().for_each(event_survives),
        Err(error) => assert!(!is_of_unknown_type(text), "unknown, so it survives: {error}"),
    }
}

fn event_survives(event: &Event<'_>) {
    assert_eq!(event.clone().into_owned(), *event);
    for wire in Wire::ALL {
        let line = wire.encode_event(event);
        assert_one_line_of_json(&line);
        let again = wire.decode_event(&line);
        assert_eq!(again.as_ref(), Ok(event), "{} wrote {line}", wire.name());
    }
}

fn read_message(text: &str) {
    if let Ok(messages) = read_alike(|wire| wire.decode_message(text)) {
        messages.iter().for_each(message_survives);
    }
}

fn message_survives(msg: &Msg) {
    for wire in Wire::ALL {
        let line = wire.encode_message(msg);
        assert_one_line_of_json(&line);
        let again = wire.decode_message(&line);
        assert_eq!(again.as_ref(), Ok(msg), "{} wrote {line}", wire.name());
    }
}

/// Reads on every wire. All are the same JSON, so what one of them reads the others read too.
fn read_alike<T: Debug>(read: impl Fn(Wire) -> Result<T>) -> Result<Vec<T>> {
    let all = Wire::ALL.map(read);
    if let (Some(Ok(read)), Some(Err(refused))) =
        (all.iter().find(|read| read.is_ok()), all.iter().find(|read| read.is_err()))
    {
        panic!("one wire reads {read:?}, another says {refused}");
    }
    all.into_iter().collect()
}

/// Whether the text is an object whose type this version does not know.
fn is_of_unknown_type(text: &str) -> bool {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    fields
        .get("type")
        .and_then(|word| serde_json::from_str::<String>(word.get()).ok())
        .is_some_and(|word| !EventKind::TYPES.contains(&&*word))
}

fn assert_one_line_of_json(line: &str) {
    assert!(!line.contains(['\n', '\r']), "more than one line: {line}");
    if let Err(error) = serde_json::from_str::<&RawValue>(line) {
        panic!("not JSON ({error}): {line}");
    }
}
