//! The server is killed at random moments, under load, and started again on the same store: nothing that was
//! acknowledged is lost, repeated or reordered, and no subscriber ever saw anything that is not in the log.
//!
//! `SOAK_ROUNDS` says how often it is killed, `TURNWIRE_SEED` repeats the choices of an earlier run
//! (but not its timing).
//!
//! | module | what is in it |
//! |---|---|
//! | `rounds` | the kills, and the load meanwhile |
//! | `producer`, `published_reply`, `chat_client`, `maintenance` | clients that write, and record what was acknowledged |
//! | `watcher` | subscribers that follow sessions across restarts |
//! | `check` | whether the server has what was acknowledged and shown |
//! | `expectations` | what was sent, acknowledged and shown |
//! | `server`, `server_address`, `http`, `connection` | the server process, its address, and the HTTP client |
//! | `laws` | laws 8 and 9, each by name |
//! | `start_failures` | shutdown, and reasons why a server does not start |

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod chat_client;
mod check;
mod connection;
mod expectations;
mod http;
mod laws;
mod maintenance;
mod producer;
mod published_reply;
mod rounds;
mod server;
mod server_address;
mod start_failures;
mod watcher;

use expectations::Expectations;
use rounds::EndMode;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A server that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the server is killed by default.
const ROUNDS: u64 = 20;

#[test]
fn nothing_is_lost_doubled_or_reordered_however_often_the_server_is_killed() {
    let number = |name: &str| env::var(name).ok().and_then(|value| value.parse().ok());
    let rounds = number("SOAK_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("TURNWIRE_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("{rounds} rounds, seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let expected = Expectations::new(seed);
    let done = catch_unwind(AssertUnwindSafe(|| {
        rounds::run(folder.path(), &expected, rounds, EndMode::Killed);
    }));
    if done.is_err() || !expected.has_no_violations() {
        let kept = folder.keep();
        panic!("seed {seed}, the store is kept in {}: {done:?}", kept.display());
    }
}
