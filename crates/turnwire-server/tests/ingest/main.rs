//! Publishing events, over a real connection.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "../openapi/checked_router.rs"]
mod checked_router;
#[path = "../openapi/contract.rs"]
mod contract;
mod events;
mod harness;
mod hostile;
mod java;
mod producers;
mod replies;
mod socket;
#[path = "../test_store/mod.rs"]
mod test_store;
