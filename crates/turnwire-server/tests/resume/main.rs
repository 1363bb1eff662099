//! Hundreds of watchers behind a network that cuts them off at any byte, while agents and producers
//! write: what each of them has in the end is what the server has.
//!
//! `TURNWIRE_SCALE` multiplies how much is said; `TURNWIRE_SEED` runs one case again.
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
mod writers;
