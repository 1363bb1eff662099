//! The connections to one provider.

use super::connection::{self, Connection, Connector, READ_SIZE};
use super::framing::{BodyFraming, ResponseHead};
use super::provider::setup_error;
use crate::http_client;
use crate::model::ModelError;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use std::error::Error;
use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use url::{Position, Url};

/// How long a connection that nobody uses is kept.
const MAX_IDLE_TIME: Duration = Duration::from_secs(90);
/// How often those are looked through.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(15);

/// A client for one address. It is HTTP/1.1, so that one answer is one connection: whoever drops the
/// answer closes it, and no other waits behind it.
pub(super) struct HttpClient {
    connector: Connector,
    /// How long a connection may take.
    connect_limit: Duration,
    pool: Arc<ConnectionPool>,
}

/// Why a provider did not answer.
pub(super) enum SendError {
    /// No connection in time.
    ConnectTimeout,
    /// No connection.
    Connect(Box<dyn Error + Send + Sync>),
    /// No answer.
    NoResponse(Box<dyn Error + Send + Sync>),
}

impl HttpClient {
    pub fn new(address: &Url, connect: Duration) -> Result<Self, ModelError> {
        let way = Connector::new(address)
            .map_err(|error| setup_error(format!("TLS cannot be used: {error}")))?;
        Ok(Self { connector: way, connect_limit: connect, pool: Arc::default() })
    }

    /// Posts a body, and waits for the head of the answer.
    pub async fn post(
        &self,
        url: &Url,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<(ResponseHead, ResponseBody), SendError> {
        let question = Bytes::from(request_head(url, headers, body.len()));
        loop {
            let idle = self.pool.take();
            let is_new = idle.is_none();
            let mut line = match idle {
                Some(line) => line,
                None => match timeout(self.connect_limit, self.connector.connect()).await {
                    Err(_) => return Err(SendError::ConnectTimeout),
                    Ok(Err(why)) => return Err(SendError::Connect(why)),
                    Ok(Ok(line)) => line,
                },
            };
            match connection::send_request(&mut line, &question, body).await {
                Ok((head, behind)) => {
                    let home = head.is_reusable.then(|| Arc::clone(&self.pool));
                    let framing = head.framing;
                    let line = Some(line);
                    let body = ResponseBody {
                        connection: line,
                        framing,
                        unparsed: behind,
                        has_unread: true,
                        pool: home,
                    };
                    return Ok((head, body));
                }
                // It was closed while nobody used it.
                Err(broken) if broken.has_no_response && !is_new => {}
                Err(broken) => return Err(SendError::NoResponse(broken.into())),
            }
        }
    }
}

/// The head of a question.
fn request_head(url: &Url, headers: &HeaderMap, length: usize) -> Vec<u8> {
    let path = &url[Position::BeforePath..Position::AfterQuery];
    let host = &url[Position::BeforeHost..Position::AfterPort];
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
    for (name, value) in [
        ("user-agent", HeaderValue::from_static(http_client::USER_AGENT)),
        ("accept", HeaderValue::from_static("*/*")),
        ("content-length", HeaderValue::from(length)),
    ] {
        if !headers.contains_key(name) {
            connection::push_header(&mut head, name, &value);
        }
    }
    for (name, value) in headers {
        connection::push_header(&mut head, name.as_str(), value);
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// The body of an answer. Dropping it closes the connection, unless it was read to its end.
pub(super) struct ResponseBody {
    /// Nothing once the body is over.
    connection: Option<Connection>,
    framing: BodyFraming,
    /// What came and was not passed on.
    unparsed: Vec<u8>,
    /// Whether something can be done with that before more comes.
    has_unread: bool,
    /// Where the connection goes behind the end, if it can be used again.
    pool: Option<Arc<ConnectionPool>>,
}

impl ResponseBody {
    /// Passes on what comes next. Whether more may follow.
    pub async fn read(&mut self, mut each: impl FnMut(&[u8])) -> Result<bool, &'static str> {
        poll_fn(|cx| self.poll_read(cx, &mut each)).await
    }

    /// The same, for whoever polls.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        each: &mut dyn FnMut(&[u8]),
    ) -> Poll<Result<bool, &'static str>> {
        if std::mem::take(&mut self.has_unread) {
            let held = std::mem::take(&mut self.unparsed);
            return Poll::Ready(self.decode(&held, each));
        }
        let Some(line) = &mut self.connection else { return Poll::Ready(Ok(false)) };
        let mut space = [MaybeUninit::uninit(); READ_SIZE];
        let mut piece = ReadBuf::uninit(&mut space);
        // A line between two chunks that is not whole, which is far shorter than a piece.
        piece.put_slice(&self.unparsed);
        let is_read = ready!(Pin::new(line).poll_read(cx, &mut piece)).is_ok();
        if piece.filled().len() > self.unparsed.len() {
            return Poll::Ready(self.decode(piece.filled(), each));
        }
        self.connection = None;
        let is_whole = is_read && self.framing == BodyFraming::UntilClosed;
        Poll::Ready(if is_whole { Ok(false) } else { Err("the connection broke") })
    }

