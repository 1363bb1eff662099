//! Publishing events, over a real connection.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod events;
mod harness;
mod hostile;
mod java;
mod producers;
mod replies;
mod socket;
