//! Decodes any bytes as a stream, and as messages, of the wire that `WIRE` names.
//!
//! Events do not depend on how the stream is split, and read back from their JSON. Any stream of a model
//! provider folds into exactly one finished message without a problem (except bad base64). Messages that
//! were read are written and read again on the same wire.
//!
//! With `LIST_WIRES` set, prints the names of all wires instead: `fuzz/run` gets its targets from there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use turnwire_core::{ErrorKind, Event, Folder, Json};
use turnwire_fuzz::pieces::split_bytes;
use turnwire_wires::{Decoded, DecoderOptions, Wire};

static WIRE: LazyLock<&Wire> = LazyLock::new(|| {
    let name = std::env::var("WIRE").unwrap_or_default();
    Wire::named(&name).unwrap_or_else(|| panic!("WIRE={name}: unknown wire"))
});

fuzz_target!(init: list_wires_if_asked(), |body: &[u8]| {
    if WIRE.can_decode() {
        check_stream(body);
    }
    if let Ok(text) = std::str::from_utf8(body)
        && let Ok(messages) = WIRE.decode_messages(text)
        && let Ok(written) = WIRE.encode_messages(&messages)
    {
        let texts: Vec<&str> = written.iter().map(Json::text).collect();
        let list = format!("[{}]", texts.join(","));
        if let Err(error) = WIRE.decode_messages(&list) {
            panic!("cannot read what it wrote: {error}: {list}");
        }
    }
});

fn list_wires_if_asked() {
    if std::env::var_os("LIST_WIRES").is_some() {
        Wire::all().for_each(|wire| println!("{}", wire.name));
        std::process::exit(0);
    }
}

fn check_stream(body: &[u8]) {
    let whole = events([body]);
    assert_eq!(events(split_bytes(body)), whole, "split into pieces");
    let mut folder = Folder::default();
    for event in whole.iter().flatten() {
        let json = event.to_json();
        assert_eq!(Event::from_json(&json).as_ref(), Ok(event), "wrote {json}");
        let (_, problem) = folder.push_tolerant(event);
        // Invalid base64 is the provider's mistake.
        if let Some(problem) = problem.filter(|problem| problem.kind() != ErrorKind::BadBase64)
            && WIRE.can_request_model()
        {
            panic!("{problem}: {json}");
        }
    }
    if WIRE.can_request_model() {
        let ends: Vec<bool> =
            folder.messages().map(|msg| msg.finished_reason().is_some()).collect();
        assert_eq!(ends, [true], "expected one finished reply");
    }
}

/// The events; `None` for a frame that is not an event.
fn events<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Vec<Option<Event<'static>>> {
    let mut decoder = WIRE.decoder(&DecoderOptions::default()).expect("it can be decoded");
    let mut found = Vec::new();
    let mut each =
        |decoded: Decoded<'_>| found.push(decoded.event.ok().map(turnwire_core::Event::into_owned));
    for piece in pieces {
        decoder.feed(piece, &mut each);
    }
    decoder.end(&mut each);
    found
}