    fn decode(&mut self, bytes: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<bool, &'static str> {
        let used = self.framing.decode(bytes, each).inspect_err(|_| self.connection = None)?;
        let rest = bytes.get(used..).unwrap_or_default();
        if self.framing != BodyFraming::Over {
            rest.clone_into(&mut self.unparsed);
            return Ok(true);
        }
        if let (Some(line), Some(home), []) = (self.connection.take(), self.pool.take(), rest) {
            home.put_back(line);
        }
        Ok(false)
    }
}

/// Where connections wait for their next use.
#[derive(Default)]
struct ConnectionPool {
    idle: Mutex<IdleConnections>,
}

#[derive(Default)]
struct IdleConnections {
    /// The one that was used last is at the end.
    connections: Vec<(Instant, Connection)>,
    /// Whether somebody throws the old ones away.
    is_cleaned_up: bool,
}

impl ConnectionPool {
    /// One that is open, if there is any.
    fn take(&self) -> Option<Connection> {
        let mut rack = self.idle.lock();
        while let Some((since, mut line)) = rack.connections.pop() {
            if is_reusable(since, &mut line) {
                return Some(line);
            }
        }
        None
    }

    /// Takes one in. Without a runtime, nobody would throw it away in time.
    fn put_back(self: &Arc<Self>, line: Connection) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut rack = self.idle.lock();
        rack.connections.push((Instant::now(), line));
        if !std::mem::replace(&mut rack.is_cleaned_up, true) {
            runtime.spawn(close_idle_connections(Arc::downgrade(self)));
        }
    }
}

/// Throws old and closed connections away, as long as there are any.
async fn close_idle_connections(home: Weak<ConnectionPool>) {
    loop {
        sleep(CLEANUP_INTERVAL).await;
        let Some(home) = home.upgrade() else { return };
        let mut rack = home.idle.lock();
        rack.connections.retain_mut(|(since, line)| is_reusable(*since, line));
        if rack.connections.is_empty() {
            rack.is_cleaned_up = false;
            return;
        }
    }
}

/// Whether a connection can be used again: the other side has neither closed it nor said anything.
fn is_reusable(since: Instant, line: &mut Connection) -> bool {
    let mut space = [MaybeUninit::uninit(); 1];
    let mut cx = Context::from_waker(Waker::noop());
    let read = Pin::new(line).poll_read(&mut cx, &mut ReadBuf::uninit(&mut space));
    since.elapsed() < MAX_IDLE_TIME && read.is_pending()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_for_its_next_use_but_not_for_ever() {
        let home = Arc::new(ConnectionPool::default());
        let (line, _other) = duplex(64);
        home.put_back(Box::new(line));
        sleep(MAX_IDLE_TIME / 2).await;
        let line = home.take().expect("it is still good");
        assert!(home.take().is_none(), "it is used once at a time");
        home.put_back(line);
        sleep(MAX_IDLE_TIME + CLEANUP_INTERVAL).await;
        assert!(home.idle.lock().connections.is_empty(), "nobody asked for it, and it is closed");
        assert!(!home.idle.lock().is_cleaned_up, "nothing is left to look at");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_closed_or_says_something_is_not_used_again() {
        let home = Arc::new(ConnectionPool::default());
        let (closed, other) = duplex(64);
        drop(other);
        home.put_back(Box::new(closed));
        let (chatty, mut other) = duplex(64);
        tokio::io::AsyncWriteExt::write_all(&mut other, b"HTTP/1.1 408").await.expect("room");
        home.put_back(Box::new(chatty));
        assert!(home.take().is_none());
    }
}
