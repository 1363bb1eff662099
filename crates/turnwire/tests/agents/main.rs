//! Agents of the settings, in the real program, with a fake OpenAI Chat provider.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

#[cfg(feature = "bench")]
mod bench;
mod conversation;
mod durability;
mod fake_provider;
mod harness;
mod mcp;
mod permissions;
mod settings;
#[cfg(unix)]
mod shutdown;
mod tool_results;
mod wires;
