//! Who may do what, and for how long.
//!
//! | module | what is in it |
//! |---|---|
//! | `expiry` | streams, piped replies, sockets and tickets end when the credentials expire |
//! | `setup` | servers, agents and credentials |

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod expiry;
#[path = "../resume/running.rs"]
mod running;
mod setup;
