//! The writer thread: takes all waiting requests, writes them in one transaction, and answers when
//! it is durable.

use super::append;
use super::batch::Batch;
use super::errors::{self, SqliteError};
use super::file::{self, Access};
use super::maintenance::{Maintenance, MaintenanceTask};
use super::session_index::SessionIndex;
use super::shared::SharedState;
use super::tail::Tails;
use super::tail_table::{self, TailTable};
use crate::error::{Error, Result};
use crate::store::Append;
use rusqlite::{Connection, ErrorCode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The maximum of one transaction, so that nobody waits long for others.
const GROUP_JOBS: usize = 4096;
const GROUP_BYTES: usize = 8 << 20;

/// How many bytes, or how long, until the checkpoint thread is woken.
const SIGNAL_BYTES: usize = 2 << 20;
const SIGNAL_INTERVAL: Duration = Duration::from_millis(500);

/// A request to the writer.
pub(super) enum Job {
    Append(Box<Append>, oneshot::Sender<Result<()>>),
    Task(Box<dyn Task>),
}

/// Any request except an append. It may run again if the transaction fails.
pub(super) trait Task: Send {
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), SqliteError>;

    fn finish(self: Box<Self>, result: Result<()>);

    fn grouping(&self) -> Grouping;

    /// How many bytes it writes, about.
    fn bytes(&self) -> usize;
}

/// Whether a request can share a transaction with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grouping {
    Shared,
    /// It changes rows that other requests may change too.
    Alone,
}

/// A task whose result someone awaits.
struct AwaitedTask<T, F> {
    work: F,
    company: Grouping,
    bytes: usize,
    result: Option<T>,
    response: oneshot::Sender<Result<T>>,
}

