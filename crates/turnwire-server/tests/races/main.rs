//! What can go wrong with resumable streams, one test for each row: every race runs over a store
//! that holds operations back.
//!
//! | rows | module |
//! |---|---|
//! | 1, 2, 3, 7, 18: order and visibility | `order` |
//! | 4, 5, 6, 11: resume tokens | `tokens` |
//! | 8, 9, 10, 16, 17: connections | `connections` |
//! | 12, 13, 15: requests that race | `requests` |
//! | 12: a session that changes its owner | `lease` |
//! | 14: tools | `tools` |
//! | a store that is full or fails | `store_errors` |
//! | histories that do not fit in memory | `long_histories` |
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../openapi/checked_http.rs"]
mod checked_http;
mod connections;
#[path = "../openapi/contract.rs"]
mod contract;
mod gated_store;
mod harness;
mod lease;
mod long_histories;
mod order;
mod requests;
#[path = "../resume/running.rs"]
mod running;
mod store_errors;
mod tokens;
mod tools;
#[path = "../wrapped_store/mod.rs"]
mod wrapped_store;
