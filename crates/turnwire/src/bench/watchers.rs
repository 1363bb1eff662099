//! Opens many streams, some at a time, so that the listen queue does not overflow.

use super::connection::{Connection, ReceiveBuffer, ResponseStream};
use super::error::Result;
use super::progress::Progress;
use super::sessions::join_next;
use super::target::BenchTarget;
use std::sync::Arc;
use tokio::task::JoinSet;

/// How many are opened concurrently.
const CONCURRENT_OPENS: u32 = 128;

/// Opens streams; each has started when this returns.
pub(super) async fn open_streams(
    server: &Arc<BenchTarget>,
    count: u32,
    request: impl Fn(u32) -> Vec<u8>,
) -> Result<Vec<ResponseStream>> {
    let progress = Progress::with_steps("watchers", u64::from(count));
    let mut streams = Vec::new();
    let mut opening = JoinSet::new();
    for nth in 0..count {
        if nth >= CONCURRENT_OPENS {
            streams.extend(next_opened(&mut opening, &progress).await?);
        }
        opening.spawn(open_stream(Arc::clone(server), request(nth)));
    }
    while let Some(stream) = next_opened(&mut opening, &progress).await? {
        streams.push(stream);
    }
    Ok(streams)
}

/// Opens one stream.
pub(super) async fn open_stream(
    server: Arc<BenchTarget>,
    request: Vec<u8>,
) -> Result<ResponseStream> {
    let conn = Connection::open(&server, ReceiveBuffer::Default).await?;
    conn.open_stream("watching a session", &request).await
}

async fn next_opened(
    opening: &mut JoinSet<Result<ResponseStream>>,
    progress: &Progress,
) -> Result<Option<ResponseStream>> {
    let opened = join_next(opening).await?;
    progress.add(opened.iter().len() as u64);
    Ok(opened)
}
