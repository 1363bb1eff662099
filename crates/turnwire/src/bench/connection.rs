//! One connection that sends ready bytes and reads the answer.

use super::error::{BenchError, Result};
use super::http::{Body, Head};
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

/// A connection, kept alive from request to request.
pub(super) struct Connection {
    server: Arc<BenchTarget>,
    stream: TcpStream,
    /// What has come and was not read yet; after an answer, its body.
    inbox: Vec<u8>,
}

/// How much a connection takes in before it stops reading.
#[derive(Clone, Copy)]
pub(super) enum ReceiveBuffer {
    /// What the system gives.
    Default,
    /// As little as it can be, so that a watcher that stops reading is noticed soon.
    Small,
}

impl Connection {
    pub(super) async fn open(server: &Arc<BenchTarget>, window: ReceiveBuffer) -> Result<Self> {
        let stream = connect_socket(server, window)
            .await
            .map_err(|error| BenchError::unreachable(&server.url, &error))?;
        Ok(Self { server: Arc::clone(server), stream, inbox: Vec::new() })
    }

    /// Sends a request and reads the whole answer: its status, and its body as it is.
    pub(super) async fn send_request(&mut self, request: &[u8]) -> Result<(u16, &[u8])> {
        let Head { status, mut body, .. } = self.send_and_read_head(request).await?;
        // The usual answer lies in the inbox as it is: no copy.
        if let Body::Length(length) = body
            && length == self.inbox.len() as u64
        {
            return Ok((status, &self.inbox));
        }
        let early = std::mem::take(&mut self.inbox);
        let mut content = Vec::new();
        self.feed_body(&mut body, &early, &mut content)?;
        while !body.is_done() {
            if self.read_more().await? == 0 {
                if matches!(body, Body::UntilClose) {
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

    /// Sends a request that must be answered with success, and gives the body.
    pub(super) async fn send_ok_request(&mut self, what: &str, request: &[u8]) -> Result<&[u8]> {
        let (status, body) = self.send_request(request).await?;
        if (200..300).contains(&status) {
            Ok(body)
        } else {
            Err(BenchError::unexpected_status(what, status, body))
        }
    }

    /// Starts a stream that must begin with 200.
    pub(super) async fn open_stream(
        mut self,
        what: &str,
        request: &[u8],
    ) -> Result<ResponseStream> {
        let Head { status, body, length } = self.send_and_read_head(request).await?;
        if status != 200 {
            return Err(BenchError::unexpected_status(what, status, &self.inbox));
        }
        Ok(ResponseStream { bytes: length as u64, conn: self, body })
    }

    /// Sends a request and reads the head of its answer; what came behind it is in the inbox.
    async fn send_and_read_head(&mut self, request: &[u8]) -> Result<Head> {
        self.inbox.clear();
        self.stream.write_all(request).await.map_err(|error| self.connection_error(&error))?;
        loop {
            if self.read_more().await? == 0 {
                return Err(self.connection_error(&io::ErrorKind::UnexpectedEof.into()));
            }
            if let Some(head) = Head::parse(&self.inbox).map_err(|why| self.protocol_error(why))? {
                self.inbox.drain(..head.length);
                return Ok(head);
            }
        }
    }

    /// More bytes into the inbox; 0: the other side has closed.
    async fn read_more(&mut self) -> Result<usize> {
        self.inbox.reserve(1024);
        self.stream.read_buf(&mut self.inbox).await.map_err(|error| self.connection_error(&error))
    }

    fn feed_body(&self, body: &mut Body, bytes: &[u8], content: &mut Vec<u8>) -> Result<()> {
        body.feed(bytes, &mut |part| content.extend_from_slice(part))
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

/// Why a stream is read no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The reader had what it wanted.
    Enough,
    /// The server has sent all that it wanted to send.
    ByServer,
}

/// An answer that goes on.
pub(super) struct ResponseStream {
    conn: Connection,
    body: Body,
    /// How many bytes came over the connection, head and chunk lines included.
    pub(super) bytes: u64,
}

thread_local! {
    /// One buffer for all streams of a thread: a thousand of them would not fit into the caches.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 256 * 1024]);
}

impl ResponseStream {
    /// Hands on the content as it comes, until `each` has enough or the stream ends; `each` is also
    /// told (by an empty slice) when all that had come was handed on.
    pub(super) async fn read(
        &mut self,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<StreamEnd> {
        let early = std::mem::take(&mut self.conn.inbox);
        if self.feed_stream(&early, &mut each)?.is_break() {
            return Ok(StreamEnd::Enough);
        }
        while !self.body.is_done() {
            let flow = poll_fn(|cx| {
                BUFFER.with_borrow_mut(|buffer| {
                    let mut buffer = ReadBuf::new(buffer);
                    // It remembers that less came than would have fit: a plain `try_read` has to ask
                    // the system once more to learn that there is nothing.
                    let read = ready!(Pin::new(&mut self.conn.stream).poll_read(cx, &mut buffer));
                    Poll::Ready(match read {
                        Ok(()) if !buffer.filled().is_empty() => {
                            self.feed_stream(buffer.filled(), &mut each).map(Some)
                        }
                        Ok(()) => match self.body {
                            Body::UntilClose => Ok(None),
                            _ => Err(self
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
        let fed = self.body.feed(bytes, &mut |part| {
            if flow.is_continue() {
                flow = each(part);
            }
        });
        fed.map_err(|why| self.conn.protocol_error(why))?;
        Ok(if flow.is_continue() { each(&[]) } else { flow })
    }
}
