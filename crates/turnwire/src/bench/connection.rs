//! One HTTP/1.1 connection of the load generator: sends prepared bytes and reads the response.

use super::error::{BenchError, Result};
use super::target::BenchTarget;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use turnwire_agent::http1::{BodyFraming, ResponseHead};

/// A connection, kept alive from request to request.
pub(super) struct Connection {
    server: Arc<BenchTarget>,
    stream: TcpStream,
    /// Received bytes that are not consumed; after a response, its body.
    inbox: Vec<u8>,
}

/// The size of the socket's receive buffer.
#[derive(Clone, Copy)]
pub(super) enum ReceiveBuffer {
    /// The system's default.
    Default,
    /// The minimum, so that a subscriber that stops reading blocks the server soon.
    Small,
}

impl Connection {
    pub(super) async fn open(server: &Arc<BenchTarget>, window: ReceiveBuffer) -> Result<Self> {
        let stream = connect_socket(server, window)
            .await
            .map_err(|error| BenchError::unreachable(&server.url, &error))?;
        Ok(Self { server: Arc::clone(server), stream, inbox: Vec::new() })
    }

    /// Sends a request and reads the whole response: status and raw body.
    pub(super) async fn send_request(&mut self, request: &[u8]) -> Result<(u16, &[u8])> {
        let ResponseHead { status, mut body, .. } = self.send_and_read_head(request).await?;
        let status = status.as_u16();
        // The usual response is contiguous in the inbox: no copy.
        if let BodyFraming::Length(length) = body
            && length == self.inbox.len() as u64
        {
            return Ok((status, &self.inbox));
        }
        let early = std::mem::take(&mut self.inbox);
        let mut content = Vec::new();
        self.feed_body(&mut body, &early, &mut content)?;
        while body != BodyFraming::Done {
            if self.read_more().await? == 0 {
                if matches!(body, BodyFraming::UntilClosed) {
                    break;
                }
                return Err(self.connection_error(&io::ErrorKind::UnexpectedEof.into()));
            }
            let more = std::mem::take(&mut self.inbox);
            self.feed_body(&mut body, &more, &mut content)?;
        }
        self.inbox = content;
        Ok((status, &self.inbox))
    }

    /// Sends a request that must succeed, and returns the body.
    pub(super) async fn send_ok_request(&mut self, what: &str, request: &[u8]) -> Result<&[u8]> {
        let (status, body) = self.send_request(request).await?;
        if (200..300).contains(&status) {
            Ok(body)
        } else {
            Err(BenchError::unexpected_status(what, status, body))
        }
    }

    /// Opens a stream; its status must be 200.
    pub(super) async fn open_stream(
        mut self,
        what: &str,
        request: &[u8],
    ) -> Result<ResponseStream> {
        let ResponseHead { status, body, length, .. } = self.send_and_read_head(request).await?;
        if status != 200 {
            return Err(BenchError::unexpected_status(what, status.as_u16(), &self.inbox));
        }
        Ok(ResponseStream { bytes: length as u64, conn: self, body })
    }

    /// Sends a request and reads the head of the response; the rest is in the inbox.
    async fn send_and_read_head(&mut self, request: &[u8]) -> Result<ResponseHead> {
        self.inbox.clear();
        self.stream.write_all(request).await.map_err(|error| self.connection_error(&error))?;
        loop {
            if self.read_more().await? == 0 {
                return Err(self.connection_error(&io::ErrorKind::UnexpectedEof.into()));
            }
            let head = ResponseHead::parse(&self.inbox).map_err(|why| self.protocol_error(why))?;
            if let Some(head) = head {
                self.inbox.drain(..head.length);
                return Ok(head);
            }
        }
    }

    /// Reads more bytes into the inbox; 0: the peer has closed.
    async fn read_more(&mut self) -> Result<usize> {
        self.inbox.reserve(1024);
        self.stream.read_buf(&mut self.inbox).await.map_err(|error| self.connection_error(&error))
    }

    fn feed_body(&self, body: &mut BodyFraming, bytes: &[u8], content: &mut Vec<u8>) -> Result<()> {
        body.decode(bytes, &mut |part| content.extend_from_slice(part))
            .map(drop)
            .map_err(|why| self.protocol_error(why))
    }

    fn connection_error(&self, error: &io::Error) -> BenchError {
        BenchError::connection_lost(&self.server.url, error)
    }

    fn protocol_error(&self, why: &str) -> BenchError {
        BenchError::new(format!("{} answered, but {why}", self.server.url))
    }
}

async fn connect_socket(server: &BenchTarget, window: ReceiveBuffer) -> io::Result<TcpStream> {
    let socket = if server.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    match window {
        ReceiveBuffer::Default => {}
        ReceiveBuffer::Small => socket.set_recv_buffer_size(4096)?,
    }
    let stream = socket.connect(server.address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Why reading a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The reader has enough.
    Enough,
    /// The server ended the stream.
    ByServer,
}

/// A streaming response.
pub(super) struct ResponseStream {
    conn: Connection,
    body: BodyFraming,
    /// Bytes received, including head and chunk lines.
    pub(super) bytes: u64,
}

thread_local! {
    /// One buffer for all streams of a thread: a thousand would not fit into the caches.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 256 * 1024]);
}

impl ResponseStream {
    /// Passes the content to `each` until it breaks or the stream ends. An empty slice marks the
    /// end of what has arrived so far.
    pub(super) async fn read(
        &mut self,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<StreamEnd> {
        let early = std::mem::take(&mut self.conn.inbox);
        if self.feed_stream(&early, &mut each)?.is_break() {
            return Ok(StreamEnd::Enough);
        }
        while self.body != BodyFraming::Done {
            let flow = poll_fn(|cx| {
                BUFFER.with_borrow_mut(|buffer| {
                    let mut buffer = ReadBuf::new(buffer);
                    // A short read means that the socket is empty: a plain `try_read` needs one
                    // more system call to learn that.
                    let read = ready!(Pin::new(&mut self.conn.stream).poll_read(cx, &mut buffer));
                    Poll::Ready(match read {
                        Ok(()) if !buffer.filled().is_empty() => {
                            self.feed_stream(buffer.filled(), &mut each).map(Some)
                        }
                        Ok(()) => match self.body {
                            BodyFraming::UntilClosed => Ok(None),
                            BodyFraming::Length(_)
                            | BodyFraming::Chunked(_)
                            | BodyFraming::Done => Err(self
                                .conn
                                .connection_error(&io::ErrorKind::UnexpectedEof.into())),
                        },
                        Err(error) => Err(self.conn.connection_error(&error)),
                    })
                })
            })
            .await?;
            match flow {
                None => break,
                Some(ControlFlow::Break(())) => return Ok(StreamEnd::Enough),
                Some(ControlFlow::Continue(())) => {}
            }
        }
        Ok(StreamEnd::ByServer)
    }

    fn feed_stream(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.bytes += bytes.len() as u64;
        let mut flow = ControlFlow::Continue(());
        let fed = self.body.decode(bytes, &mut |part| {
            if flow.is_continue() {
                flow = each(part);
            }
        });
        fed.map_err(|why| self.conn.protocol_error(why))?;
        Ok(if flow.is_continue() { each(&[]) } else { flow })
    }
}
