//! The SQLite engine.
#![cfg(feature = "sqlite")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod blobs;
mod conformance;
mod crash;
mod files;
mod harness;
mod store;
mod tampering;
