//! Agents and the log, joined: replies that outlive whoever asked for them.
//!
//! What is to be done in a session is always read from its log, never remembered: an open reply of
//! the session's own agent that does not wait is worked on, and when none is open the next message
//! of the queue gets its turn. So whoever changes a session only has to [`wake`](Turns::wake) it, in
//! the very change where that can be, and a restart is nothing but waking all that are open.
//!
//! | module | what is in it |
//! |---|---|
//! | [`send`] | a message comes in, and a reply starts |
//! | `offers` | what clients bring with their messages is checked |
//! | [`retry`] | a message is answered again |
//! | [`client_events`] | what people and clients say to an open reply, a stop included |
//! | [`hints`] | what an agent is told from outside |
//! | [`idempotency`] | a request that was sent twice is done once |
//! | `waiting` | the sessions in which something waits |
//! | `drive` | the one task of a session that works |
//! | `journal` | what an agent emits becomes durable |
//! | `counts` | what is counted of what becomes durable |
//! | `ending` | replies that cannot go on are closed |
//! | `clock` | questions and calls that nobody answers, producers that fall silent |

pub(crate) mod client_context;
pub mod client_events;
mod deadlines;
mod end_replies;
pub mod hints;
pub mod idempotency;
mod journal;
pub mod retry;
pub mod send;
mod session_worker;
mod usage_counter;
pub(crate) mod waiting_sessions;

pub(crate) use end_replies::end_all_replies;
pub(crate) use journal::{ceil_seconds, persist, stamp_event};

use crate::config::{Config, OnRestart};
use crate::metrics::AgentMetrics;
use crate::routes::unfinished;
use deadlines::{Deadlines, WaitLimits};
use end_replies::end_own_replies;
use parking_lot::Mutex;
use session_worker::run_session;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use turnwire_agent::Replier;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Event, FinishedReason};
use turnwire_log::store::{SessionNumber, SessionRecord, SessionStatus};
use turnwire_log::{Log, OpenReply, Result, Session, Transaction};

/// The agent of a session whose replies come only from elsewhere.
pub const EXTERNAL: &str = "external";

/// How long a question waits for a person where the settings do not say.
const APPROVAL_TIMEOUT: Duration = Duration::from_mins(5);
/// How long a call that the client executes waits for its result where the settings do not say.
const RESULT_TIMEOUT: Duration = Duration::from_hours(24);

/// The replies that agents write here.
pub struct Turns {
    log: Arc<Log>,
    config: Arc<Config>,
    agents: BTreeMap<String, Arc<dyn Replier>>,
    metrics: AgentMetrics,
    /// The sessions in which a task works.
    workers: Mutex<HashMap<SessionNumber, WorkerState>>,
    /// How many those are.
    worker_count: watch::Sender<usize>,
    /// Answers that the agent has not seen yet, and the reply that it writes.
    answers: Mutex<HashMap<SessionNumber, (String, Event<'static>)>>,
    deadlines: Deadlines,
    /// Random for each process: what works in the background of another one is gone.
    process: String,
    /// Cancelled when everything lets go.
    shutdown: CancellationToken,
}

/// The task of a session.
#[derive(Default)]
struct WorkerState {
    /// Something changed since it last looked.
    was_woken: bool,
    /// The reply that it works on, and how to stop it.
    running_reply: Option<(String, CancellationToken)>,
}

impl Turns {
    /// Over a log, with the agents that run here.
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
            deadlines: Deadlines::default(),
            process: SystemStamp.id(),
            shutdown: CancellationToken::new(),
        })
    }

    /// Has somebody look what is to be done in a session. It never waits, so it can be called
    /// inside of a change: whoever looks sees the session after it.
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

    /// Takes up what a former process left: replies go on, or end where the settings say so, and
    /// messages that wait for their turn get it. From here on time limits are watched, too.
    pub async fn recover(self: &Arc<Self>) -> Result<()> {
        for record in self.log.store().list_open_sessions().await? {
            if unfinished::is_marked(&self.log.store().list_queued(record.number).await?) {
                tracing::warn!(
                    session = &*record.key.id,
                    "a fork that was not finished is removed"
                );
                self.log.delete_session(&record.key).await?;
                continue;
            }
            if record.agent == EXTERNAL {
                continue;
            }
            let Some(session) = self.log.open_session(&record.key).await? else { continue };
            if self.stops_on_restart(&record) {
                // A store that cannot be written yet does not hold up the start.
                tokio::spawn(self.clone().end_then_wake(session));
            } else {
                self.wake(&session);
            }
        }
        self.start_deadline_tasks();
        Ok(())
    }

    async fn end_then_wake(self: Arc<Self>, session: Arc<Session>) {
        let interrupted = FinishedReason::Interrupted;
        let end = |tx: &mut Transaction<'_>| end_own_replies(tx, &session, &interrupted, None);
        match persist(&session, &self.shutdown, &[], end).await {
            Ok((true, _)) => self.metrics.reply_ended(session.agent(), &interrupted),
            Ok((false, _)) => {}
            Err(halt) => {
                tracing::error!(session = session.id(), %halt, "an open reply was not ended");
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

    /// Lets go of everything. Replies stay open, and go on after a restart; what is being committed
    /// is committed.
    pub async fn shutdown(&self) {
        self.shutdown.cancel();
        let mut working = self.worker_count.subscribe();
        // The sender is here as long as this is.
        let _ = working.wait_for(|count| *count == 0).await;
    }

    /// Has the agent let go of a reply that has ended, or of whatever it does in a session that was
    /// deleted.
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

    /// How many sessions an agent works in.
    pub fn active_sessions(&self) -> usize {
        *self.worker_count.borrow()
    }

    /// How long a question of an agent waits for a person. An agent elsewhere decides that itself.
    pub fn approval_timeout(&self, agent: &str) -> Option<Duration> {
        match self.config.agents.get(agent) {
            _ if agent == EXTERNAL => None,
            Some(config) => Some(config.approval_timeout.0),
            None => Some(APPROVAL_TIMEOUT),
        }
    }

    /// How long the calls of an agent wait for somebody. An agent elsewhere decides that itself.
    pub fn wait_limits(&self, agent: &str) -> Option<WaitLimits> {
        let approval = self.approval_timeout(agent)?;
        let config = self.config.agents.get(agent);
        let result = config.map_or(RESULT_TIMEOUT, |config| config.result_timeout.0);
        Some(WaitLimits { approval, result })
    }
}

impl Turns {
    /// Keeps an answer for the agent that asked. To be called inside of the change that logs it, so
    /// that whoever sees the change finds it.
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

/// The open reply that the session's own agent writes.
fn own_reply<'t>(session: &Session, tx: &'t Transaction<'_>) -> Option<&'t OpenReply> {
    let is_own = session.agent() != EXTERNAL && !tx.is_produced();
    tx.replies().iter().find(|reply| is_own && !reply.is_of_sub_agent())
}
