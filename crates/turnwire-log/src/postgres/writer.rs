//! The task that writes appends: it takes all that wait, writes them in one transaction, and answers
//! when it is durable (group commit).
//!
//! Most appends continue at the end of their session. An append that may not, or that must not share
//! a transaction with the one before it, is written alone, after the others.

use super::Shared;
use super::append::{self, Chain};
use super::connection::MAX_ATTEMPTS;
use super::errors::PostgresError;
use crate::error::{Error, Result};
use crate::store::Append;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// The maximum of one transaction, so that nobody waits long for others.
const GROUP_APPENDS: usize = 1024;
const GROUP_BYTES: usize = 8 << 20;

/// An append, and who waits for it.
pub(super) struct Job {
    pub(super) append: Append,
    pub(super) answer: oneshot::Sender<Result<()>>,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    /// Sessions whose last append failed, with its fence. Appends after it may depend on it.
    failed: HashMap<i64, u64>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, failed: HashMap::new() }
    }

    /// Runs until all senders are gone and all appends are done.
    pub(super) async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let mut waiting: VecDeque<Job> = VecDeque::new();
        let mut received = Vec::new();
        loop {
            if waiting.is_empty() && jobs.recv_many(&mut received, GROUP_APPENDS).await == 0 {
                return;
            }
            waiting.extend(received.drain(..));
            while waiting.len() < GROUP_APPENDS {
                let Ok(job) = jobs.try_recv() else { break };
                waiting.push_back(job);
            }
            let (mut group, mut bytes) = (Vec::new(), 0);
            while bytes < GROUP_BYTES && group.len() < GROUP_APPENDS {
                let Some(job) = waiting.pop_front() else { break };
                bytes += job.append.lines.as_ref().map_or(0, |lines| lines.bytes.len());
                group.push(job);
            }
            self.write_group(group).await;
        }
    }

    async fn write_group(&mut self, group: Vec<Job>) {
        let (appends, answers): (Vec<Append>, Vec<_>) =
            group.into_iter().map(|job| (job.append, job.answer)).unzip();
        let mut results: Vec<Option<Result<()>>> = appends.iter().map(|_| None).collect();
        self.write_together(&appends, &mut results).await;
        for (append, result) in appends.iter().zip(&mut results) {
            if result.is_none() {
                *result = Some(self.write_alone(append).await);
            }
        }
        for (answer, result) in answers.into_iter().zip(results) {
            // The caller may be gone.
            let _ = answer.send(result.unwrap_or(Err(Error::OutOfOrder)));
        }
    }

    /// Writes all appends that fit together. The others have no result then.
    async fn write_together(&mut self, appends: &[Append], results: &mut [Option<Result<()>>]) {
        let mut chains: Vec<Chain<'_>> = Vec::new();
        let mut places: HashMap<i64, usize> = HashMap::new();
        let mut alone: HashSet<i64> = HashSet::new();
        let mut together: Vec<bool> = Vec::new();
        for append in appends {
            let session = append.session.0;
            let chain = places.get(&session).and_then(|at| chains.get_mut(*at));
            let fits = !alone.contains(&session)
                && self.is_regular(append)
                && chain.as_ref().is_none_or(|chain| chain.can_add(append));
            together.push(fits);
            match chain {
                // The appends after it come after it.
                _ if !fits => drop(alone.insert(session)),
                Some(chain) => chain.push(append),
                None => {
                    places.insert(session, chains.len());
                    chains.push(Chain::new(append));
                }
            }
        }
        if chains.is_empty() {
            return;
        }
        match self.write_chains(&chains).await {
            Ok(written) => {
                for ((append, result), fits) in appends.iter().zip(results).zip(together) {
                    if fits && written.contains(&append.session.0) {
                        *result = Some(Ok(()));
                    }
                }
            }
            Err(error) if error.concerns_one_request() && appends.len() > 1 => {}
            Err(error) => {
                let error = self.shared.database.explain(error);
                tracing::error!(%error, appends = appends.len(), "transaction failed");
                for (append, result) in appends.iter().zip(results) {
                    self.failed.insert(append.session.0, append.fence.0);
                    *result = Some(Err(error.clone()));
                }
            }
        }
    }

    /// Whether an append can be written without looking at its session first.
    fn is_regular(&self, append: &Append) -> bool {
        match &append.lines {
            Some(lines) => append::has_all_lines(lines),
            None => self.failed.get(&append.session.0) != Some(&append.fence.0),
        }
    }

    async fn write_alone(&mut self, append: &Append) -> Result<()> {
        let result = self.try_alone(append).await;
        match &result {
            Ok(()) | Err(Error::Fenced | Error::NoSession) => {}
            Err(_) => drop(self.failed.insert(append.session.0, append.fence.0)),
        }
        result
    }

    async fn try_alone(&mut self, append: &Append) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let database = &shared.database;
        if !self.is_regular(append) {
            let refusal = append::explain_refusal(database, append).await;
            if append.lines.is_some() && matches!(refusal, Error::OutOfOrder) {
                let why = "the append has another number of lines than it says";
                return Err(Error::Store(why.to_owned()));
            }
            return Err(refusal);
        }
        match self.write_chains(&[Chain::new(append)]).await {
            Ok(written) if !written.is_empty() => Ok(()),
            Ok(_) => Err(append::explain_refusal(database, append).await),
            Err(error) => Err(database.explain(error)),
        }
    }

    /// Writes chains, again if another transaction won.
    async fn write_chains(&mut self, chains: &[Chain<'_>]) -> Result<HashSet<i64>, PostgresError> {
        let mut attempts = 0;
        let written = loop {
            attempts += 1;
            let shared = &self.shared;
            match append::write_chains(&shared.database, shared.shard, chains).await {
                Err(error) if error.is_conflict() && attempts < MAX_ATTEMPTS => {}
                written => break written?,
            }
        };
        for chain in chains.iter().filter(|chain| written.contains(&chain.session())) {
            if chain.has_events() {
                self.failed.remove(&chain.session());
            }
        }
        Ok(written)
    }
}
