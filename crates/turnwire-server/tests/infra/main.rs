//! Everything around the handlers, with a real listener.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod auth;
mod config;
mod guard;
mod harness;
mod limits;
#[path = "../test_store/mod.rs"]
mod test_store;
mod tls;
