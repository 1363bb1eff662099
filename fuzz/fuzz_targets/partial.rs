//! Reads any text as the input of a tool call that arrives in pieces.
//!
//! The value does not depend on the pieces, and a complete value is the one that `serde_json` reads.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use turnwire_core::partial::{PartialJson, PartialState};
use turnwire_fuzz::pieces::split_text;

fuzz_target!(|bytes: &[u8]| {
    let text = &*String::from_utf8_lossy(bytes);
    let mut in_chars = [0; 4];
    let whole = read([text]);
    let expected = serde_json::from_str::<Value>(text);

    let mut char_by_char = PartialJson::new();
    for c in text.chars() {
        char_by_char.push(c.encode_utf8(&mut in_chars));
    }
    for split in [&read(split_text(text)), &char_by_char] {
        assert_eq!(split.state(), whole.state(), "the state depends on the pieces");
        if !is_out_of_range(&whole, expected.as_ref().err()) {
            assert_eq!(split.value(), whole.value(), "the value depends on the pieces");
        }
    }

    // `serde_json` uses this name for its own raw values; for us it is an ordinary key.
    if text.contains("RawValue") {
        return;
    }
    match (whole.state(), expected) {
        (PartialState::Complete, expected) => assert_eq!(whole.value(), expected.ok().as_ref()),
        // A number at the root is complete only when something follows it.
        (PartialState::Open, Ok(number)) => {
            assert!(number.is_number() && !text.ends_with([' ', '\t', '\n', '\r']));
            // Only the first 64 characters of an open number are shown.
            if text.trim().len() < 64 {
                assert_eq!(whole.value(), Some(&number));
            }
        }
        (PartialState::Broken, Ok(value)) => panic!("broken, but serde_json reads {value}"),
        (PartialState::Open | PartialState::Broken, Err(_)) => {}
    }
});

fn read<'a>(pieces: impl IntoIterator<Item = &'a str>) -> PartialJson {
    let mut json = PartialJson::new();
    for piece in pieces {
        json.push(piece);
    }
    json
}

/// Only for a number out of range may the shown value depend on the pieces.
fn is_out_of_range(json: &PartialJson, error: Option<&serde_json::Error>) -> bool {
    json.state() == PartialState::Broken
        && error.is_some_and(|error| error.to_string().starts_with("number out of range"))
}
