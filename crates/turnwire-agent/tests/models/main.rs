//! Models over HTTP, against a fake provider that also misbehaves.

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
