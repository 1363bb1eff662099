//! Agents of the settings, in the real program, on a model that speaks chat completions over HTTP.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod benching;
mod house;
mod keeping;
mod mcp;
mod provider;
mod results;
mod rules;
mod settings;
#[cfg(unix)]
mod stopping;
mod talking;
mod wires;
