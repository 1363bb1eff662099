//! A real agent behind a real server, in a process that is killed.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../openapi/checked_http.rs"]
mod checked_http;
mod client;
#[path = "../openapi/contract.rs"]
mod contract;
mod crash;
mod schemas;
mod server;
