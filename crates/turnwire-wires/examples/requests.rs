//! Prints the test conversations as requests, one JSON per line with the wire and the conversation's
//! name, for the test that sends them to a server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../tests/requests/conversations.rs"]
mod conversations;

use serde_json::json;
use std::io::{self, Write};
use turnwire_core::Json;
use turnwire_wires::Wire;

fn main() -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for wire in Wire::all().filter(|wire| wire.can_request_model()) {
        for conversation in conversations::all() {
            let body: Json = wire.model_request(&conversation.request()).unwrap();
            let line = json!({
                "wire": wire.name,
                "name": conversation.name,
                "body": body.parse_as::<serde_json::Value>().unwrap(),
            });
            writeln!(out, "{line}")?;
        }
    }
    out.flush()
}
