//! The one who writes: a thread that takes all requests that wait, writes them in one transaction,
//! and answers them when it is durable.

use super::append;
use super::batch::Batch;
use super::book::Book;
use super::chores::{Chore, Chores};
use super::fault::{self, Fault};
use super::file::{self, Use};
use super::shared::Shared;
use super::tail::Tails;
use super::tail_rows::{self, TailRows};
use crate::error::{Error, Result};
use crate::store::Append;
use rusqlite::{Connection, ErrorCode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How much goes into one transaction, so that nobody waits long for the others.
const GROUP_JOBS: usize = 4096;
const GROUP_BYTES: usize = 8 << 20;

/// How much, or how long, until the checkpoints are told.
const TELL_BYTES: usize = 2 << 20;
const TELL_AFTER: Duration = Duration::from_millis(500);

/// Something to be written.
pub(super) enum Job {
    Append(Box<Append>, oneshot::Sender<Result<()>>),
    Task(Box<dyn Task>),
}

/// Any request but an append. It may be run again when the transaction fails.
pub(super) trait Task: Send {
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault>;

    fn finish(self: Box<Self>, result: Result<()>);

    fn company(&self) -> Company;

    /// About how much it writes.
    fn bytes(&self) -> usize;
}

/// Whether a request can be in a transaction with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    Any,
    /// It changes rows in which other requests may have a part.
    None,
}

