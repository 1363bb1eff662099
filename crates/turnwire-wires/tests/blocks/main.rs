//! The `blocks` wire: encoding for two fake clients, decoding, commands and history.

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
