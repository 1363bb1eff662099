//! Agents of the settings, in the real program, on a model that speaks chat completions over HTTP.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod bench;
mod harness;
mod durability;
mod mcp;
mod fake_provider;
mod tool_results;
mod permissions;
mod settings;
#[cfg(unix)]
mod shutdown;
mod conversation;
mod wires;
