//! `--store postgres://…`, from outside.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod backups;
mod bad_input;
mod commands;
mod copies;
mod harness;
mod nodes;
mod settings;
mod tls;
