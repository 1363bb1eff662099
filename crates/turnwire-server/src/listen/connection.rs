//! One connection: its activity and its deadline.
//!
//! A timer for each request would cost an allocation and a lock. Instead a connection stores its
//! deadline, and one task checks all deadlines a few times a second.

use crate::auth::{ConnectionPermit, Tenant};
use crate::config::Limits;
use crate::error::ApiResult;
use crate::limits::UnreadBytes;
use crate::metrics::Metrics;
use axum::body::Body;
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What a connection is told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Nothing.
    None,
    /// Finish the open requests, then close.
    Stop,
    /// Close now.
    Kill,
}

/// A connection.
pub(crate) struct ClientConnection {
    peer: SocketAddr,
    trust_peer: bool,
    connections: Arc<Connections>,
    /// Requests that are being answered.
    busy: AtomicU32,
    /// In milliseconds on the clock of [`Connections`], times two; odd while the head of a request
    /// is read. 0: none.
    deadline: AtomicU64,
    signal: AtomicU8,
    waker: AtomicWaker,
    /// The tenant that it counts for.
    tenant: Mutex<Option<ConnectionPermit>>,
    /// The incomplete message of a `WebSocket` client.
    unread: OnceLock<UnreadMessage>,
}

/// The bytes of an incomplete `WebSocket` message.
struct UnreadMessage {
    bytes: Mutex<UnreadBytes>,
    /// More bytes than any message has: the client sends frames without end.
    max_bytes: usize,
}

impl ClientConnection {
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the client is on this machine. Behind a proxy that cannot be known.
    pub(crate) fn is_local(&self) -> bool {
        self.trust_peer && self.peer.ip().is_loopback()
    }

    /// Counts it for a tenant, instead of an earlier one.
    pub(crate) fn set_tenant(&self, tenant: &Arc<Tenant>) -> ApiResult<()> {
        let mut counted = self.tenant.lock();
        if counted.as_ref().is_none_or(|connected| !connected.belongs_to(tenant)) {
            *counted = Some(tenant.count_connection()?);
        }
        Ok(())
    }

    /// It became a `WebSocket`: from now on received bytes are counted until a message is complete.
    pub(crate) fn set_websocket(&self, bytes: UnreadBytes, most: usize) {
        let _ = self.unread.set(UnreadMessage { bytes: Mutex::new(bytes), max_bytes: most });
    }

    /// Changes the byte count of the incomplete message.
    pub(crate) fn with_unread(&self, change: impl FnOnce(&mut UnreadBytes)) {
        if let Some(unread) = self.unread.get() {
            change(&mut unread.bytes.lock());
        }
    }

    /// Counts received bytes of a `WebSocket`.
    pub(crate) fn count_socket_bytes(&self, count: usize) -> io::Result<()> {
        let Some(unread) = self.unread.get() else { return Ok(()) };
        let mut bytes = unread.bytes.lock();
        if bytes.add(count).is_err() {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "too many bytes are held"));
        }
        if bytes.count() > unread.max_bytes {
            let error = "too many frames without the end of a message";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
        }
        Ok(())
    }

    /// Bytes were received. Between two requests they begin the head of the next.
    pub(crate) fn note_bytes_received(&self) {
        let reads_head = self.deadline.load(Ordering::Relaxed) & 1 == 1;
        if !reads_head && self.busy.load(Ordering::Relaxed) == 0 {
            self.set_deadline(self.connections.headers_timeout, 1);
        }
    }

    fn set_deadline(&self, after: u64, mark: u64) {
        let at = self.connections.now.load(Ordering::Relaxed) + after;
        self.deadline.store((at << 1) | mark, Ordering::Relaxed);
    }

    pub(crate) fn signal(&self) -> Signal {
        match self.signal.load(Ordering::Acquire) {
            0 => Signal::None,
            1 => Signal::Stop,
            _ => Signal::Kill,
        }
    }

    pub(crate) fn listen_for_signals(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    fn send_signal(&self, signal: Signal) {
        let signal = match signal {
            Signal::None => 0,
            Signal::Stop => 1,
            Signal::Kill => 2,
        };
        self.signal.fetch_max(signal, Ordering::Release);
        self.waker.wake();
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.connections.count_connections(-1);
        if self.connections.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.connections.none_left.notify_waiters();
        }
    }
}

