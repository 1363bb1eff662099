//! The one who writes to a socket.

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures_util::SinkExt;
use futures_util::stream::SplitSink;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How much may wait to be written. A subscription that waits holds one piece more.
const QUEUE_LENGTH: usize = 4;

/// What is to be written.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// One message.
    Text(String),
    /// A message for each line.
    Lines(Bytes),
    /// Is anybody there?
    Ping,
    /// The last one.
    Close(u16, &'static str),
}

/// Where it goes.
pub(super) type Sender = mpsc::Sender<Outgoing>;

/// The task that writes.
pub(super) struct SocketWriter {
    task: JoinHandle<()>,
    gone: CancellationToken,
}

impl SocketWriter {
    /// Starts to write. The connection itself gives up a client that takes nothing for too long.
    pub fn spawn(sink: Sink) -> (Self, Sender) {
        let (sender, queue) = mpsc::channel(QUEUE_LENGTH);
        let gone = CancellationToken::new();
        let guard = gone.clone().drop_guard();
        let task = tokio::spawn(async move {
            // Whatever is the matter with the connection, there is nobody left to tell.
            let _ = write_queue(sink, queue).await;
            drop(guard);
        });
        (Self { task, gone }, sender)
    }

    /// Waits until nothing more is written.
    pub async fn wait_closed(&self) {
        self.gone.cancelled().await;
    }

    /// Writes what is left, for as long as that may take.
    pub async fn finish(mut self, patience: Duration) {
        if timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

type Sink = SplitSink<WebSocket, Message>;

async fn write_queue(
    mut sink: Sink,
    mut queue: mpsc::Receiver<Outgoing>,
) -> Result<(), axum::Error> {
    while let Some(out) = queue.recv().await {
        feed_message(&mut sink, out).await?;
        // What is there already goes out together.
        while let Ok(out) = queue.try_recv() {
            feed_message(&mut sink, out).await?;
        }
        sink.flush().await?;
    }
    Ok(())
}

async fn feed_message(sink: &mut Sink, out: Outgoing) -> Result<(), axum::Error> {
    let message = match out {
        Outgoing::Text(text) => Message::Text(text.into()),
        Outgoing::Lines(lines) => return feed_lines(sink, &lines).await,
        Outgoing::Ping => Message::Ping(Bytes::new()),
        Outgoing::Close(code, reason) => {
            Message::Close(Some(CloseFrame { code, reason: reason.into() }))
        }
    };
    sink.feed(message).await
}

async fn feed_lines(sink: &mut Sink, lines: &Bytes) -> Result<(), axum::Error> {
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', lines) {
        // Events are text; what is not is no frame either.
        if let Ok(text) = Utf8Bytes::try_from(lines.slice(start..end)) {
            sink.feed(Message::Text(text)).await?;
        }
        start = end + 1;
    }
    Ok(())
}
