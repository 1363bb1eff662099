//! The Turnwire server: sessions, messages and events over HTTP, SSE and WebSocket.
//!
//! | module | what is in it |
//! |---|---|
//! | [`config`] | settings: `turnwire.toml`, environment variables, command line |
//! | [`agents`] | builds the agents of the settings |
//! | [`App`] | the state that every handler shares |
//! | [`Server`] | accepts connections, serves them, stops |
//! | [`auth`] | credentials, scopes, tenants |
//! | [`extract`] | axum extractors with our errors and limits |
//! | [`error`] | errors as clients get them |
//! | [`metrics`] | counters for Prometheus |
//! | [`ingest`] | events from clients and producers into the log |
//! | [`stream`] | events from the log to subscribers |
//! | `socket` | both, over a WebSocket |
//! | [`turns`] | runs agents and logs what they do |
//! | `protocols` | AG-UI, AI SDK, OpenAI, Anthropic, content blocks |
//! | [`cluster`] | several servers over one database |
//! | [`blobs`] | files, stored once per tenant by their hash |
//! | `links` | fetches links in messages |
//! | `limits` | limits that stay fair between tenants |
//!
//! A request goes from `listen` (connections) through `guard` (host, origin, credentials, rate) and
//! the table in `api` (scope, query parameters, counters) to its handler in `routes` or `protocols`.

// Our own enums are matched without `_`, so that the compiler finds the places for a new variant.
#![warn(clippy::wildcard_enum_match_arm)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod agents;
mod api;
mod app;
pub mod auth;
pub mod blobs;
pub mod cluster;
pub mod config;
#[cfg(feature = "console")]
mod console;
mod deliveries;
pub mod error;
pub mod extract;
mod guard;
mod health;
pub mod ingest;
mod limits;
mod links;
mod listen;
mod maintenance;
pub mod metrics;
mod protocols;
mod routes;
mod socket;
mod start_error;
pub mod stream;
pub mod turns;
#[cfg(test)]
mod wire_lists;

pub use agents::agents_from_config;
pub use api::router;
pub use app::App;
pub use auth::{Caller, Scope};
pub use cluster::ClusterNode;
pub use error::{ApiError, ApiResult};
pub use links::detect_media_type;
pub use listen::Server;
pub use start_error::StartError;

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
