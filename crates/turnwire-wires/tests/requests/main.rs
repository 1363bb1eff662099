//! Compares the requests of every provider for a list of conversations with `goldens/`. `TURNWIRE_UPDATE=1` writes the
//! goldens again: review the difference before you commit it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod conversations;

use serde_json::{Map, Value};
use std::path::PathBuf;
use std::{env, fs};
use turnwire_wires::Wire;

fn providers() -> impl Iterator<Item = &'static Wire> {
    Wire::all().filter(|wire| wire.can_request_model())
}

fn bodies(wire: &Wire) -> Map<String, Value> {
    let body = |conversation: &conversations::Conversation| {
        let body = wire.model_request(&conversation.request()).unwrap();
        (conversation.name.to_owned(), body.parse_as().unwrap())
    };
    conversations::all().iter().map(body).collect()
}

#[test]
fn every_request_equals_its_golden() {
    for wire in providers() {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join(format!("tests/requests/goldens/{}.json", wire.name));
        let bodies = bodies(wire);
        if env::var_os("TURNWIRE_UPDATE").is_some() {
            let text = serde_json::to_string_pretty(&bodies).unwrap() + "\n";
            fs::write(&file, text).unwrap();
        }
        let golden = fs::read_to_string(&file).unwrap_or_default();
        let golden: Map<String, Value> = serde_json::from_str(&golden).unwrap_or_default();
        for (name, body) in &bodies {
            assert_eq!(Some(body), golden.get(name), "{}: {name}", wire.name);
        }
        assert_eq!(golden.len(), bodies.len(), "{}: a golden without a conversation", wire.name);
    }
}

#[test]
fn metadata_never_reaches_a_provider() {
    for wire in providers() {
        for (name, body) in bodies(wire) {
            let text = body.to_string();
            assert!(!text.contains(conversations::SECRET), "{}: {name}: {text}", wire.name);
        }
    }
}
