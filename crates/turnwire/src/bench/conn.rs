//! One connection that sends ready bytes and reads the answer.

use super::failed::{Failed, Result};
use super::http::{Body, Head};
use super::server::Server;
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
pub(super) struct Conn {
    server: Arc<Server>,
    stream: TcpStream,
    /// What has come and was not read yet; after an answer, its body.
    inbox: Vec<u8>,
}

/// How much a connection takes in before it stops reading.
#[derive(Clone, Copy)]
pub(super) enum Window {
    /// What the system gives.
    Usual,
    /// As little as it can be, so that a watcher that stops reading is noticed soon.
    Small,
}

impl Conn {
    pub(super) async fn open(server: &Arc<Server>, window: Window) -> Result<Self> {
        let stream = connect(server, window)
            .await
            .map_err(|error| Failed::unreachable(&server.url, &error))?;
        Ok(Self { server: Arc::clone(server), stream, inbox: Vec::new() })
    }

    /// Sends a request and reads the whole answer: its status, and its body as it is.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<(u16, &[u8])> {
        let Head { status, mut body, .. } = self.begin(request).await?;
        // The usual answer lies in the inbox as it is: no copy.
        if let Body::Length(length) = body
            && length == self.inbox.len() as u64
        {
            return Ok((status, &self.inbox));
        }
        let early = std::mem::take(&mut self.inbox);
        let mut content = Vec::new();
        self.feed(&mut body, &early, &mut content)?;
        while !body.is_done() {
            if self.receive().await? == 0 {
                if matches!(body, Body::UntilClose) {
                    break;
                }
                return Err(self.broken(&io::ErrorKind::UnexpectedEof.into()));
            }
            let more = std::mem::take(&mut self.inbox);
            self.feed(&mut body, &more, &mut content)?;
        }
        self.inbox = content;
        Ok((status, &self.inbox))
    }

    /// Sends a request that must be answered with success, and gives the body.
    pub(super) async fn expect(&mut self, what: &str, request: &[u8]) -> Result<&[u8]> {
        let (status, body) = self.ask(request).await?;
        if (200..300).contains(&status) {
            Ok(body)
        } else {
            Err(Failed::refused(what, status, body))
        }
    }

    /// Starts a stream that must begin with 200.
    pub(super) async fn stream(mut self, what: &str, request: &[u8]) -> Result<Streaming> {
        let Head { status, body, length } = self.begin(request).await?;
        if status != 200 {
            return Err(Failed::refused(what, status, &self.inbox));
        }
        Ok(Streaming { bytes: length as u64, conn: self, body })
    }

    /// Sends a request and reads the head of its answer; what came behind it is in the inbox.
    async fn begin(&mut self, request: &[u8]) -> Result<Head> {
        self.inbox.clear();
        self.stream.write_all(request).await.map_err(|error| self.broken(&error))?;
        loop {
            if self.receive().await? == 0 {
                return Err(self.broken(&io::ErrorKind::UnexpectedEof.into()));
            }
            if let Some(head) = Head::parse(&self.inbox).map_err(|why| self.strange(why))? {
                self.inbox.drain(..head.length);
                return Ok(head);
            }
        }
    }

    /// More bytes into the inbox; 0: the other side has closed.
    async fn receive(&mut self) -> Result<usize> {
        self.inbox.reserve(1024);
        self.stream.read_buf(&mut self.inbox).await.map_err(|error| self.broken(&error))
    }

    fn feed(&self, body: &mut Body, bytes: &[u8], content: &mut Vec<u8>) -> Result<()> {
        body.feed(bytes, &mut |part| content.extend_from_slice(part))
            .map(drop)
            .map_err(|why| self.strange(why))
    }

    fn broken(&self, error: &io::Error) -> Failed {
        Failed::broken(&self.server.url, error)
    }

    fn strange(&self, why: &str) -> Failed {
        Failed::new(format!("{} answered, but {why}", self.server.url))
    }
}

async fn connect(server: &Server, window: Window) -> io::Result<TcpStream> {
    let socket = if server.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    match window {
        Window::Usual => {}
        Window::Small => socket.set_recv_buffer_size(4096)?,
    }
    let stream = socket.connect(server.address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Why a stream is read no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The reader had what it wanted.
    Enough,
    /// The server has sent all that it wanted to send.
    ByServer,
}

/// An answer that goes on.
pub(super) struct Streaming {
    conn: Conn,
    body: Body,
    /// How many bytes came over the connection, head and chunk lines included.
    pub(super) bytes: u64,
}

thread_local! {
    /// One buffer for all streams of a thread: a thousand of them would not fit into the caches.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 256 * 1024]);
}

impl Streaming {
    /// Hands on the content as it comes, until `each` has enough or the stream ends; `each` is also
    /// told (by an empty slice) when all that had come was handed on.
    pub(super) async fn read(
        &mut self,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Ended> {
        let early = std::mem::take(&mut self.conn.inbox);
        if self.take(&early, &mut each)?.is_break() {
            return Ok(Ended::Enough);
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
                            self.take(buffer.filled(), &mut each).map(Some)
                        }
                        Ok(()) => match self.body {
                            Body::UntilClose => Ok(None),
                            _ => Err(self.conn.broken(&io::ErrorKind::UnexpectedEof.into())),
                        },
                        Err(error) => Err(self.conn.broken(&error)),
                    })
                })
            })
            .await?;
            match flow {
                None => break,
                Some(ControlFlow::Break(())) => return Ok(Ended::Enough),
                Some(ControlFlow::Continue(())) => {}
            }
        }
        Ok(Ended::ByServer)
    }

    fn take(
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
        fed.map_err(|why| self.conn.strange(why))?;
        Ok(if flow.is_continue() { each(&[]) } else { flow })
    }
}
