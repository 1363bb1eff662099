//! Replies continue without their clients: tests over the real handlers and a store.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod answering;
mod chaos;
#[path = "../openapi/checked_router.rs"]
mod checked_router;
#[path = "../openapi/contract.rs"]
mod contract;
mod deciding;
mod demo;
mod failing;
mod fake_agent;
mod fake_model;
mod faulty_store;
mod harness;
mod hinting;
mod races;
mod restarting;
mod retrying;
mod sending;
mod spending;
mod subagents;
#[path = "../test_store/mod.rs"]
mod test_store;
#[path = "../wrapped_store/mod.rs"]
mod wrapped_store;