/// A request whose answer somebody waits for.
struct Asked<T, F> {
    work: F,
    company: Company,
    bytes: usize,
    found: Option<T>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T: Send, F> Task for Asked<T, F>
where
    F: FnMut(&mut Batch<'_>) -> Result<T, Fault> + Send,
{
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault> {
        self.found = Some((self.work)(batch)?);
        Ok(())
    }

    fn finish(self: Box<Self>, result: Result<()>) {
        let not_run = || Error::Store("the request was never run".to_owned());
        let found = self.found.ok_or_else(not_run);
        // Nobody may wait any more.
        let _ = self.answer.send(result.and(found));
    }

    fn company(&self) -> Company {
        self.company
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Job {
    pub(super) fn task<T: Send + 'static>(
        company: Company,
        work: impl FnMut(&mut Batch<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<T>>) {
        Self::large_task(company, 0, work)
    }

    /// A task that writes about so many bytes.
    pub(super) fn large_task<T: Send + 'static>(
        company: Company,
        bytes: usize,
        work: impl FnMut(&mut Batch<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<T>>) {
        let (answer, answered) = oneshot::channel();
        (Self::Task(Box::new(Asked { work, company, bytes, found: None, answer })), answered)
    }

    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault> {
        match self {
            Self::Append(append, _) => append::add(batch, append),
            Self::Task(task) => task.run(batch),
        }
    }

    fn finish(self, result: Result<()>) {
        match self {
            Self::Append(_, answer) => drop(answer.send(result)),
            Self::Task(task) => task.finish(result),
        }
    }

    fn company(&self) -> Company {
        match self {
            Self::Append(..) => Company::Any,
            Self::Task(task) => task.company(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Append(append, _) => append.lines.as_ref().map_or(0, |lines| lines.bytes.len()),
            Self::Task(task) => task.bytes(),
        }
    }
}

/// Up to so many are answered from the writer's own thread.
const FEW: usize = 4;

/// Requests that are done, and what came of them. They are answered when this is dropped: also where
/// a runtime that has ended drops it.
struct Answers(Vec<(Job, Result<()>)>);

impl Drop for Answers {
    fn drop(&mut self) {
        for (job, result) in self.0.drain(..) {
            job.finish(result);
        }
    }
}

/// Why a transaction came to nothing.
struct Failure {
    error: rusqlite::Error,
    /// Whether one by one, or without the sweep, some may succeed.
    again: bool,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    /// It is always there, if only to hold the write-ahead log: were nobody to have the file open,
    /// the next one to open it would find what was refused when it could not be synced.
    conn: Connection,
    /// After a failure that may have left it in disorder: another one is needed.
    worn: bool,
    max_bytes: u64,
    book: Book,
    rows: TailRows,
    chores: Chores,
    written: Written,
    /// Where those are who wait for an answer.
    runtime: Option<tokio::runtime::Handle>,
}

/// Says to whoever makes checkpoints that something was written, but not each time.
struct Written {
    to: SyncSender<()>,
    bytes: usize,
    last: Option<Instant>,
}

impl Written {
    fn add(&mut self, bytes: usize) {
        // A commit writes whole pages, about three at the least.
        self.bytes += bytes + (24 << 10);
        let long_ago = self.last.is_none_or(|last| last.elapsed() > TELL_AFTER);
        if self.bytes >= TELL_BYTES || long_ago {
            // Where it is full, there is word already.
            let _ = self.to.try_send(());
            *self = Self { to: self.to.clone(), bytes: 0, last: Some(Instant::now()) };
        }
    }
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        conn: Connection,
        book: Book,
        rows: TailRows,
        chores: Chores,
        written: SyncSender<()>,
    ) -> Self {
        Self {
            shared,
            conn,
            worn: false,
            max_bytes: 0,
            book,
            rows,
            chores,
            written: Written { to: written, bytes: 0, last: None },
            runtime: None,
        }
    }

    /// With the runtime of those who wait for answers.
    pub(super) fn answering_in(self, runtime: Option<tokio::runtime::Handle>) -> Self {
        Self { runtime, ..self }
    }

    /// Runs until nobody can ask any more and all that was asked is done.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        let mut held = None;
        loop {
            let next = match (held.take(), self.chores.patience()) {
                (Some(job), _) => Ok(job),
                (None, None) => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                (None, Some(patience)) => jobs.recv_timeout(patience),
            };
            let first = match next {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => {
                    self.chore();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut group = vec![first];
            held = fill(&mut group, jobs);
            self.group(group);
            if self.chores.are_overdue() {
                self.chore();
            }
        }
    }

    /// Writes some requests, together if that goes.
    fn group(&mut self, mut group: Vec<Job>) {
        let mut attempt = self.attempt(&mut group);
        if let Err(Failure { again: true, .. }) = attempt
            && group.len() == 1
        {
            // What failed may have been the sweep.
            attempt = self.attempt(&mut group);
        }
        match attempt {
            Ok(results) => self.answer(Answers(group.into_iter().zip(results).collect())),
            Err(Failure { again: true, .. }) if group.len() > 1 => {
                for job in group {
                    self.group(vec![job]);
                }
            }
            Err(Failure { error, .. }) => {
                let error = fault::sql(&self.shared.file, &error);
                tracing::error!(%error, requests = group.len(), "nothing of this was written");
                for job in group {
                    if let Job::Append(append, _) = &job {
                        self.book.failed(append.session.0);
                    }
                    job.finish(Err(error.clone()));
                }
            }
        }
    }

    /// Tells everybody what became of it. Waking many from outside their runtime costs this thread a
    /// system call for each; one of theirs does it in no time.
    fn answer(&self, answers: Answers) {
        match &self.runtime {
            Some(runtime) if answers.0.len() > FEW => {
                runtime.spawn(async move { drop(answers) });
            }
            _ => drop(answers),
        }
    }

    /// One transaction. Requests that are refused do not keep the others from being written.
    fn attempt(&mut self, group: &mut [Job]) -> Result<Vec<Result<()>>, Failure> {
        let shared = Arc::clone(&self.shared);
        let _turn = shared.turn.lock();
        self.connect().map_err(|error| Failure { error, again: false })?;
        let conn = &self.conn;
        let mut batch = Batch::new(conn, &shared, &mut self.book, &mut self.rows);
        let written = collect(&mut batch, group).and_then(|(results, ends)| {
            if batch.has_begun() {
                let _publish = shared.publish.write();
                conn.prepare_cached("COMMIT")
                    .and_then(|mut commit| commit.execute([]))
                    .map_err(|error| Failure { error, again: false })?;
                shared.tails.lock().apply(batch.changes.drain(..));
            }
            Ok((results, ends))
        });
        match written {
            Ok((results, ends)) => {
                let (begun, gone) = (batch.has_begun(), std::mem::take(&mut batch.gone));
                if batch.has_words {
                    shared.unindexed.store(true, Ordering::Release);
                    self.chores.add(Chore::Index);
                }
                if batch.has_dead_pieces {
                    self.chores.add(Chore::Pieces);
                }
                self.book.committed();
                self.rows.committed();
                for session in gone {
                    self.book.forget(session);
                    shared.waits.close(session);
                    self.chores.add(Chore::Remove);
                }
                shared.waits.tell(&ends);
                if begun {
                    self.written.add(group.iter().map(Job::bytes).sum());
                }
                Ok(results)
            }
            Err(failure) => Err(self.roll_back(failure)),
        }
    }

    fn roll_back(&mut self, mut failure: Failure) -> Failure {
        self.book.rolled_back();
        failure.again |= self.rows.rolled_back();
        let rolled_back = self.conn.is_autocommit() || self.conn.execute_batch("ROLLBACK").is_ok();
        let in_order = !matches!(
            fault::code(&failure.error),
            Some(
                ErrorCode::SystemIoFailure
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::NotADatabase
                    | ErrorCode::CannotOpen
                    | ErrorCode::OutOfMemory
            )
        );
        self.worn |= !rolled_back || !in_order;
        failure
    }

    /// Sees to it that the connection is in order, with the limit that is wanted now.
    fn connect(&mut self) -> rusqlite::Result<()> {
        let max_bytes = self.shared.max_bytes.load(Ordering::Relaxed);
        if self.worn {
            let conn = file::connect(&self.shared.file, Use::Write)?;
            // What is in memory may come from a disk that did not do what it should. And not before
            // it has read something does a connection hold the log.
            let tails = Tails::of_table(&conn)?;
            let publish = self.shared.publish.write();
            *self.shared.tails.lock() = tails;
            drop(publish);
            self.book.doubt();
            self.conn = conn;
            self.worn = false;
            self.max_bytes = 0;
        }
        if max_bytes != self.max_bytes {
            limit_size(&self.conn, max_bytes)?;
            self.max_bytes = max_bytes;
        }
        Ok(())
    }

    /// Does a little of what has to be done some time.
    fn chore(&mut self) {
        let Some(chore) = self.chores.next() else { return };
        let (job, mut more) = Job::task(Company::None, move |batch| chore.step(batch));
        self.group(vec![job]);
        match more.try_recv() {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => {
                self.chores.done(chore);
                if chore == Chore::Index {
                    self.shared.unindexed.store(false, Ordering::Release);
                }
            }
            // It is tried again later; whoever writes hears of the reason too.
            Ok(Err(_)) | Err(_) => self.chores.postpone(),
        }
    }
}

/// Adds all that waits; a request that has to be alone is returned.
fn fill(group: &mut Vec<Job>, jobs: &Receiver<Job>) -> Option<Job> {
    if group.iter().any(|job| job.company() == Company::None) {
        return None;
    }
    let mut bytes: usize = group.iter().map(Job::bytes).sum();
    while group.len() < GROUP_JOBS && bytes < GROUP_BYTES {
        match jobs.try_recv() {
            Ok(job) if job.company() == Company::None => return Some(job),
            Ok(job) => {
                bytes += job.bytes();
                group.push(job);
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
        }
    }
    None
}

type Collected = (Vec<Result<()>>, Vec<(i64, u64)>);

/// All statements of a transaction but the commit.
fn collect(batch: &mut Batch<'_>, group: &mut [Job]) -> Result<Collected, Failure> {
    let fail = |error| Failure { again: fault::concerns_one_request(&error), error };
    let mut results = Vec::with_capacity(group.len());
    for job in group {
        results.push(match job.run(batch) {
            Ok(()) => Ok(()),
            Err(Fault::Ours(error)) => Err(error),
            Err(Fault::Sql(error)) => return Err(fail(error)),
        });
    }
    match tail_rows::write_runs(batch) {
        Ok(ends) => Ok((results, ends)),
        Err(Fault::Sql(error)) => Err(fail(error)),
        Err(Fault::Ours(error)) => {
            Err(fail(rusqlite::Error::ToSqlConversionFailure(Box::new(error))))
        }
    }
}

/// Sets how large the file may grow.
fn limit_size(conn: &Connection, bytes: u64) -> rusqlite::Result<()> {
    let page: i64 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
    conn.pragma_update_and_check(None, "max_page_count", pages.clamp(1, 0xFFFF_FFFE), |_| Ok(()))
}
