//! Tools of a real MCP server: as a child process over pipes, and over HTTP.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod calls;
mod failing;
mod fake_server;
mod harness;
