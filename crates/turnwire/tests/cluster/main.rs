//! A cluster from outside: real nodes over a real Postgres, real faults, and a check of everything that clients saw.
//!
//! `CLUSTER_ROUNDS` says how many rounds of faults there are, `FAILOVERS` how often the database fails over.
//! `TURNWIRE_SEED` repeats the choices of an earlier run (but not its timing).
//!
//! | module | what is in it |
//! |---|---|
//! | `chaos`, `faults` | random faults while everybody is at work |
//! | `questions` | a question of one node that another answers |
//! | `takeover` | nodes that are killed, shut down or hang, one at a time |
//! | `database` | the database is away for a while, or fails over to a standby |
//! | `load` | all clients at once, and the check at the end |
//! | `producer`, `users`, `approvers` | clients that write |
//! | `reader`, `watcher`, `socket`, `transcript` | clients that read and subscribe |
//! | `history`, `checker` | what clients did and saw, and what must not be in it |
//! | `nodes`, `proxy` | the processes, and the connections that can be cut |
//! | `fake_provider`, `marks` | the model, and tools that leave a mark outside |
//! | `harness`, `client` | what clients share; a client that goes to another node |

#![cfg(unix)]
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and a long one tells how far it is"
)]

mod approvers;
mod chaos;
mod checker;
mod checker_tests;
mod client;
#[path = "../crash/connection.rs"]
mod connection;
mod database;
mod fake_provider;
mod faults;
mod harness;
mod history;
mod load;
mod marks;
mod nodes;
mod producer;
mod proxy;
#[path = "../crash/published_reply.rs"]
mod published_reply;
mod questions;
mod reader;
#[path = "../crash/server.rs"]
#[expect(dead_code, reason = "what only the crash tests use")]
mod server;
mod socket;
mod takeover;
mod transcript;
mod users;
mod watcher;

use std::time::Duration;

/// A node that takes longer is given up, and another is tried. Longer than a node hangs, so that what it answers when
/// it wakes is seen.
const PATIENCE: Duration = Duration::from_secs(5);
