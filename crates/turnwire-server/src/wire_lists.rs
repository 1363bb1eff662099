//! Tests that the server's lists of wires agree with the registry.

use crate::{ingest, socket};
use turnwire_wires::Wire;

fn names(is_listed: impl Fn(&Wire) -> bool) -> Vec<&'static str> {
    let mut names: Vec<&str> =
        Wire::all().filter(|wire| is_listed(wire)).map(|wire| wire.name).collect();
    names.sort_unstable();
    names
}

#[test]
fn producers_may_use_every_wire_with_event_ids() {
    let mut listed = ingest::WIRES;
    listed.sort_unstable();
    assert_eq!(listed[..], names(|wire| wire.has_event_ids));
}

#[test]
fn sockets_speak_every_wire_with_a_websocket() {
    let mut listed = socket::WIRES;
    listed.sort_unstable();
    assert_eq!(listed[..], names(|wire| wire.has_websocket));
}
