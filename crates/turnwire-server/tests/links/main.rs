//! Links in messages: a real site to fetch from, and every way in.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod blocks;
#[path = "../openapi/checked_http.rs"]
mod checked_http;
#[path = "../openapi/contract.rs"]
mod contract;
mod fairness;
mod fake_site;
mod fetching;
mod files;
mod harness;
mod private;
#[path = "../resume/running.rs"]
mod running;
#[path = "../test_store/mod.rs"]
mod test_store;
mod tls;
mod wires;
