//! Runs agents over the log: replies continue whether or not a client is connected.
//!
//! What to do in a session is always read from its log, never kept in memory only: an open reply of
//! the session's own agent that does not wait is continued, and when no reply is open, the next
//! queued message is answered. So code that changes a session only has to [`wake`](Turns::wake) it,
//! inside the change if possible, and a restart only wakes all open sessions.
//!
//! | module | content |
//! |---|---|
//! | [`send`] | takes a message and starts a reply |
//! | `client_context` | checks the tools and schemas that clients send along |
//! | [`retry`] | answers a message again |
//! | [`client_events`] | takes the answers of users and clients, and stops |
//! | [`hints`] | hints for agents |
//! | [`idempotency`] | a repeated request returns the stored response |
//! | `waiting_sessions` | lists sessions with pending calls |
//! | `session_worker` | the task that works on one session |
//! | `history_cache` | keeps the conversations of the last turns in memory |
//! | `journal` | makes the events of agents durable |
//! | `usage_counter` | counts tokens, cost and model latency |
//! | `event_origin` | who sends which events |
//! | `end_replies` | ends replies that cannot continue |
//! | `deadlines` | expires pending calls and silent producers |

pub(crate) mod client_context;
pub mod client_events;
mod deadlines;
mod end_replies;
pub(crate) mod event_origin;
pub mod hints;
mod history_cache;
pub mod idempotency;
pub(crate) mod journal;
pub mod retry;
pub mod send;
mod session_worker;
mod usage_counter;
pub(crate) mod waiting_sessions;

pub(crate) use end_replies::end_all_replies;
pub(crate) use journal::{ceil_seconds, persist, stamp_event};

use crate::config::{Config, OnRestart};
use crate::metrics::AgentMetrics;
use deadlines::{Deadlines, WaitLimits};
use end_replies::end_own_replies;
use history_cache::HistoryCache;
use parking_lot::Mutex;
use session_worker::run_session;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use turnwire_agent::Replier;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Event, FinishedReason, Head, ModelCalls};
use turnwire_log::store::{SessionNumber, SessionRecord, SessionStatus, StoredMessage};
use turnwire_log::{Log, OpenReply, Result, Session, Snapshot, Transaction};

/// The agent name of sessions whose replies come only from producers.
pub const EXTERNAL: &str = "external";

/// How long an approval may take if the settings do not say.
const APPROVAL_TIMEOUT: Duration = Duration::from_mins(5);
/// How long the client may take to execute a call if the settings do not say.
const RESULT_TIMEOUT: Duration = Duration::from_hours(24);

