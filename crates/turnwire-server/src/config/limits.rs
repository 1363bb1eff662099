//! How much is too much, and how long is too long.

use super::value::{ByteSize, HumanDuration};
use serde::Deserialize;
use std::time::Duration;

const fn seconds(count: u64) -> HumanDuration {
    HumanDuration(Duration::from_secs(count))
}

/// `[limits]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The body of a request.
    pub body: ByteSize,
    /// One event.
    pub event: ByteSize,
    /// One frame from a WebSocket client.
    pub websocket_frame: ByteSize,
    /// One blob.
    pub blob: ByteSize,
    /// All blobs of one tenant together. 0: no limit.
    pub blobs: ByteSize,
    /// Bytes of uploads that have not finished, of everybody together. They are in the store.
    pub uploads: ByteSize,
    /// Bytes of one tenant's uploads that have not finished.
    pub uploads_per_tenant: ByteSize,
    /// The head of a request: its first line and headers.
    pub headers: ByteSize,
    /// How long a client may take for the head of a request.
    pub headers_timeout: HumanDuration,
    /// How long a client may send nothing in the middle of a body.
    pub body_timeout: HumanDuration,
    /// The least number of bytes a second in which a body has to come. A client may be as far behind as
    /// `body_timeout`.
    pub body_rate: ByteSize,
    /// Bytes of request bodies that are held in memory, of everybody together.
    pub buffered: ByteSize,
    /// Bytes of one tenant's request bodies that are held in memory.
    pub buffered_per_tenant: ByteSize,
    /// How long a connection may stay open between two requests.
    pub idle_timeout: HumanDuration,
    /// How long a client may take nothing of what is sent to it.
    pub write_stall: HumanDuration,
    /// How often a stream on which nothing happens says that it is alive.
    pub heartbeat: HumanDuration,
    /// How long open requests have to finish when the server stops.
    pub stop_timeout: HumanDuration,
    /// Connections of everybody together.
    pub connections: usize,
    /// Connections of one tenant.
    pub connections_per_tenant: usize,
    /// Requests of one tenant a second, over a time; for a moment it may be twice as many.
    pub requests_per_second: u32,
    /// Messages of one WebSocket a second, pings included, over a time; for a moment it may be ten times
    /// as many.
    pub websocket_messages_per_second: u32,
    /// Tickets that were made and not used.
    pub tickets: usize,
    /// How long a search, or another list of sessions, may take.
    pub search_timeout: HumanDuration,
    /// Searches of everybody together at once.
    pub searches: usize,
    /// Searches of one tenant at once; further ones wait for their turn.
    pub searches_per_tenant: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: ByteSize::mib(16),
            event: ByteSize::mib(4),
            websocket_frame: ByteSize::mib(1),
            blob: ByteSize::mib(64),
            blobs: ByteSize::mib(10 * 1024),
            uploads: ByteSize::mib(4 * 1024),
            uploads_per_tenant: ByteSize::mib(1024),
            headers: ByteSize::kib(16),
            headers_timeout: seconds(10),
            body_timeout: seconds(30),
            body_rate: ByteSize::kib(4),
            buffered: ByteSize::mib(512),
            buffered_per_tenant: ByteSize::mib(128),
            idle_timeout: seconds(75),
            write_stall: seconds(30),
            heartbeat: seconds(15),
            stop_timeout: seconds(10),
            connections: 50_000,
            connections_per_tenant: 20_000,
            requests_per_second: 100_000,
            websocket_messages_per_second: 1_000,
            tickets: 10_000,
            search_timeout: seconds(5),
            searches: 4,
            searches_per_tenant: 2,
        }
    }
}

/// `[retention]`: events and messages stay unless one of these says otherwise.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// Events of finished replies older than this go; their messages stay.
    pub age: Option<HumanDuration>,
    /// The oldest go until all events together take at most so much.
    pub bytes: Option<ByteSize>,
    /// How long a repeated `Idempotency-Key` is known.
    pub keys: HumanDuration,
    /// How long a blob stays to which no session refers. Zero: for ever.
    pub blobs: HumanDuration,
    /// How often this is looked at.
    pub every: HumanDuration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            age: None,
            bytes: None,
            keys: seconds(86_400),
            blobs: seconds(7 * 86_400),
            every: seconds(300),
        }
    }
}

/// `[producers]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Producers {
    /// The open reply of a producer that was silent for longer is closed as interrupted.
    pub silence: HumanDuration,
}

impl Default for Producers {
    fn default() -> Self {
        Self { silence: seconds(300) }
    }
}

/// `[log]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// How lines look.
    pub format: LogFormat,
    /// What is logged: a level, or a filter such as `info,turnwire::access=debug`.
    pub level: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned() }
    }
}

/// How lines of the log look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
