//! The demo agent: its scenes, its pace, and how it continues after a crash.

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
