//! The routes of the other protocols, and what no client of theirs would send.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod ag_ui;
mod ai_sdk;
mod anthropic;
mod anthropic_tools;
mod blocks;
mod chat;
#[path = "../openapi/checked_http.rs"]
mod checked_http;
#[path = "../openapi/checked_router.rs"]
mod checked_router;
mod client_calls;
mod client_ids;
mod content;
#[path = "../openapi/contract.rs"]
mod contract;
mod conversations;
mod harness;
mod open_responses;
mod options;
mod prefill;
mod response_compaction;
mod response_conversations;
mod response_items;
mod response_socket;
mod responses;
mod resume_ids;
mod schemas;
mod sent_history;
#[path = "../test_store/mod.rs"]
mod test_store;
