//! The offline agent: what it shows, at which pace, and that it goes on from anywhere.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod pace;
mod resume;
mod scenes;
mod session;
