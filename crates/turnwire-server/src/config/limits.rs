//! `[limits]`, `[retention]`, `[producers]` and `[log]`.

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
    /// Size of a request body.
    pub body: ByteSize,
    /// Size of one event.
    pub event: ByteSize,
    /// Size of one frame of a WebSocket client.
    pub websocket_frame: ByteSize,
    /// Size of one blob.
    pub blob: ByteSize,
    /// All blobs of one tenant together. 0: no limit.
    pub blobs: ByteSize,
    /// Bytes of all unfinished uploads. They are in the store.
    pub uploads: ByteSize,
    /// Bytes of one tenant's unfinished uploads.
    pub uploads_per_tenant: ByteSize,
    /// Size of a request's head: its first line and headers.
    pub headers: ByteSize,
    /// How long a client may take for the head of a request.
    pub headers_timeout: HumanDuration,
    /// How long a client may send nothing in the middle of a body.
    pub body_timeout: HumanDuration,
    /// The minimum rate of a body in bytes per second. A client may fall behind by `body_timeout`.
    pub body_rate: ByteSize,
    /// Bytes of all request bodies in memory.
    pub buffered: ByteSize,
    /// Bytes of one tenant's request bodies in memory.
    pub buffered_per_tenant: ByteSize,
    /// How long a connection may be idle between two requests.
    pub idle_timeout: HumanDuration,
    /// How long a client may read nothing of a response.
    pub write_stall: HumanDuration,
    /// The interval of heartbeats on idle streams.
    pub heartbeat: HumanDuration,
    /// How long open requests have to finish when the server stops.
    pub stop_timeout: HumanDuration,
    /// All open connections.
    pub connections: usize,
    /// Connections of one tenant.
    pub connections_per_tenant: usize,
    /// Requests of one tenant per second on average; a burst may have twice as many.
    pub requests_per_second: u32,
    /// Messages of one WebSocket per second on average, pings included; a burst may have ten times as many.
    pub websocket_messages_per_second: u32,
    /// How long a WebSocket of the Responses API may be open.
    pub response_socket: HumanDuration,
    /// Unused tickets.
    pub tickets: usize,
    /// How long a search, or another list of sessions, may take.
    pub search_timeout: HumanDuration,
    /// Concurrent searches of all tenants.
    pub searches: usize,
    /// Concurrent searches of one tenant; further ones are queued.
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
            response_socket: seconds(3600),
            tickets: 10_000,
            search_timeout: seconds(5),
            searches: 4,
            searches_per_tenant: 2,
        }
    }
}

/// `[retention]`: by default events and messages are kept forever.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// Removes events of finished replies that are older; their messages stay.
    pub age: Option<HumanDuration>,
    /// Removes the oldest events until all events have at most this size.
    pub bytes: Option<ByteSize>,
    /// How long an `Idempotency-Key` is kept.
    pub keys: HumanDuration,
    /// How long unreferenced blobs are kept. Zero: forever.
    pub blobs: HumanDuration,
    /// How often retention runs.
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
    /// An open reply of a producer that is silent for longer ends as interrupted.
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
    /// The format of lines.
    pub format: LogFormat,
    /// The level, or a filter such as `info,turnwire::access=debug`.
    pub level: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned() }
    }
}

/// The format of the server's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Text.
    Text,
    /// One JSON object per line.
    Json,
}
