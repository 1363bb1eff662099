//! The `blocks` wire: what real clients make of it, what it makes of a stream, its commands and its
//! history.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod commands;
mod fake_clients;
mod harness;
mod history;
mod incoming;
mod outgoing;
mod resume;