/// Runs the agents of this process.
pub struct Turns {
    log: Arc<Log>,
    config: Arc<Config>,
    agents: BTreeMap<String, Arc<dyn Replier>>,
    metrics: AgentMetrics,
    /// The sessions that have a worker.
    workers: Mutex<HashMap<SessionNumber, WorkerState>>,
    /// How many those are.
    worker_count: watch::Sender<usize>,
    /// Answers that the agent has not received yet, with the id of the reply.
    answers: Mutex<HashMap<SessionNumber, (String, Event<'static>)>>,
    /// What new replies answer, until the worker has it.
    inputs: Mutex<HashMap<SessionNumber, ReplyInput>>,
    deadlines: Deadlines,
    histories: HistoryCache,
    /// Random for each process: background work of another process is lost.
    process: String,
    /// Cancelled when the server stops.
    shutdown: CancellationToken,
}

/// The state of a session's worker.
#[derive(Default)]
struct WorkerState {
    /// The session has changed since the worker last looked.
    was_woken: bool,
    /// The reply that it works on, and the token that stops it.
    running_reply: Option<(String, CancellationToken)>,
}

impl Turns {
    /// Creates it over a log, with the agents of this process.
    pub fn new(
        log: Arc<Log>,
        config: Arc<Config>,
        agents: BTreeMap<String, Arc<dyn Replier>>,
        metrics: AgentMetrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            log,
            config,
            agents,
            metrics,
            workers: Mutex::default(),
            worker_count: watch::Sender::new(0),
            answers: Mutex::default(),
            inputs: Mutex::default(),
            deadlines: Deadlines::default(),
            histories: HistoryCache::default(),
            process: SystemStamp.id(),
            shutdown: CancellationToken::new(),
        })
    }

    /// Removes the conversations of sessions that are not in memory any more. Called after idle sessions were evicted.
    pub(crate) fn forget_unloaded(&self) {
        self.histories.remove_unloaded();
    }

    /// Makes a worker look at a session. It never waits, so it can be called inside a change: the
    /// worker sees the session after that change.
    pub fn wake(self: &Arc<Self>, session: &Arc<Session>) {
        if session.agent() == EXTERNAL || self.shutdown.is_cancelled() {
            return;
        }
        let mut slots = self.workers.lock();
        if let Some(slot) = slots.get_mut(&session.number()) {
            slot.was_woken = true;
            return;
        }
        slots.insert(session.number(), WorkerState::default());
        self.worker_count.send_replace(slots.len());
        drop(slots);
        tokio::spawn(run_session(self.clone(), session.clone()));
    }

    /// Continues what an earlier process left: replies continue, or end if the settings say so, and
    /// queued messages are answered. Also starts the tasks that watch deadlines.
    ///
    /// In a cluster only the second: what other nodes have left is continued when they are gone.
    pub async fn recover(self: &Arc<Self>) -> Result<()> {
        if !self.is_in_cluster() {
            for record in self.log.store().list_open_sessions().await? {
                self.continue_session(record).await?;
            }
        }
        self.start_deadline_tasks();
        Ok(())
    }

    /// Continues a session that has something to do and that no process works on.
    pub(crate) async fn continue_session(self: &Arc<Self>, record: SessionRecord) -> Result<()> {
        if record.state.is_forking {
            tracing::warn!(session = &*record.key.id, "removing an unfinished fork");
            self.log.delete_session(&record.key).await?;
            return Ok(());
        }
        // Another node may have the agent.
        let is_missing = self.is_in_cluster() && !self.agents.contains_key(&record.agent);
        if record.agent == EXTERNAL || is_missing {
            return Ok(());
        }
        let Some(session) = self.log.open_session(&record.key).await? else { return Ok(()) };
        if self.stops_on_restart(&record) {
            // A store that cannot be written yet must not delay the start.
            tokio::spawn(self.clone().end_then_wake(session));
        } else {
            self.wake(&session);
        }
        Ok(())
    }

    fn is_in_cluster(&self) -> bool {
        !self.log.lease().is_permanent()
    }

    /// Whether a worker of this process works on a session.
    pub(crate) fn works_on(&self, session: &Session) -> bool {
        self.workers.lock().contains_key(&session.number())
    }

    async fn end_then_wake(self: Arc<Self>, session: Arc<Session>) {
        let interrupted = FinishedReason::Interrupted;
        let end = |tx: &mut Transaction<'_>| end_own_replies(tx, &session, &interrupted, None);
        match persist(&session, &self.shutdown, &[], end).await {
            Ok((true, _)) => self.metrics.reply_ended(session.agent(), &interrupted),
            Ok((false, _)) => {}
            Err(halt) => {
                tracing::error!(session = session.id(), error = %halt, "an open reply could not be ended");
            }
        }
        self.wake(&session);
    }

    fn stops_on_restart(&self, record: &SessionRecord) -> bool {
        let agent = self.config.agents.get(&record.agent);
        record.state.status == SessionStatus::Running
            && !record.state.is_produced
            && agent.is_some_and(|agent| agent.on_restart == OnRestart::Stop)
    }

    /// Stops all workers. Replies stay open and continue after a restart; what is being committed
    /// is committed.
    pub async fn shutdown(&self) {
        self.shutdown.cancel();
        let mut working = self.worker_count.subscribe();
        // The sender lives as long as this.
        let _ = working.wait_for(|count| *count == 0).await;
    }

    /// Stops the agent's work on a reply that has ended, or any work in a session that was deleted.
    pub fn cancel_reply(&self, session: &Session, reply: Option<&str>) {
        if let Some(slot) = self.workers.lock().get(&session.number())
            && let Some((id, call)) = &slot.running_reply
            && reply.is_none_or(|reply| reply == id)
        {
            call.cancel();
        }
    }

    /// Counts replies that were stopped.
    fn count_stopped(&self, session: &Session, replies: usize) {
        for _ in 0..replies {
            self.metrics.reply_ended(session.agent(), &FinishedReason::Interrupted);
        }
    }

    /// In how many sessions an agent works.
    pub fn active_sessions(&self) -> usize {
        *self.worker_count.borrow()
    }

    /// How long an approval of this agent may take. An external agent decides that itself.
    pub fn approval_timeout(&self, agent: &str) -> Option<Duration> {
        match self.config.agents.get(agent) {
            _ if agent == EXTERNAL => None,
            Some(config) => Some(config.approval_timeout.0),
            None => Some(APPROVAL_TIMEOUT),
        }
    }

    /// How long calls of this agent may wait. An external agent decides that itself.
    pub fn wait_limits(&self, agent: &str) -> Option<WaitLimits> {
        let approval = self.approval_timeout(agent)?;
        let config = self.config.agents.get(agent);
        let result = config.map_or(RESULT_TIMEOUT, |config| config.result_timeout.0);
        Some(WaitLimits { approval, result })
    }
}

impl Turns {
    /// Keeps an answer for the agent. To be called inside the change that logs it, so that a worker
    /// that sees the change finds the answer.
    fn store_answer_for_agent(
        &self,
        session: &Session,
        tx: &Transaction<'_>,
        answer: Event<'static>,
    ) {
        if let Some(own) = own_reply(session, tx) {
            let own = own.msg().id().to_owned();
            self.answers.lock().insert(session.number(), (own, answer));
        }
    }
}

/// The messages that a new reply answers: the agent starts while they become durable.
struct ReplyInput {
    reply_id: String,
    /// As the store will have them. Everything before them is durable.
    messages: Vec<StoredMessage>,
}

impl Turns {
    /// Keeps the messages that were added before a new reply, for the worker. To be called inside the change that logs
    /// them; `head` is the head before that change.
    fn store_input(&self, session: &Session, tx: &Transaction<'_>, reply_id: &str, head: Head) {
        // The store must show everything before them.
        if session.head_state().head == head {
            let (reply_id, messages) = (reply_id.to_owned(), tx.new_messages().to_vec());
            self.inputs.lock().insert(session.number(), ReplyInput { reply_id, messages });
        }
    }

    /// Takes the messages that a reply answers, if it is new.
    fn take_input(&self, session: &Session, snapshot: &Snapshot) -> Option<Vec<StoredMessage>> {
        let input = self.inputs.lock().remove(&session.number())?;
        let [reply] = snapshot.open.as_slice() else { return None };
        let is_new = reply.msg().id() == input.reply_id
            && reply.msg().content().is_empty()
            && *reply.model_calls() == ModelCalls::default();
        is_new.then_some(input.messages)
    }
}

/// The open reply of the session's own agent.
fn own_reply<'t>(session: &Session, tx: &'t Transaction<'_>) -> Option<&'t OpenReply> {
    let is_own = session.agent() != EXTERNAL && !tx.is_produced();
    tx.replies().iter().find(|reply| is_own && !reply.is_of_sub_agent())
}
