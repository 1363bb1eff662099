//! Models over HTTP, against a server that behaves as providers do, and as they should not.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod bodies;
mod breaks;
mod connections;
mod fake_provider;
mod keys;
mod recordings;
mod retries;
mod scenes;
mod tls;
