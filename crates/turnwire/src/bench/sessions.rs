//! The sessions of a measurement: created before, deleted after.

use super::connection::{Connection, ReceiveBuffer};
use super::error::{BenchError, Result};
use super::event_script::{DeltaText, EventScript, timestamp_now};
use super::progress::Progress;
use super::target::{BenchTarget, finish_request};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;

/// Connections that create and delete sessions.
const CONNECTIONS: usize = 64;

/// Sessions with names unique to this run.
pub(super) struct Sessions {
    server: Arc<BenchTarget>,
    run: u32,
    pub(super) names: Vec<String>,
}

impl Sessions {
    /// Creates sessions for published events.
    pub(super) async fn create(server: &Arc<BenchTarget>, count: usize) -> Result<Self> {
        Self::create_for_agent(server, count, "external").await
    }

    /// Creates sessions of an agent.
    pub(super) async fn create_for_agent(
        server: &Arc<BenchTarget>,
        count: usize,
        agent: &str,
    ) -> Result<Self> {
        let run = run_number();
        let names: Vec<String> = (0..count).map(|nth| format!("bench-{run:08x}-{nth}")).collect();
        let sessions = Self { server: Arc::clone(server), run, names };
        let requests = sessions.requests(|name| server.create_request(name, agent));
        request_all(server, ("sessions", "making a session"), requests, |_, _| Ok(())).await?;
        Ok(sessions)
    }

    /// Creates one session and a producer for it.
    pub(super) async fn create_with_producer(
        server: &Arc<BenchTarget>,
        text: DeltaText,
        deltas_per_reply: u64,
    ) -> Result<(Self, Producer)> {
        let sessions = Self::create(server, 1).await?;
        let conn = Connection::open(server, ReceiveBuffer::Default).await?;
        let name = sessions.names.first().map(String::as_str).unwrap_or_default();
        let producer = Producer {
            conn,
            head: server.append_request_head(name, "bench-0"),
            script: sessions.script(0, text, deltas_per_reply),
            body: Vec::new(),
            request: Vec::new(),
        };
        Ok((sessions, producer))
    }

    /// The name of the only session.
    pub(super) fn only_name(&self) -> &str {
        self.names.first().map(String::as_str).unwrap_or_default()
    }

    /// The events of the nth session.
    pub(super) fn script(&self, nth: usize, text: DeltaText, deltas_per_reply: u64) -> EventScript {
        let name = self.names.get(nth).map(String::as_str).unwrap_or_default();
        let nth = u32::try_from(nth).unwrap_or(u32::MAX);
        EventScript::new(name, self.run, nth, text, deltas_per_reply)
    }

    /// Deletes them, unless they are to be kept.
    pub(super) async fn finish(&self, after: Cleanup) -> Result<()> {
        match after {
            Cleanup::Keep => Ok(()),
            Cleanup::Delete => {
                let requests = self.requests(|name| self.server.delete_request(name));
                let labels = ("removing", "removing a session");
                request_all(&self.server, labels, requests, |_, _| Ok(())).await.map(drop)
            }
        }
    }

    /// A request for each session, with the session's name.
    pub(super) fn requests(&self, request: impl Fn(&str) -> Vec<u8>) -> Vec<(String, Vec<u8>)> {
        self.names.iter().map(|name| (name.clone(), request(name))).collect()
    }
}

/// Sends requests over several connections at once, and reads each response with its session's name. `labels` are
/// the name of the progress bar, and of a request in an error.
pub(super) async fn request_all<T: Send + 'static>(
    server: &Arc<BenchTarget>,
    (label, what): (&str, &'static str),
    mut requests: Vec<(String, Vec<u8>)>,
    read: fn(String, &[u8]) -> Result<T>,
) -> Result<Vec<T>> {
    let progress = Arc::new(Progress::with_steps(label, requests.len() as u64));
    let most = requests.len().div_ceil(CONNECTIONS).max(1);
    let mut hands = JoinSet::new();
    while !requests.is_empty() {
        let some = requests.split_off(requests.len().saturating_sub(most));
        let (server, progress) = (Arc::clone(server), Arc::clone(&progress));
        hands.spawn(async move {
            let mut conn = Connection::open(&server, ReceiveBuffer::Default).await?;
            let mut responses = Vec::new();
            for (name, request) in some {
                responses.push(read(name, conn.send_ok_request(what, &request).await?)?);
                progress.add(1);
            }
            Ok(responses)
        });
    }
    Ok(join_all(hands).await?.into_iter().flatten().collect())
}

/// What happens to the sessions after the measurement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cleanup {
    Delete,
    Keep,
}

/// Waits for all tasks; the first failure ends them.
pub(super) async fn join_all<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(done) = join_next(&mut tasks).await? {
        all.push(done);
    }
    Ok(all)
}

/// Waits for the next task to end; `None` after the last one.
pub(super) async fn join_next<T: 'static>(tasks: &mut JoinSet<Result<T>>) -> Result<Option<T>> {
    let Some(done) = tasks.join_next().await else { return Ok(None) };
    let failed = |error| BenchError::new(format!("a task of the load generator failed: {error}"));
    done.map_err(failed)?.map(Some)
}

/// Publishes events to one session.
pub(super) struct Producer {
    conn: Connection,
    head: Vec<u8>,
    pub(super) script: EventScript,
    /// Lines to send.
    pub(super) body: Vec<u8>,
    request: Vec<u8>,
}

impl Producer {
    /// Sends the lines, and returns when they are stored.
    pub(super) async fn send(&mut self) -> Result<()> {
        self.request.clear();
        self.request.extend_from_slice(&self.head);
        finish_request(&mut self.request, &self.body);
        self.body.clear();
        self.conn.send_ok_request("a POST of events", &self.request).await.map(drop)
    }

    /// Publishes deltas, many per request.
    pub(super) async fn publish(&mut self, deltas: u64) -> Result<()> {
        let progress = Progress::with_steps("events", deltas);
        self.publish_in_batches(deltas, 1000, |count| progress.add(count)).await
    }

    /// The same, with at most so many deltas in a request; `sent` is called after each.
    pub(super) async fn publish_in_batches(
        &mut self,
        deltas: u64,
        at_once: u64,
        sent: impl Fn(u64),
    ) -> Result<()> {
        let time = timestamp_now();
        let mut left = deltas;
        while left > 0 {
            let count = left.min(at_once);
            for _ in 0..count {
                self.script.write_delta(&time, &mut self.body);
            }
            self.send().await?;
            sent(count);
            left -= count;
        }
        Ok(())
    }

    /// Ends the current reply.
    pub(super) async fn end(&mut self) -> Result<()> {
        self.script.write_end(&timestamp_now(), &mut self.body);
        self.send().await
    }

    pub(super) async fn send_request(&mut self, what: &str, request: &[u8]) -> Result<&[u8]> {
        self.conn.send_ok_request(what, request).await
    }
}

/// A number unique to this run, also within a second and across processes.
fn run_number() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u32::try_from(since.as_millis() & u128::from(u32::MAX)).unwrap_or_default();
    millis ^ std::process::id().rotate_left(20)
}
