//! Sends requests to one provider: [`HttpClient`] and its connection pool.

use super::connection::{self, Connection, Connector, READ_SIZE};
use super::provider::setup_error;
use crate::http_client;
use crate::http1::BodyFraming;
use crate::model::ModelError;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
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

/// How long an idle connection is kept.
const MAX_IDLE_TIME: Duration = Duration::from_secs(90);
/// How often expired connections are closed.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(15);

/// A client for one address. It speaks HTTP/1.1, one response per connection: dropping a response closes its
/// connection, and no response waits behind another.
pub(super) struct HttpClient {
    connector: Connector,
    connect_limit: Duration,
    pool: Arc<ConnectionPool>,
}

/// A response whose body is still to be read.
pub(super) struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: ResponseBody,
}

/// Why there is no response.
pub(super) enum SendError {
    /// The connection took longer than the limit.
    ConnectTimeout,
    /// The connection failed.
    Connect(Box<dyn Error + Send + Sync>),
    /// The connection broke before the response.
    NoResponse(Box<dyn Error + Send + Sync>),
}

impl HttpClient {
    pub fn new(address: &Url, connect_limit: Duration) -> Result<Self, ModelError> {
        let connector = Connector::new(address)
            .map_err(|error| setup_error(format!("TLS cannot be used: {error}")))?;
        Ok(Self { connector, connect_limit, pool: Arc::default() })
    }

    /// Posts a body, and waits for the head of the response.
    pub async fn post(
        &self,
        url: &Url,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Response, SendError> {
        let head = Bytes::from(request_head(url, headers, body.len()));
        loop {
            let idle = self.pool.take();
            let is_new = idle.is_none();
            let mut connection = match idle {
                Some(connection) => connection,
                None => match timeout(self.connect_limit, self.connector.connect()).await {
                    Err(_) => return Err(SendError::ConnectTimeout),
                    Ok(Err(why)) => return Err(SendError::Connect(why)),
                    Ok(Ok(connection)) => connection,
                },
            };
            match connection::send_request(&mut connection, &head, body).await {
                Ok(reply) => {
                    let body = ResponseBody {
                        connection: Some(connection),
                        framing: reply.head.body,
                        unread: Some(reply.after),
                        pool: reply.head.is_reusable.then(|| Arc::clone(&self.pool)),
                    };
                    let (status, headers) = (reply.head.status, reply.headers);
                    return Ok(Response { status, headers, body });
                }
                // The provider closed the idle connection: use another one.
                Err(error) if error.has_no_response && !is_new => {}
                Err(error) => return Err(SendError::NoResponse(error.into())),
            }
        }
    }
}

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

/// The body of a response. Dropping it closes the connection, unless the body was read to its end.
pub(super) struct ResponseBody {
    /// `None` after the end of the body.
    connection: Option<Connection>,
    framing: BodyFraming,
    /// The bytes that arrived with the head.
    unread: Option<Vec<u8>>,
    /// Where the connection goes after the body, if it can be reused.
    pool: Option<Arc<ConnectionPool>>,
}

impl ResponseBody {
    /// Passes the next content to `each`. Returns whether more may follow.
    pub async fn read(&mut self, mut each: impl FnMut(&[u8])) -> Result<bool, &'static str> {
        poll_fn(|cx| self.poll_read(cx, &mut each)).await
    }

    /// Polls [`read`](Self::read).
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        each: &mut dyn FnMut(&[u8]),
    ) -> Poll<Result<bool, &'static str>> {
        if let Some(unread) = self.unread.take() {
            return Poll::Ready(self.decode(&unread, each));
        }
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(false)) };
        let mut space = [MaybeUninit::uninit(); READ_SIZE];
        let mut buffer = ReadBuf::uninit(&mut space);
        let is_read = ready!(Pin::new(connection).poll_read(cx, &mut buffer)).is_ok();
        if !buffer.filled().is_empty() {
            return Poll::Ready(self.decode(buffer.filled(), each));
        }
        self.connection = None;
        let is_complete = is_read && self.framing == BodyFraming::UntilClosed;
        Poll::Ready(if is_complete { Ok(false) } else { Err("the connection broke") })
    }

    fn decode(&mut self, bytes: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<bool, &'static str> {
        let used = self.framing.decode(bytes, each).inspect_err(|_| self.connection = None)?;
        if self.framing != BodyFraming::Done {
            return Ok(true);
        }
        // Bytes after the body belong to no request: such a connection is not reused.
        if let (Some(connection), Some(pool), true) =
            (self.connection.take(), self.pool.take(), used == bytes.len())
        {
            pool.put_back(connection);
        }
        Ok(false)
    }
}

/// Idle connections of one client.
#[derive(Default)]
struct ConnectionPool {
    idle: Mutex<IdleConnections>,
}

#[derive(Default)]
struct IdleConnections {
    /// The most recently used one is the last.
    connections: Vec<(Instant, Connection)>,
    /// Whether a task closes expired connections.
    is_cleaned_up: bool,
}

impl ConnectionPool {
    /// Takes an idle connection that is still open.
    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some((since, mut connection)) = idle.connections.pop() {
            if is_reusable(since, &mut connection) {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection for the next request. Without a runtime it is closed, because nothing would close
    /// it later.
    fn put_back(self: &Arc<Self>, connection: Connection) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut idle = self.idle.lock();
        idle.connections.push((Instant::now(), connection));
        if !std::mem::replace(&mut idle.is_cleaned_up, true) {
            runtime.spawn(close_idle_connections(Arc::downgrade(self)));
        }
    }
}

/// Closes expired connections until none is left.
async fn close_idle_connections(pool: Weak<ConnectionPool>) {
    loop {
        sleep(CLEANUP_INTERVAL).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut idle = pool.idle.lock();
        idle.connections.retain_mut(|(since, connection)| is_reusable(*since, connection));
        if idle.connections.is_empty() {
            idle.is_cleaned_up = false;
            return;
        }
    }
}

/// Whether a connection can be reused: the provider neither closed it nor sent anything.
fn is_reusable(since: Instant, connection: &mut Connection) -> bool {
    let mut space = [MaybeUninit::uninit(); 1];
    let mut cx = Context::from_waker(Waker::noop());
    let read = Pin::new(connection).poll_read(&mut cx, &mut ReadBuf::uninit(&mut space));
    since.elapsed() < MAX_IDLE_TIME && read.is_pending()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_reused_until_it_expires() {
        let pool = Arc::new(ConnectionPool::default());
        let (line, _other) = duplex(64);
        pool.put_back(Box::new(line));
        sleep(MAX_IDLE_TIME / 2).await;
        let line = pool.take().expect("it is still open");
        assert!(pool.take().is_none(), "it is taken once");
        pool.put_back(line);
        sleep(MAX_IDLE_TIME + CLEANUP_INTERVAL).await;
        assert!(pool.idle.lock().connections.is_empty(), "it expired and was closed");
        assert!(!pool.idle.lock().is_cleaned_up, "the cleanup task ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_closed_or_received_data_is_not_reused() {
        let pool = Arc::new(ConnectionPool::default());
        let (closed, other) = duplex(64);
        drop(other);
        pool.put_back(Box::new(closed));
        let (chatty, mut other) = duplex(64);
        tokio::io::AsyncWriteExt::write_all(&mut other, b"HTTP/1.1 408").await.expect("room");
        pool.put_back(Box::new(chatty));
        assert!(pool.take().is_none());
    }
}
