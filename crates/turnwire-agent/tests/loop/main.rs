//! The agent loop with a scripted model: its events, and how it continues from the log alone.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod background;
mod boundaries;
mod compaction;
mod conversation;
mod endings;
mod failing;
mod fake_model;
mod harness;
mod histories;
mod law_10;
mod middleware;
mod sequences;
mod structured;
mod subagents;
mod waiting;
