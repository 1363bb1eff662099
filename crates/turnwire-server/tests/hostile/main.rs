//! Malicious and invalid requests as raw bytes: each gets a clear 4xx or a clean close, never a 5xx
//! or silence; and afterwards the server still works.
//!
//! | module | content |
//! |---|---|
//! | `heads` | invalid HTTP, and HTTP that two parsers could read differently |
//! | `addresses` | paths, queries, ids, tokens, cursors, methods |
//! | `bodies` | invalid JSON, and JSON that is too deep, too large or of the wrong type |
//! | `rights` | credentials and their limits |
//! | `sockets` | handshakes and frames |
//! | `slow` | clients that stop in the middle |
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod addresses;
mod attack;
mod bodies;
#[path = "../openapi/checked_http.rs"]
mod checked_http;
#[path = "../openapi/contract.rs"]
mod contract;
mod heads;
mod rights;
#[path = "../resume/running.rs"]
mod running;
mod slow;
mod sockets;
#[path = "../test_store/mod.rs"]
mod test_store;

use attack::Target;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_hostile_request_gets_a_clear_4xx_or_a_clean_close() {
    let target = Target::new().await;
    let tables = [heads::all(), addresses::all(), bodies::all(), rights::all()];
    let attacks: Vec<_> = tables.into_iter().flatten().collect();
    let mut failed = Vec::new();
    for attack in &attacks {
        if let Err(why) = target.try_attack(attack).await {
            failed.push(format!("{}: {why}", attack.name));
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), attacks.len(), failed.join("\n"));
    eprintln!("{} hostile requests were answered or closed", attacks.len());
    assert!(attacks.len() >= 60);
    target.still_serves().await;
    target.stop().await;
}
