//! The bytes of a connection. A client that reads nothing for too long causes an error here,
//! whatever is sent: a response, a stream, a WebSocket.

use super::connection::ClientConnection;
use super::http2_frames::FrameCounter;
use prometheus_client::metrics::counter::Counter;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

pub(crate) struct MeteredIo<S> {
    inner: S,
    conn: Arc<ClientConnection>,
    /// HTTP/1: bytes between two responses begin a request. HTTP/2 has other frames, which are
    /// counted.
    frames: Option<FrameCounter>,
    sent: Counter,
    slow: Counter,
    limit: Duration,
    /// Runs while the client reads nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

/// What received bytes between two responses mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl<S> MeteredIo<S> {
    pub(crate) fn new(
        inner: S,
        conn: Arc<ClientConnection>,
        app: &crate::App,
        protocol: Protocol,
    ) -> Self {
        Self {
            inner,
            conn,
            frames: (protocol == Protocol::Http2).then(FrameCounter::default),
            sent: app.metrics.bytes_sent.clone(),
            slow: app.metrics.slow_clients.clone(),
            limit: app.config.limits.write_stall.0,
            stall: None,
        }
    }

    /// Passes a ready result on, and checks the write timeout otherwise.
    fn check_stall<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stall = None;
            return poll;
        }
        let limit = self.limit;
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stall.as_mut().poll(cx));
        self.slow.inc();
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client read nothing for too long",
        )))
    }

    fn count(&self, poll: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = poll {
            self.sent.inc_by(*count as u64);
        }
    }
}

/// So few bytes are cheaper to copy than to pass to the system in parts; an event in its HTTP chunk
/// has three.
const SHORT: usize = 1024;

/// Joins short slices.
fn join_slices<'a>(pieces: &[IoSlice<'_>], into: &'a mut [u8; SHORT]) -> Option<&'a [u8]> {
    let mut at = 0;
    for piece in pieces {
        let end = at + piece.len();
        into.get_mut(at..end)?.copy_from_slice(piece);
        at = end;
    }
    into.get(..at)
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let count = buffer.filled().len().saturating_sub(before);
        if count == 0 {
            return poll;
        }
        if let Some(frames) = &mut self.frames {
            let new = buffer.filled().get(before..).unwrap_or_default();
            frames.read(new, Instant::now())?;
        } else {
            self.conn.note_bytes_received();
            self.conn.count_socket_bytes(count)?;
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.count(&poll);
        self.check_stall(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut joined = [0; SHORT];
        let poll = match join_slices(bytes, &mut joined) {
            Some(bytes) => Pin::new(&mut self.inner).poll_write(cx, bytes),
            None => Pin::new(&mut self.inner).poll_write_vectored(cx, bytes),
        };
        self.count(&poll);
        self.check_stall(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_flush(cx);
        self.check_stall(cx, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.check_stall(cx, poll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_become_one_and_long_ones_stay() {
        let mut into = [0; SHORT];
        let pieces = [IoSlice::new(b"5\r\n"), IoSlice::new(b"hello"), IoSlice::new(b"\r\n")];
        assert_eq!(join_slices(&pieces, &mut into), Some(&b"5\r\nhello\r\n"[..]));
        assert_eq!(join_slices(&[], &mut into), Some(&[][..]));
        let whole = [7; SHORT];
        assert_eq!(join_slices(&[IoSlice::new(&whole)], &mut into), Some(&whole[..]));
        assert_eq!(join_slices(&[IoSlice::new(&whole), IoSlice::new(b"x")], &mut into), None);
    }
}
