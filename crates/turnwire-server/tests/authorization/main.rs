//! Who may do what, and for how long.
//!
//! | module | what is in it |
//! |---|---|
//! | `expiry` | streams, piped replies, sockets and tickets end when the credentials expire |
//! | `holders`, `producers` | idempotency keys, producers and fences belong to whoever holds the credentials |
//! | `sockets` | a socket that authenticates again |
//! | `matrix` | every route and command as every kind of caller; `rows` are the requests, `scene` is what they find |
//! | `setup` | servers, agents and credentials |

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

#[path = "../openapi/checked_http.rs"]
mod checked_http;
#[path = "../openapi/checked_router.rs"]
mod checked_router;
#[path = "../openapi/contract.rs"]
mod contract;
mod expiry;
mod harness;
mod holders;
mod matrix;
mod producers;
mod rows;
#[path = "../resume/running.rs"]
mod running;
mod scene;
mod sockets;
#[path = "../test_store/mod.rs"]
mod test_store;
