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
        let create = |server: &BenchTarget, name: &str| {
            ("making a session", server.create_request(name, agent))
        };
        sessions.request_each("sessions", create).await?;
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
                self.request_each("removing", |server, name| {
                    ("removing a session", server.delete_request(name))
                })
                .await
            }
        }
    }

    /// Sends one request per session, over several connections.
    async fn request_each(
        &self,
        label: &str,
        request: impl Fn(&BenchTarget, &str) -> (&'static str, Vec<u8>),
    ) -> Result<()> {
        let progress = Arc::new(Progress::with_steps(label, self.names.len() as u64));
        let mut hands = JoinSet::new();
        for names in self.names.chunks(self.names.len().div_ceil(CONNECTIONS).max(1)) {
            let server = Arc::clone(&self.server);
            let progress = Arc::clone(&progress);
            let requests: Vec<_> = names.iter().map(|name| request(&server, name)).collect();
            hands.spawn(async move {
                let mut conn = Connection::open(&server, ReceiveBuffer::Default).await?;
                for (what, request) in requests {
                    conn.send_ok_request(what, &request).await?;
                    progress.add(1);
                }
                Ok(())
            });
        }
        join_all(hands).await
    }
}

/// What happens to the sessions after the measurement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cleanup {
    Delete,
    Keep,
}

/// Waits for all tasks; the first failure ends them.
pub(super) async fn join_all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(done) = tasks.join_next().await {
        done.map_err(|error| {
            BenchError::new(format!("a task of the load generator failed: {error}"))
        })??;
    }
    Ok(())
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
        const AT_ONCE: u64 = 1000;
        let progress = Progress::with_steps("events", deltas);
        let time = timestamp_now();
        let mut left = deltas;
        while left > 0 {
            let count = left.min(AT_ONCE);
            for _ in 0..count {
                self.script.write_delta(&time, &mut self.body);
            }
            self.send().await?;
            progress.add(count);
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
