//! Tool input while it streams: any text, cut anywhere.
//!
//! What is shown does not depend on the cuts, and what is complete is what `serde_json` reads.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use turnwire_core::partial::{PartialJson, PartialState};
use turnwire_fuzz::cut;

fuzz_target!(|bytes: &[u8]| {
    let text = &*String::from_utf8_lossy(bytes);
    let mut in_chars = [0; 4];
    let whole = read([text]);
    let expected = serde_json::from_str::<Value>(text);

    let mut char_by_char = PartialJson::new();
    for c in text.chars() {
        char_by_char.push(c.encode_utf8(&mut in_chars));
    }
    for cut in [&read(cut::text(text)), &char_by_char] {
        assert_eq!(cut.state(), whole.state(), "the state depends on the cuts");
        if !broke_by_its_range(&whole, expected.as_ref().err()) {
            assert_eq!(cut.value(), whole.value(), "the value depends on the cuts");
        }
    }

    // By this name `serde_json` recognises its own raw values; for us it is a name like any other.
    if text.contains("RawValue") {
        return;
    }
    match (whole.state(), expected) {
        (PartialState::Complete, expected) => assert_eq!(whole.value(), expected.ok().as_ref()),
        // A number at the root has no end of its own.
        (PartialState::Open, Ok(number)) => {
            assert!(number.is_number() && !text.ends_with([' ', '\t', '\n', '\r']));
            // From its 64th character on it shows what these 64 say.
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

/// Only of such a number what is shown may depend on the cuts.
fn broke_by_its_range(json: &PartialJson, error: Option<&serde_json::Error>) -> bool {
    json.state() == PartialState::Broken
        && error.is_some_and(|error| error.to_string().starts_with("number out of range"))
}
