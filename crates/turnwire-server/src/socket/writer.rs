//! The task that writes to a socket.

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures_util::SinkExt;
use futures_util::stream::SplitSink;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How many items may wait to be written. A subscription that waits holds one more.
const QUEUE_LENGTH: usize = 4;

/// What to write.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// One message.
    Text(String),
    /// One message for each line.
    Lines(Bytes),
    /// A ping.
    Ping,
    /// The close frame.
    Close(u16, &'static str),
}

/// The queue of the task.
pub(super) type Sender = mpsc::Sender<Outgoing>;

/// The task that writes.
pub(super) struct SocketWriter {
    task: JoinHandle<()>,
    gone: CancellationToken,
}

impl SocketWriter {
    /// Starts the task. The TCP connection has its own write timeout.
    pub fn spawn(sink: Sink) -> (Self, Sender) {
        let (sender, queue) = mpsc::channel(QUEUE_LENGTH);
        let gone = CancellationToken::new();
        let guard = gone.clone().drop_guard();
        let task = tokio::spawn(async move {
            // If the connection is broken, there is nobody to tell.
            let _ = write_queue(sink, queue).await;
            drop(guard);
        });
        (Self { task, gone }, sender)
    }

    /// Waits until the task has ended.
    pub async fn wait_closed(&self) {
        self.gone.cancelled().await;
    }

    /// Lets the task write what is queued, for at most so long.
    pub async fn finish(mut self, time_limit: Duration) {
        if timeout(time_limit, &mut self.task).await.is_err() {
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
        // What is queued already is flushed together.
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
        // Frames are text; anything else is skipped.
        if let Ok(text) = Utf8Bytes::try_from(lines.slice(start..end)) {
            sink.feed(Message::Text(text)).await?;
        }
        start = end + 1;
    }
    Ok(())
}
