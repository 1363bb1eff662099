//! Any bytes as a stream of one wire, which `WIRE` names.
//!
//! Events do not depend on where the stream is cut, and read back from their JSON. A model provider's
//! stream, whatever it is, folds to exactly one message without a problem (but bad base64), and that one
//! has ended.
//! What is read as messages is written, and read again, on the same wire.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use turnwire_core::{ErrorKind, Event, Folder, Json};
use turnwire_fuzz::cut;
use turnwire_wires::{Decoded, Decoding, Wire};

static WIRE: LazyLock<&Wire> = LazyLock::new(|| {
    let name = std::env::var("WIRE").unwrap_or_default();
    Wire::named(&name).unwrap_or_else(|| panic!("WIRE={name}: there is no such wire"))
});

fuzz_target!(|body: &[u8]| {
    if WIRE.can_decode() {
        stream(body);
    }
    if let Ok(text) = std::str::from_utf8(body)
        && let Ok(Ok(messages)) = WIRE.decode_messages(text)
        && let Ok(written) = WIRE.encode_messages(&messages)
    {
        let texts: Vec<&str> = written.iter().map(Json::text).collect();
        let list = format!("[{}]", texts.join(","));
        if let Ok(Err(error)) = WIRE.decode_messages(&list) {
            panic!("cannot read what it wrote: {error}: {list}");
        }
    }
});

fn stream(body: &[u8]) {
    let whole = events([body]);
    assert_eq!(events(cut::bytes(body)), whole, "cut into pieces");
    let mut folder = Folder::default();
    for event in whole.iter().flatten() {
        let json = event.to_json();
        assert_eq!(Event::from_json(&json).as_ref(), Ok(event), "wrote {json}");
        let (_, problem) = folder.push_tolerant(event);
        // Bytes that are no base64 are the provider's mistake, and named as such.
        if let Some(problem) = problem.filter(|problem| problem.kind() != ErrorKind::BadBase64)
            && WIRE.can_request()
        {
            panic!("{problem}: {json}");
        }
    }
    if WIRE.can_request() {
        let ends: Vec<bool> =
            folder.messages().map(|msg| msg.finished_reason().is_some()).collect();
        assert_eq!(ends, [true], "one reply, and it has ended");
    }
}

/// The events, and `None` for what is none.
fn events<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Vec<Option<Event<'static>>> {
    let mut decoder = WIRE.decoder(&Decoding::default()).expect("it can be decoded");
    let mut found = Vec::new();
    let mut each =
        |decoded: Decoded<'_>| found.push(decoded.event.ok().map(turnwire_core::Event::into_owned));
    for piece in pieces {
        decoder.feed(piece, &mut each);
    }
    decoder.end(&mut each);
    found
}
