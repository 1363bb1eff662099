//! Sessions, their history, forks and blobs, as a client sees them.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "sessions/blobs.rs"]
mod blobs;
#[path = "openapi/checked_router.rs"]
mod checked_router;
#[path = "openapi/contract.rs"]
mod contract;
#[path = "sessions/fork.rs"]
mod fork;
#[path = "sessions/harness.rs"]
mod harness;
#[path = "sessions/history.rs"]
mod history;
#[path = "sessions/manage.rs"]
mod manage;
#[path = "sessions/reach.rs"]
mod reach;
mod test_store;
