//! The WebSocket: many sessions on one connection, commands in, answers and events out.
//!
//! A command is a JSON object in a text message. Commands run one after the other. The blocks
//! protocol has its own commands (`blocks`); these are the commands of the wires `turnwire` and
//! `agentscope`:
//!
//! | command | answer |
//! |---|---|
//! | `{"type":"auth","token"}` | `authenticated`; again at any time before the credentials expire |
//! | `{"type":"subscribe","session_id","last_event_id"?,"after"?,"raw"?}` | `subscribed`, then events |
//! | `{"type":"unsubscribe","session_id"}` | `unsubscribed` |
//! | `{"type":"events","session_id","events"}` | `accepted` |
//! | `{"type":"chat","session_id","content" or "message","queue"?}` | `accepted` |
//! | `{"type":"stop","session_id"}` | `accepted` |
//! | `{"type":"ping"}` | `pong` |
//!
//! The Responses API has a socket of its own (`responses`).
//!
//! An answer repeats the `id` of its command. A failure is answered with `error`, which has
//! `command`, `code`, `message` and `hint`; the connection stays open.
//!
//! One task reads commands, one writes, and each subscription is a task with its own cursor. They
//! share a short queue: if the client does not read, the queue is full, and all tasks wait. So a
//! stalled client needs no more memory, and is disconnected after a while.

mod blocks;
mod command;
mod connection;
mod responses;
mod subscriptions;
mod writer;

/// The wires that can be used over a WebSocket.
pub(crate) const WIRES: [&str; 3] = [blocks::WIRE, "turnwire", "agentscope"];

use crate::App;
use crate::auth::{Caller, wait_until_expired};
use crate::error::{ApiError, ApiResult};
use crate::limits::UnreadBytes;
use crate::listen::ClientConnection;
use crate::protocols::openai::responses::socket::ResponseSocket;
use axum::Extension;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use connection::{Flow, SocketConnection};
use futures_util::StreamExt;
use futures_util::stream::SplitStream;
use responses::Responses;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use subscriptions::Subscriptions;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::tungstenite;
use turnwire_wires::Wire;
use writer::{Outgoing, SocketWriter};

/// The buffer size of a socket, each way.
const BUFFER: usize = 4096;
/// The heads of frames, and control frames between them.
const FRAME_OVERHEAD: usize = 64 * 1024;
/// How long a client may take to close after it was told to.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Close codes. Those below 4000 are defined by the WebSocket protocol.
pub(crate) mod code {
    pub const GOING_AWAY: u16 = 1001;
    pub const PROTOCOL: u16 = 1002;
    pub const NOT_UTF8: u16 = 1007;
    pub const POLICY: u16 = 1008;
    pub const TOO_LARGE: u16 = 1009;
    pub const TRY_AGAIN: u16 = 1013;
    pub const UNAUTHORIZED: u16 = 4401;
    pub const SILENT: u16 = 4008;
}

/// Why a socket closes.
struct CloseReason {
    code: u16,
    reason: &'static str,
}

/// The credentials were not renewed in time. A command that is running may be done or not, as after
/// a lost connection.
const EXPIRED: CloseReason =
    CloseReason { code: code::UNAUTHORIZED, reason: "credentials expired" };

/// What a socket is for.
pub(crate) struct SocketOptions {
    pub(crate) wire: &'static Wire,
    /// The largest message of the client.
    pub(crate) max_message: usize,
    /// If it is a socket of the Responses API.
    pub(crate) responses: Option<ResponseSocket>,
}

/// Accepts a socket, and serves it until it closes.
pub(crate) fn accept(
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    app: Arc<App>,
    caller: Option<Caller>,
    options: SocketOptions,
    conn: Option<Extension<Arc<ClientConnection>>>,
) -> ApiResult<Response> {
    let upgrade = upgrade.map_err(|why| {
        ApiError::bad_request(format!("not a WebSocket request: {}", why.body_text()))
            .hint("connect with a WebSocket client: ws:// or wss://")
    })?;
    let conn = conn.map(|Extension(conn)| conn);
    Ok(upgrade
        .max_message_size(options.max_message)
        .max_frame_size(options.max_message)
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .on_upgrade(move |socket| serve(socket, app, caller, options, conn)))
}

/// Serves a socket until it closes.
async fn serve(
    socket: WebSocket,
    app: Arc<App>,
    caller: Option<Caller>,
    options: SocketOptions,
    conn: Option<Arc<ClientConnection>>,
) {
    let SocketOptions { wire, max_message, responses } = options;
    if let Some(conn) = &conn {
        let tenant = caller.as_ref().map_or_else(|| "".into(), |caller| caller.tenant().clone());
        let most = max_message.saturating_mul(2).saturating_add(FRAME_OVERHEAD);
        conn.set_websocket(UnreadBytes::new(app.buffered.clone(), tenant), most);
    }
    let (sink, mut stream) = socket.split();
    let (writer, out) = SocketWriter::spawn(sink);
    let subscriptions = Subscriptions::new(app.clone(), wire, out.clone());
    let (app_, out_) = (app.clone(), out.clone());
    let mut connection = SocketConnection {
        app: app_,
        wire,
        caller,
        conn,
        tenant_connection: None,
        subscriptions,
        responses: responses.map(Responses::new),
        out: out_,
    };
    let close = read_commands(&app, &mut stream, &mut connection, &writer).await;
    connection.end().await;
    drop(connection);
    if let Some(CloseReason { code, reason }) = close {
        let _ = timeout(CLOSE_TIMEOUT, out.send(Outgoing::Close(code, reason))).await;
    }
    drop(out);
    writer.finish(CLOSE_TIMEOUT).await;
    // Closing with unread data would discard the close reason on its way to the client.
    let _ = timeout(CLOSE_TIMEOUT, async { while let Some(Ok(_)) = stream.next().await {} }).await;
}

