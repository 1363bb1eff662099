//! Load: tasks that append, each to its own sessions, and their latencies.

use crate::layouts::PlainStore;
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use turnwire_core::{Fields, Seq};
use turnwire_log::SqliteStore;
use turnwire_log::store::{
    Append, EventLines, Fence, NewSession, SessionKey, SessionNumber, SessionState, Store,
    StoredMessage,
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tasks: usize,
    pub(crate) sessions: usize,
    pub(crate) batch: u32,
    /// After so many appends of a session, a message of 2 KB is finished and indexed.
    pub(crate) messages: Option<u64>,
    pub(crate) time: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    /// Appends per second.
    pub(crate) rate: f64,
    /// Milliseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    /// Processor time per append in microseconds, of the whole process.
    pub(crate) cpu: f64,
}

/// Some events as they are stored.
pub(crate) fn events(count: u32) -> Bytes {
    let event = format!(
        "{{\"id\":\"01890a5d-ac96-774b-bcce-b302099a8057\",\"type\":\"TEXT_BLOCK_DELTA\",\
         \"reply_id\":\"01890a5d\",\"block_id\":\"text-1\",\
         \"created_at\":\"2026-01-02T03:04:05.678\",\"delta\":\"{}\"}}\n",
        "word ".repeat(8)
    );
    Bytes::from(event.repeat(count as usize))
}

/// An append of events only.
pub(crate) fn append(
    session: SessionNumber,
    fence: Fence,
    first: u64,
    count: u32,
    bytes: Bytes,
) -> Append {
    Append {
        lines: Some(EventLines { first: Seq::new(first).unwrap(), count, bytes }),
        ..Append::empty(session, fence, 1_767_323_045_678)
    }
}

fn message(at: u64) -> StoredMessage {
    let text: String = (0..300)
        .flat_map(|word| [" word".to_owned(), ((at * 31 + word * 7) % 5000).to_string()])
        .collect();
    StoredMessage {
        id: at.to_string(),
        first: Seq::new(at).unwrap(),
        last: Seq::new(at).unwrap(),
        event_id: String::new(),
        of_sub_agent: false,
        superseded: false,
        fold_version: 1,
        json: Bytes::from(format!("{{\"text\":\"{text}\"}}")),
        text,
    }
}

pub(crate) async fn create_session(store: &SqliteStore, id: String) -> (SessionNumber, Fence) {
    let new = NewSession {
        key: SessionKey::new("bench", id),
        agent: "demo".to_owned(),
        title: String::new(),
        metadata: Fields::default(),
        now_ms: 0,
    };
    let no = store.create_session(new).await.unwrap().0.number;
    (no, store.acquire_lease(no, "bench").await.unwrap().fence)
}

impl Load {
    pub(crate) fn run(self, store: SqliteStore) -> Figures {
        let runtime = runtime();
        let owned = runtime.block_on(async {
            let mut owned = Vec::new();
            for number in 0..self.sessions {
                owned.push(create_session(&store, format!("session-{number}")).await);
            }
            owned
        });
        let store = Arc::new(store);
        self.drive(&runtime, move |session, first, bytes| {
            let (no, fence) = *owned.get(session).unwrap();
            let mut append = append(no, fence, first, self.batch, bytes);
            if self.messages.is_some_and(|every| first % every == 0) {
                append.messages.push(message(first));
                append.state = Some(SessionState::default());
            }
            let done = store.append(append);
            async move { done.await.unwrap() }
        })
    }

    pub(crate) fn run_plain(self, plain: PlainStore) -> Figures {
        let plain = Arc::new(plain);
        self.drive(&runtime(), move |session, first, bytes| {
            let done = plain.append(session, first, bytes);
            async move { done.await.unwrap() }
        })
    }

    fn drive<F: Future<Output = ()> + Send>(
        self,
        runtime: &tokio::runtime::Runtime,
        append: impl Fn(usize, u64, Bytes) -> F + Clone + Send + 'static,
    ) -> Figures {
        let bytes = events(self.batch);
        let cpu = processor_seconds();
        let start = Instant::now();
        let own = self.sessions / self.tasks;
        let tasks: Vec<_> = (0..self.tasks)
            .map(|task| {
                let (append, bytes) = (append.clone(), bytes.clone());
                runtime.spawn(async move {
                    let mut waits = Vec::new();
                    let mut first = 1;
                    while start.elapsed() < self.time {
                        for session in 0..own {
                            let at = Instant::now();
                            append(task * own + session, first, bytes.clone()).await;
                            waits.push(at.elapsed());
                        }
                        first += u64::from(self.batch);
                    }
                    waits
                })
            })
            .collect();
        let mut waits: Vec<Duration> = runtime.block_on(async {
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.unwrap());
            }
            all
        });
        let time = start.elapsed().as_secs_f64();
        waits.sort_unstable();
        let at = |share: usize| {
            let index = (waits.len() * share / 100).min(waits.len().saturating_sub(1));
            waits.get(index).map_or(0.0, |wait| wait.as_secs_f64() * 1000.0)
        };
        let count = waits.len() as f64;
        let cpu = (processor_seconds() - cpu) * 1e6 / count;
        Figures { rate: count / time, p50: at(50), p99: at(99), max: at(100), cpu }
    }
}

/// The processor time of this process, on Linux.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
