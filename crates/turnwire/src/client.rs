//! A client of a Turnwire server: requests that are safe to send again, and a stream of events that
//! comes back by itself.
//!
//! | module | what is in it |
//! |---|---|
//! | `http` | one request and its answer |
//! | `api` | the routes that a conversation needs |
//! | `watch` | the events of a session, over lost connections and restarts |
//! | `trouble` | why something did not work |

mod api;
mod error;
mod event_stream;
mod http;

pub(crate) use api::{Client, History, SessionInfo};
pub(crate) use error::ClientError;
pub(crate) use event_stream::{EventStream, RetryLimit, StreamNotice, StreamTarget};
pub(crate) use http::Endpoint;