/// Reads commands until there is a reason to close. `None`: the connection is gone.
async fn read_commands(
    app: &App,
    stream: &mut SplitStream<WebSocket>,
    connection: &mut SocketConnection,
    writer: &SocketWriter,
) -> Option<CloseReason> {
    let heartbeat = app.config.limits.heartbeat.0;
    let mut ping = interval_at(Instant::now() + heartbeat, heartbeat);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_received = Instant::now();
    let mut rate = MessageRate::new(app.config.limits.websocket_messages_per_second);
    let time_limit = app.config.limits.headers_timeout.0;
    let credentials = sleep_until(Instant::now() + time_limit);
    let lifetime = sleep_until(Instant::now() + app.config.limits.response_socket.0);
    tokio::pin!(credentials, lifetime);
    if let Flow::Break(close) = connection.greet().await {
        return close;
    }
    loop {
        let expires_at = connection.caller.as_ref().and_then(Caller::expires_at);
        let message = tokio::select! {
            biased;
            () = app.shutdown.cancelled(), if !connection.is_responding() => {
                return Some(CloseReason { code: code::GOING_AWAY, reason: "the server is stopping" });
            }
            () = writer.wait_closed() => return None,
            () = wait_until_expired(expires_at) => return Some(EXPIRED),
            text = connection.wait_request() => {
                let Some(text) = text else { continue };
                if let Flow::Break(close) = connection.handle_text(&text).await {
                    return close;
                }
                if !connection.has_waiting_requests() {
                    connection.with_unread_bytes(UnreadBytes::clear);
                }
                continue;
            }
            message = stream.next() => message?,
            () = &mut lifetime, if connection.responses.is_some() && !connection.is_responding() => {
                return connection.end_old_socket().await;
            }
            () = &mut credentials, if connection.caller.is_none() => {
                return Some(CloseReason { code: code::UNAUTHORIZED, reason: "no credentials received" });
            }
            _ = ping.tick() => {
                // While something waits to be written, the write timeout applies instead.
                let is_quiet = connection.out.capacity() == connection.out.max_capacity();
                if is_quiet && last_received.elapsed() >= heartbeat * 2 {
                    return Some(CloseReason { code: code::SILENT, reason: "no pong received" });
                }
                connection.out.try_send(Outgoing::Ping).ok();
                continue;
            }
        };
        if !rate.allows(Instant::now()) {
            return Some(CloseReason { code: code::POLICY, reason: "too many messages" });
        }
        let is_control = match &message {
            // A masked frame of less than 126 bytes has 6 bytes beside its payload.
            Ok(Message::Ping(payload) | Message::Pong(payload)) => {
                connection.with_unread_bytes(|unread| unread.subtract(payload.len() + 6));
                true
            }
            Ok(Message::Text(_) | Message::Binary(_) | Message::Close(_)) | Err(_) => false,
        };
        let flow = match message {
            Ok(Message::Text(text)) => {
                let out = connection.out.clone();
                let done = connection.handle_text(text.as_str());
                tokio::pin!(done);
                // Some commands take long: pings show proxies that the connection is alive.
                loop {
                    tokio::select! {
                        flow = &mut done => break flow,
                        () = wait_until_expired(expires_at) => return Some(EXPIRED),
                        _ = ping.tick() => drop(out.try_send(Outgoing::Ping)),
                    }
                }
            }
            Ok(Message::Binary(_)) => connection.handle_binary().await,
            Ok(Message::Ping(_) | Message::Pong(_)) => Flow::Continue(()),
            Ok(Message::Close(_)) => Flow::Break(None),
            Err(error) => Flow::Break(close_reason(error)),
        };
        if let Flow::Break(close) = flow {
            return close;
        }
        if !is_control && !connection.has_waiting_requests() {
            connection.with_unread_bytes(UnreadBytes::clear);
        }
        // Nothing is read while a command runs.
        last_received = Instant::now();
    }
}

/// Limits the message rate of a socket, pings and pongs included: each costs work, however short it
/// is.
struct MessageRate {
    /// Between two messages at the highest steady rate.
    interval: Duration,
    /// When the next message is due at that rate.
    due: Instant,
}

/// How far ahead of its rate a client may be.
const BURST: Duration = Duration::from_secs(10);

impl MessageRate {
    fn new(per_second: u32) -> Self {
        Self { interval: Duration::from_secs(1) / per_second.max(1), due: Instant::now() }
    }

    /// Counts a message. `false`: there are too many.
    fn allows(&mut self, now: Instant) -> bool {
        self.due = self.due.max(now) + self.interval;
        self.due <= now + BURST
    }
}

/// The close reason for a read error.
#[expect(clippy::wildcard_enum_match_arm, reason = "an enum of tungstenite")]
fn close_reason(error: axum::Error) -> Option<CloseReason> {
    let error = error.into_inner().downcast::<tungstenite::Error>().ok()?;
    let (code, reason) = match *error {
        tungstenite::Error::Io(error) if error.kind() == ErrorKind::QuotaExceeded => {
            (code::TRY_AGAIN, "the server holds too many bytes; try again later")
        }
        tungstenite::Error::Io(error) if error.kind() == ErrorKind::FileTooLarge => {
            (code::TOO_LARGE, "too many frames without the end of a message")
        }
        tungstenite::Error::Capacity(_) => (code::TOO_LARGE, "a message is too large"),
        tungstenite::Error::Utf8(_) => (code::NOT_UTF8, "a text message is not UTF-8"),
        tungstenite::Error::Protocol(_) => (code::PROTOCOL, "WebSocket protocol error"),
        _ => return None,
    };
    Some(CloseReason { code, reason })
}
