//! The Postgres engine against a real Postgres, and through a real pgbouncer.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod cluster;
mod conformance;
mod copies;
mod harness;
mod late_answers;
mod processes;
