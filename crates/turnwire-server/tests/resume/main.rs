//! Hundreds of clients behind a network that cuts connections at any byte, while agents and
//! producers write: in the end each has what the server has.
//!
//! `TURNWIRE_SCALE` multiplies the number of messages; `TURNWIRE_SEED` repeats one case.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

mod chaos;
mod client;
mod running;
mod socket;
#[path = "../test_store/mod.rs"]
mod test_store;
mod writers;
