//! Sessions, messages and events over HTTP, SSE and WebSocket.
//!
//! | module | what is in it |
//! |---|---|
//! | [`config`] | settings: `turnwire.toml`, and what wins over it |
//! | [`App`] | what every handler can reach |
//! | [`Server`] | listens, serves connections, stops |
//! | [`auth`] | who is asking, and what they may do |
//! | [`extract`] | what handlers take out of a request |
//! | [`error`] | what a client is told when something does not work |
//! | [`metrics`] | what is counted |
//! | [`ingest`] | events on their way in |
//! | [`stream`] | events on their way out |
//! | `socket` | both, over a WebSocket |
//! | [`turns`] | agents and the log, joined |
//! | `protocols` | the protocols that clients have already |
//! | [`blobs`] | bytes that are stored once |
//! | `links` | links in messages, and what they lead to |
//! | `limits` | limits that stay fair between tenants |
//!
//! A request goes from `listen` (connections) through `guard` (host, origin, credentials, rate) and
//! the table in `api` (scope, counters) to its handler in `routes` or `protocols`.

mod api;
mod app;
pub mod auth;
pub mod blobs;
pub mod config;
mod console;
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

pub use api::router;
pub use app::App;
pub use auth::{Caller, Scope};
pub use error::{ApiError, ApiResult};
pub use listen::Server;
pub use start_error::StartError;