/// All connections of a listener.
pub(crate) struct Connections {
    start: Instant,
    /// Milliseconds since the start, at the last check.
    now: AtomicU64,
    headers_timeout: u64,
    idle_timeout: u64,
    max: usize,
    open: AtomicUsize,
    next: AtomicU64,
    /// Those that get signals and have deadlines: not `WebSocket`s.
    registered: Mutex<HashMap<u64, Arc<ClientConnection>>>,
    none_left: Notify,
    app: Arc<crate::App>,
}

impl Connections {
    pub(crate) fn new(app: Arc<crate::App>) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX >> 2);
        let limits: &Limits = &app.config.limits;
        Self {
            start: Instant::now(),
            now: AtomicU64::new(0),
            headers_timeout: ms(limits.headers_timeout.0),
            idle_timeout: ms(limits.idle_timeout.0),
            max: limits.connections,
            open: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            registered: Mutex::default(),
            none_left: Notify::new(),
            app,
        }
    }

    fn metrics(&self) -> &Metrics {
        &self.app.metrics
    }

    fn count_connections(&self, by: i64) {
        self.metrics().connections.inc_by(by);
    }

    /// Registers a new connection; `None` if there are too many.
    pub(crate) fn open(
        self: &Arc<Self>,
        peer: SocketAddr,
    ) -> Option<(Registration, Arc<ClientConnection>)> {
        let room = |open| (open < self.max).then_some(open + 1);
        self.open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).ok()?;
        self.count_connections(1);
        let conn = Arc::new(ClientConnection {
            peer,
            trust_peer: !self.app.config.behind_proxy,
            connections: Arc::clone(self),
            busy: AtomicU32::new(0),
            deadline: AtomicU64::new(0),
            signal: AtomicU8::new(0),
            waker: AtomicWaker::new(),
            tenant: Mutex::default(),
            unread: OnceLock::new(),
        });
        conn.set_deadline(self.headers_timeout, 1);
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.registered.lock().insert(key, Arc::clone(&conn));
        Some((Registration { all: Arc::clone(self), key }, conn))
    }

    /// How often to check: no deadline may be missed by much.
    pub(crate) fn tick(&self) -> Duration {
        let shortest = self.headers_timeout.min(self.idle_timeout);
        Duration::from_millis((shortest / 8).clamp(5, 1_000))
    }

    /// Updates the clock, and closes connections whose deadline has passed.
    pub(crate) fn close_late(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX >> 2);
        self.now.store(now, Ordering::Relaxed);
        for conn in self.registered.lock().values() {
            let deadline = conn.deadline.load(Ordering::Relaxed);
            if deadline != 0 && deadline >> 1 < now {
                if deadline & 1 == 1 {
                    self.metrics().slow_clients.inc();
                }
                conn.send_signal(Signal::Kill);
            }
        }
    }

    pub(crate) fn signal_all(&self, signal: Signal) {
        for conn in self.registered.lock().values() {
            conn.send_signal(signal);
        }
    }

    /// Waits until every connection is closed.
    pub(crate) async fn wait_all_closed(&self) {
        loop {
            let none_left = self.none_left.notified();
            let mut none_left = std::pin::pin!(none_left);
            none_left.as_mut().enable();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            none_left.await;
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }
}

/// A connection's entry in the list.
pub(crate) struct Registration {
    all: Arc<Connections>,
    key: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let conn = self.all.registered.lock().remove(&self.key);
        // Outside the lock: dropping the last reference does more work.
        drop(conn);
    }
}

/// A request that is being answered.
pub(crate) struct ActiveRequest(Arc<ClientConnection>);

impl ActiveRequest {
    pub(crate) fn new(conn: &Arc<ClientConnection>) -> Self {
        conn.busy.fetch_add(1, Ordering::Relaxed);
        conn.deadline.store(0, Ordering::Relaxed);
        Self(Arc::clone(conn))
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if self.0.busy.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.set_deadline(self.0.connections.idle_timeout, 0);
        }
    }
}

/// The body of a response; the request counts as being answered until it is dropped.
pub(crate) struct TrackedBody {
    body: Body,
    _busy: ActiveRequest,
}

impl TrackedBody {
    pub(crate) fn new(body: Body, busy: ActiveRequest) -> Self {
        Self { body, _busy: busy }
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
