//! Workers: one per session, all at once, each awaits its responses.

use crate::session_history::{SessionHistory, Step};
use fastrand::Rng;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use turnwire_core::{Event, Fields};
use turnwire_faults::Disk;
use turnwire_log::store::{Blob, NewSession, SessionPatch};
use turnwire_log::{Error, Log, Session};

/// What all workers know.
#[derive(Default)]
pub struct Workload {
    pub histories: Vec<Mutex<SessionHistory>>,
    /// Blobs that were acknowledged.
    pub blobs: Mutex<BTreeMap<[u8; 32], Blob>>,
    /// The errors, and how often each occurred.
    pub errors: Mutex<BTreeMap<String, usize>>,
}

/// What to do with an error while the power is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The test fails.
    Fail,
    /// The step is tried again.
    Retry,
}

impl Workload {
    pub fn new(sessions: usize) -> Arc<Self> {
        let stories = (0..sessions).map(|id| Mutex::new(SessionHistory::new(id))).collect();
        Arc::new(Self { histories: stories, ..Self::default() })
    }
}

/// Runs so many steps of each session, or until the power is off.
pub async fn run_workers(
    workload: &Arc<Workload>,
    log: &Arc<Log>,
    disk: &Arc<Disk>,
    rng: &mut Rng,
    steps: usize,
    on_error: OnError,
) -> Result<(), String> {
    let tasks: Vec<_> = (0..workload.histories.len())
        .map(|at| {
            let worker = Worker {
                workload: Arc::clone(workload),
                log: Arc::clone(log),
                disk: Arc::clone(disk),
                rng: rng.fork(),
                at,
                on_error,
            };
            tokio::spawn(worker.run(steps))
        })
        .collect();
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    Ok(())
}

struct Worker {
    workload: Arc<Workload>,
    log: Arc<Log>,
    disk: Arc<Disk>,
    rng: Rng,
    at: usize,
    on_error: OnError,
}

impl Worker {
    async fn run(mut self, steps: usize) -> Result<(), String> {
        let at = self.at;
        let key = self.workload.histories[at].lock().key.clone();
        for _ in 0..steps {
            let step = self.workload.histories[at].lock().next_step(&mut self.rng);
            while !self.disk.is_off() {
                match self.run_step(&key, &step).await {
                    Ok(epoch) => {
                        let mut story = self.workload.histories[at].lock();
                        story.acknowledged += 1;
                        let made = story.acknowledged - 1;
                        story.epochs.extend(epoch.map(|epoch| (made, epoch)));
                        break;
                    }
                    Err(_) if self.disk.is_off() => break,
                    Err(error) => self.note_error(&error)?,
                }
            }
            if self.disk.is_off() {
                return Ok(());
            }
            if self.rng.u8(..12) == 0 {
                self.put_blob(&key.tenant).await?;
            }
            if self.rng.u8(..16) == 0 {
                self.checkpoint().await;
            }
        }
        Ok(())
    }

    fn note_error(&self, error: &Error) -> Result<(), String> {
        let kind = format!("{error:?}");
        let kind = kind.split(['(', '{', ' ']).next().unwrap_or_default().to_owned();
        let expected =
            !matches!(error, Error::Damaged(_) | Error::NoSession | Error::Refused { .. });
        *self.workload.errors.lock().entry(kind).or_default() += 1;
        if self.on_error == OnError::Fail || !expected {
            return Err(format!("session {}: {error:?}", self.at));
        }
        Ok(())
    }

    /// Runs a step. If it was tried before, it must not happen twice.
    async fn run_step(
        &self,
        key: &turnwire_log::store::SessionKey,
        step: &Step,
    ) -> Result<Option<String>, Error> {
        if matches!(step, Step::Create) {
            let new = NewSession {
                key: key.clone(),
                agent: "external".to_owned(),
                title: String::new(),
                metadata: Fields::default(),
                now_ms: 0,
            };
            let (session, _) = self.log.create_session(new).await?;
            return Ok(Some(session.epoch().to_owned()));
        }
        if matches!(step, Step::Delete) {
            return self.log.delete_session(key).await.map(|_| None);
        }
        let session = self.log.open_session(key).await?.ok_or(Error::NoSession)?;
        match step {
            Step::Create | Step::Delete => {}
            Step::Publish(lines) => publish(&session, lines).await?,
            Step::Enqueue(queued, key) => {
                session
                    .transact(&[], |tx| {
                        if tx.queue().all(|waiting| waiting.id != queued.id) {
                            tx.enqueue(queued.clone());
                            tx.set_idempotency_record(key.clone());
                        }
                        Ok::<_, Error>(())
                    })
                    .await?;
            }
            Step::Dequeue(id) => {
                session.transact(&[], |tx| Ok::<_, Error>(tx.dequeue(id))).await?;
            }
            Step::Rename(title) => {
                let patch = SessionPatch { title: Some(title.clone()), metadata: None };
                session.patch(patch).await?;
            }
        }
        Ok(None)
    }

    async fn put_blob(&mut self, tenant: &str) -> Result<(), String> {
        let bytes: Vec<u8> = (0..self.rng.usize(..40_000)).map(|_| self.rng.u8(..)).collect();
        let blob = Blob { media_type: "image/png".to_owned(), bytes: bytes.into() };
        let mut hash = [0; 32];
        self.rng.fill(&mut hash);
        loop {
            match self.log.store().put_blob(tenant, hash, blob.clone()).await {
                Ok(()) => {
                    self.workload.blobs.lock().insert(hash, blob);
                    return Ok(());
                }
                Err(_) if self.disk.is_off() => return Ok(()),
                Err(error) => self.note_error(&error)?,
            }
        }
    }

    /// Runs a checkpoint, which the store itself does only after more time or data.
    async fn checkpoint(&mut self) {
        let mode = ["PASSIVE", "PASSIVE", "FULL", "RESTART", "TRUNCATE"][self.rng.usize(..5)];
        let file = self.disk.folder().join("store.db");
        let checkpoint = move || {
            let conn = Connection::open(file)?;
            conn.pragma_update(None, "synchronous", "full")?;
            conn.query_one(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()))
        };
        // It may fail, as long as nothing is lost.
        let _: rusqlite::Result<()> = tokio::task::spawn_blocking(checkpoint).await.unwrap();
    }
}

pub async fn publish(session: &Arc<Session>, lines: &[String]) -> Result<(), Error> {
    let events: Vec<Event> = lines.iter().map(|line| Event::from_json(line).unwrap()).collect();
    let touched: Vec<String> = events.iter().map(|event| event.reply_id.to_string()).collect();
    let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
    session
        .transact(&touched, |tx| {
            for (at, (mut event, line)) in events.into_iter().zip(lines).enumerate() {
                tx.push(&mut event, Some(line)).map_err(|why| Error::Refused { at, why })?;
            }
            Ok(())
        })
        .await?;
    Ok(())
}

/// Copies the files of a folder.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
