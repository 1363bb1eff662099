//! Encodes any stream of events on every wire that can be written.
//!
//! Every frame is one line of JSON. The same events give the same frames, a client may join at any event,
//! and the output grows at most linearly with the input.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwire_core::{Event, Folder, Msg};
use turnwire_fuzz::assert_one_line_of_json;
use turnwire_fuzz::script::{Script, Step};
use turnwire_wires::{EncoderOptions, Frames, Wire};

fuzz_target!(|bytes: &[u8]| {
    let events: Vec<Event<'_>> = Script::new(bytes)
        .filter_map(|step| match step {
            Step::Event(event) => Some(event),
            Step::Store => None,
        })
        .collect();
    let size: usize = events.iter().map(|event| event.to_json().len()).sum();
    for wire in Wire::all().filter(|wire| wire.can_encode()) {
        let once = encoded(wire, &events, None);
        assert_eq!(encoded(wire, &events, None), once, "{}", wire.name);
        let at = bytes.first().map_or(0, |&byte| usize::from(byte)) % (events.len() + 1);
        encoded(wire, &events, Some(at));
        let written: usize = once.iter().map(|(_, text)| text.len()).sum();
        assert!(written <= 64 * 1024 + 64 * size, "{}: {size} became {written}", wire.name);
        for (_, text) in &once {
            if Some(text.as_str()) != wire.end_marker {
                assert_one_line_of_json(text);
            }
        }
    }
});

/// The frames for a client that is there from the start, or that joins at event `from`.
fn encoded(wire: &Wire, events: &[Event<'_>], from: Option<usize>) -> Vec<(&'static str, String)> {
    let mut encoder = wire.encoder(&EncoderOptions::default()).expect("the wire can be encoded");
    let mut frames = Frames::default();
    let mut folder = Folder::default();
    for (at, event) in events.iter().enumerate() {
        if from == Some(at) {
            frames.clear();
            let messages: Vec<Msg> = folder.messages().cloned().collect();
            encoder.resume(&messages, &mut frames);
        }
        encoder.encode(event, &mut frames);
        if from.is_some() {
            folder.push_tolerant(event);
        }
    }
    encoder.end(&mut frames);
    frames.iter().map(|(name, text)| (name, text.to_owned())).collect()
}
