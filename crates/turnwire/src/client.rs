//! A client of a Turnwire server: requests that are safe to repeat, and an event stream that reconnects.
//! Used by `chat` and `replay`.
//!
//! | module | what is in it |
//! |---|---|
//! | `http` | one request and its response |
//! | `api` | the routes of a conversation |
//! | `event_stream` | the events of a session, across lost connections and restarts |
//! | `error` | why a request failed |

mod api;
mod error;
mod event_stream;
mod http;

pub(crate) use api::{Client, History, SessionInfo};
pub(crate) use error::ClientError;
pub(crate) use event_stream::{EventStream, RetryLimit, StreamNotice, StreamTarget};
pub(crate) use http::Endpoint;