impl<T: Send, F> Task for AwaitedTask<T, F>
where
    F: FnMut(&mut Batch<'_>) -> Result<T, SqliteError> + Send,
{
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), SqliteError> {
        self.result = Some((self.work)(batch)?);
        Ok(())
    }

    fn finish(self: Box<Self>, result: Result<()>) {
        let not_run = || Error::Store("the request was never run".to_owned());
        let found = self.result.ok_or_else(not_run);
        // The caller may be gone.
        let _ = self.response.send(result.and(found));
    }

    fn grouping(&self) -> Grouping {
        self.company
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Job {
    pub(super) fn task<T: Send + 'static>(
        company: Grouping,
        work: impl FnMut(&mut Batch<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<T>>) {
        Self::large_task(company, 0, work)
    }

    /// A task that writes about so many bytes.
    pub(super) fn large_task<T: Send + 'static>(
        company: Grouping,
        bytes: usize,
        work: impl FnMut(&mut Batch<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<T>>) {
        let (answer, answered) = oneshot::channel();
        (
            Self::Task(Box::new(AwaitedTask {
                work,
                company,
                bytes,
                result: None,
                response: answer,
            })),
            answered,
        )
    }

    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), SqliteError> {
        match self {
            Self::Append(append, _) => append::add_append(batch, append),
            Self::Task(task) => task.run(batch),
        }
    }

    fn finish(self, result: Result<()>) {
        match self {
            Self::Append(_, answer) => drop(answer.send(result)),
            Self::Task(task) => task.finish(result),
        }
    }

    fn grouping(&self) -> Grouping {
        match self {
            Self::Append(..) => Grouping::Shared,
            Self::Task(task) => task.grouping(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Append(append, _) => append.lines.as_ref().map_or(0, |lines| lines.bytes.len()),
            Self::Task(task) => task.bytes(),
        }
    }
}

/// Up to so many callers are woken from the writer's own thread.
const MAX_DIRECT_RESPONSES: usize = 4;

/// Finished requests and their results. Callers are answered when this is dropped, also by a
/// runtime that shuts down.
struct Responses(Vec<(Job, Result<()>)>);

impl Drop for Responses {
    fn drop(&mut self) {
        for (job, result) in self.0.drain(..) {
            job.finish(result);
        }
    }
}

/// Why a transaction failed.
struct FailedTransaction {
    error: rusqlite::Error,
    /// Whether some requests may succeed alone, or without the sweep.
    retry: bool,
}

pub(super) struct Writer {
    shared: Arc<SharedState>,
    /// Always open, also to hold the write-ahead log: if no connection had the file open, the next
    /// one would find commits in the log that were refused because their sync failed.
    conn: Connection,
    /// After a failure that may have left the connection in a bad state.
    must_reconnect: bool,
    max_bytes: u64,
    index: SessionIndex,
    tail_table: TailTable,
    maintenance: Maintenance,
    checkpoint_signal: CheckpointSignal,
    /// The runtime of the callers.
    runtime: Option<tokio::runtime::Handle>,
}

/// Wakes the checkpoint thread after writes, but not after each.
struct CheckpointSignal {
    to: SyncSender<()>,
    bytes: usize,
    last: Option<Instant>,
}

impl CheckpointSignal {
    fn add(&mut self, bytes: usize) {
        // A commit writes whole pages, at least about three.
        self.bytes += bytes + (24 << 10);
        let long_ago = self.last.is_none_or(|last| last.elapsed() > SIGNAL_INTERVAL);
        if self.bytes >= SIGNAL_BYTES || long_ago {
            // If the channel is full, the thread is awake already.
            let _ = self.to.try_send(());
            *self = Self { to: self.to.clone(), bytes: 0, last: Some(Instant::now()) };
        }
    }
}

impl Writer {
    pub(super) fn new(
        shared: Arc<SharedState>,
        conn: Connection,
        book: SessionIndex,
        rows: TailTable,
        chores: Maintenance,
        written: SyncSender<()>,
    ) -> Self {
        Self {
            shared,
            conn,
            must_reconnect: false,
            max_bytes: 0,
            index: book,
            tail_table: rows,
            maintenance: chores,
            checkpoint_signal: CheckpointSignal { to: written, bytes: 0, last: None },
            runtime: None,
        }
    }

    /// Sets the runtime of the callers.
    pub(super) fn with_runtime(self, runtime: Option<tokio::runtime::Handle>) -> Self {
        Self { runtime, ..self }
    }

    /// Runs until all senders are gone and all requests are done.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        let mut held = None;
        loop {
            let next = match (held.take(), self.maintenance.idle_timeout()) {
                (Some(job), _) => Ok(job),
                (None, None) => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                (None, Some(time_limit)) => jobs.recv_timeout(time_limit),
            };
            let first = match next {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => {
                    self.run_maintenance();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut group = vec![first];
            held = fill_group(&mut group, jobs);
            self.write_group(group);
            if self.maintenance.is_overdue() {
                self.run_maintenance();
            }
        }
    }

    /// Writes some requests, together if possible.
    fn write_group(&mut self, mut group: Vec<Job>) {
        let mut attempt = self.try_transaction(&mut group);
        if let Err(FailedTransaction { retry: true, .. }) = attempt
            && group.len() == 1
        {
            // The sweep may have caused the failure.
            attempt = self.try_transaction(&mut group);
        }
        match attempt {
            Ok(results) => self.send_responses(Responses(group.into_iter().zip(results).collect())),
            Err(FailedTransaction { retry: true, .. }) if group.len() > 1 => {
                for job in group {
                    self.write_group(vec![job]);
                }
            }
            Err(FailedTransaction { error, .. }) => {
                let error = errors::from_sqlite(&self.shared.file, &error);
                tracing::error!(%error, requests = group.len(), "transaction failed; nothing was written");
                for job in group {
                    if let Job::Append(append, _) = &job {
                        self.index.mark_failed(append.session.0);
                    }
                    job.finish(Err(error.clone()));
                }
            }
        }
    }

    /// Answers all callers. Waking many tasks from outside their runtime costs one system call
    /// each; a task of that runtime does it cheaply.
    fn send_responses(&self, answers: Responses) {
        match &self.runtime {
            Some(runtime) if answers.0.len() > MAX_DIRECT_RESPONSES => {
                runtime.spawn(async move { drop(answers) });
            }
            _ => drop(answers),
        }
    }

    /// Tries one transaction. Refused requests do not keep others from being written.
    fn try_transaction(&mut self, group: &mut [Job]) -> Result<Vec<Result<()>>, FailedTransaction> {
        let shared = Arc::clone(&self.shared);
        let _turn = shared.write_turn.lock();
        self.connect().map_err(|error| FailedTransaction { error, retry: false })?;
        let conn = &self.conn;
        let mut batch = Batch::new(conn, &shared, &mut self.index, &mut self.tail_table);
        let written = run_jobs(&mut batch, group).and_then(|results| {
            if batch.has_begun() {
                let _publish = shared.publish_lock.write();
                conn.prepare_cached("COMMIT")
                    .and_then(|mut commit| commit.execute([]))
                    .map_err(|error| FailedTransaction { error, retry: false })?;
                shared.tails.lock().apply(batch.changes.drain(..));
            }
            Ok(results)
        });
        match written {
            Ok(results) => {
                let (begun, gone) = (batch.has_begun(), std::mem::take(&mut batch.deleted));
                if batch.has_unindexed {
                    shared.unindexed.store(true, Ordering::Release);
                    self.maintenance.add(MaintenanceTask::IndexText);
                }
                if batch.has_dead_pieces {
                    self.maintenance.add(MaintenanceTask::RemovePieces);
                }
                self.index.committed();
                self.tail_table.committed();
                for session in gone {
                    self.index.forget(session);
                    self.maintenance.add(MaintenanceTask::RemoveDeleted);
                }
                if begun {
                    self.checkpoint_signal.add(group.iter().map(Job::bytes).sum());
                }
                Ok(results)
            }
            Err(failure) => Err(self.roll_back(failure)),
        }
    }

    fn roll_back(&mut self, mut failure: FailedTransaction) -> FailedTransaction {
        self.index.rolled_back();
        failure.retry |= self.tail_table.rolled_back();
        let rolled_back = self.conn.is_autocommit() || self.conn.execute_batch("ROLLBACK").is_ok();
        let in_order = !matches!(
            errors::error_code(&failure.error),
            Some(
                ErrorCode::SystemIoFailure
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::NotADatabase
                    | ErrorCode::CannotOpen
                    | ErrorCode::OutOfMemory
            )
        );
        self.must_reconnect |= !rolled_back || !in_order;
        failure
    }

    /// Makes sure that the connection works and has the current size limit.
    fn connect(&mut self) -> rusqlite::Result<()> {
        let max_bytes = self.shared.max_bytes.load(Ordering::Relaxed);
        if self.must_reconnect {
            let conn = file::connect(&self.shared.file, Access::Write)?;
            // The tails may come from a disk that failed, so they are read again. A connection
            // holds the write-ahead log only after its first read.
            let tails = Tails::load_all(&conn)?;
            let publish = self.shared.publish_lock.write();
            *self.shared.tails.lock() = tails;
            drop(publish);
            self.index.invalidate();
            self.conn = conn;
            self.must_reconnect = false;
            self.max_bytes = 0;
        }
        if max_bytes != self.max_bytes {
            limit_size(&self.conn, max_bytes)?;
            self.max_bytes = max_bytes;
        }
        Ok(())
    }

    /// Does one step of maintenance.
    fn run_maintenance(&mut self) {
        let Some(chore) = self.maintenance.next() else { return };
        let (job, mut more) = Job::task(Grouping::Alone, move |batch| chore.step(batch));
        self.write_group(vec![job]);
        match more.try_recv() {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => {
                self.maintenance.finish(chore);
                if chore == MaintenanceTask::IndexText {
                    self.shared.unindexed.store(false, Ordering::Release);
                }
            }
            // It is tried again later, and writes report the same cause.
            Ok(Err(_)) | Err(_) => self.maintenance.postpone(),
        }
    }
}

/// Adds all waiting requests. Returns one that must be alone.
fn fill_group(group: &mut Vec<Job>, jobs: &Receiver<Job>) -> Option<Job> {
    if group.iter().any(|job| job.grouping() == Grouping::Alone) {
        return None;
    }
    let mut bytes: usize = group.iter().map(Job::bytes).sum();
    while group.len() < GROUP_JOBS && bytes < GROUP_BYTES {
        match jobs.try_recv() {
            Ok(job) if job.grouping() == Grouping::Alone => return Some(job),
            Ok(job) => {
                bytes += job.bytes();
                group.push(job);
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
        }
    }
    None
}

/// Runs all statements of a transaction except the commit.
fn run_jobs(
    batch: &mut Batch<'_>,
    group: &mut [Job],
) -> Result<Vec<Result<()>>, FailedTransaction> {
    let fail = |error| FailedTransaction { retry: errors::concerns_one_request(&error), error };
    let mut results = Vec::with_capacity(group.len());
    for job in group {
        results.push(match job.run(batch) {
            Ok(()) => Ok(()),
            Err(SqliteError::Log(error)) => Err(error),
            Err(SqliteError::Sql(error)) => return Err(fail(error)),
        });
    }
    match tail_table::write_segments(batch) {
        Ok(()) => Ok(results),
        Err(SqliteError::Sql(error)) => Err(fail(error)),
        Err(SqliteError::Log(error)) => {
            Err(fail(rusqlite::Error::ToSqlConversionFailure(Box::new(error))))
        }
    }
}

/// Sets the maximum size of the file.
fn limit_size(conn: &Connection, bytes: u64) -> rusqlite::Result<()> {
    let page: i64 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
    conn.pragma_update_and_check(None, "max_page_count", pages.clamp(1, 0xFFFF_FFFE), |_| Ok(()))
}
