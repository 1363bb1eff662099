//! Opens many streams, a few at a time, so that the queue of new connections does not overflow.

use super::conn::{Conn, Streaming, Window};
use super::failed::{Failed, Result};
use super::progress::Progress;
use super::server::Server;
use std::sync::Arc;
use tokio::task::JoinSet;

/// How many are opened at once.
const AT_ONCE: u32 = 128;

/// Opens so many streams; each has begun when this returns.
pub(super) async fn open(
    server: &Arc<Server>,
    count: u32,
    request: impl Fn(u32) -> Vec<u8>,
) -> Result<Vec<Streaming>> {
    let progress = Progress::steps("watchers", u64::from(count));
    let mut streams = Vec::new();
    let mut opening = JoinSet::new();
    for nth in 0..count {
        if nth >= AT_ONCE {
            streams.extend(next(&mut opening, &progress).await?);
        }
        opening.spawn(open_one(Arc::clone(server), request(nth)));
    }
    while let Some(stream) = next(&mut opening, &progress).await? {
        streams.push(stream);
    }
    Ok(streams)
}

/// Opens one stream.
pub(super) async fn open_one(server: Arc<Server>, request: Vec<u8>) -> Result<Streaming> {
    let conn = Conn::open(&server, Window::Usual).await?;
    conn.stream("watching a session", &request).await
}

async fn next(
    opening: &mut JoinSet<Result<Streaming>>,
    progress: &Progress,
) -> Result<Option<Streaming>> {
    let Some(done) = opening.join_next().await else { return Ok(None) };
    progress.add(1);
    done.map_err(|error| Failed::new(format!("a task of the load broke: {error}")))?.map(Some)
}
