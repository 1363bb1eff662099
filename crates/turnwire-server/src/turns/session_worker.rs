//! The worker of a session: a task that runs the agent, starts queued messages, and ends when
//! nothing is left to do.

use super::end_replies::end_own_replies;
use super::history_cache::History;
use super::journal::{LogJournal, RetryBackoff, persist, stamp_event};
use super::{Turns, own_reply, send};
use crate::blobs;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use turnwire_agent::{AgentError, ClientContext, ReplyRequest, SubAgentReply};
use turnwire_core::event::Message;
use turnwire_core::{
    ErrorType, Event, FinishedReason, ModelCalls, Msg, PermissionRule, ReplyError, Role, Seq,
};
use turnwire_log::store::{
    MessageQuery, QueuedMessage, SessionNumber, SessionStatus, StoredMessage,
};
use turnwire_log::{Error, RunningAppends, Session, Snapshot, Transaction};

/// How long an agent may take to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// What to do next in a session.
enum NextStep {
    /// The agent replies, or continues its reply.
    Reply(Box<OwnReply>),
    /// The next queued message is answered.
    StartQueued(QueuedMessage),
    /// A reply has ended and left replies of its sub-agents open.
    CloseOrphans,
    /// Queued messages wait until a producer's reply has ended.
    AwaitProducer,
    /// Nothing.
    Idle,
}

/// The messages that a new reply answers, and their appends, if they may not be durable yet. The agent begins meanwhile; the
/// journal writes nothing before they are.
type NewInput = Option<(Vec<StoredMessage>, RunningAppends)>;

/// The open reply of the session's own agent.
struct OwnReply {
    id: String,
    first: Seq,
    partial: Msg,
    calls: ModelCalls,
    subs: Vec<SubAgentReply>,
    rules: Vec<PermissionRule>,
    /// Changes if another node has written the session meanwhile.
    ownership: u64,
}

/// Works until nothing is left to do.
pub(super) async fn run_session(turns: Arc<Turns>, session: Arc<Session>) {
    let mut worker =
        SessionWorker { turns: turns.clone(), number: session.number(), is_finished: false };
    let mut backoff = RetryBackoff::new(session.id());
    let mut ownership = 0;
    while !turns.shutdown.is_cancelled() {
        let done = match session.latest_snapshot().await {
            Ok((snapshot, running)) => {
                backoff = RetryBackoff::new(session.id());
                ownership = snapshot.ownership;
                match turns.take_input(&session, &snapshot) {
                    Some(messages) => {
                        let input = Some((messages, running));
                        turns.run_step(&session, &mut worker, snapshot, input).await
                    }
                    // If an append failed, the session is as it was before.
                    None if running.finish().await.is_err() => Ok(()),
                    None => turns.run_step(&session, &mut worker, snapshot, None).await,
                }
            }
            Err(Error::Owned(_)) => {
                // The other node continues it.
                worker.finish_unless_woken();
                Ok(())
            }
            Err(error) => backoff.wait(error, &turns.shutdown).await,
        };
        if let Err(AgentError::LogLost(why) | AgentError::Failed(why)) = done {
            // In a deleted session nothing is left to do. If this process has acquired the session again, it continues
            // from the log. Otherwise another process owns the session now, or the log is damaged.
            if session.is_owned() && session.ownership() != ownership {
                tracing::info!(session = session.id(), why, "starting again from the log");
                continue;
            }
            if !session.head_state().is_deleted {
                tracing::error!(session = session.id(), why, "stopped working on a session");
            }
            worker.finish_unless_woken();
        }
        if worker.is_finished {
            return;
        }
    }
}

/// The registration of a session's worker. It ends however the task ends.
struct SessionWorker {
    turns: Arc<Turns>,
    number: SessionNumber,
    is_finished: bool,
}

impl SessionWorker {
    /// Ends the worker, unless the session has changed meanwhile.
    fn finish_unless_woken(&mut self) {
        let mut slots = self.turns.workers.lock();
        match slots.get_mut(&self.number) {
            Some(slot) if slot.was_woken => slot.was_woken = false,
            _ => {
                self.is_finished = true;
                slots.remove(&self.number);
                self.turns.worker_count.send_replace(slots.len());
            }
        }
    }
}

impl Drop for SessionWorker {
    fn drop(&mut self) {
        if !self.is_finished {
            let mut slots = self.turns.workers.lock();
            slots.remove(&self.number);
            self.turns.worker_count.send_replace(slots.len());
        }
    }
}

impl Turns {
    /// Does the next step.
    async fn run_step(
        self: &Arc<Self>,
        session: &Arc<Session>,
        worker: &mut SessionWorker,
        snapshot: Snapshot,
        input: NewInput,
    ) -> Result<(), AgentError> {
        if snapshot.state.status == SessionStatus::Waiting {
            if Box::pin(self.is_unattended(session, &snapshot)).await? {
                let denied = Box::pin(self.deny_pending_approvals(session)).await;
                denied.map_err(|error| AgentError::LogLost(error.to_string()))?;
            } else {
                self.note_deadline(session, &snapshot);
            }
        }
        match next_step(snapshot) {
            // The task lives as long as the reply: what it needs only for a moment is boxed.
            NextStep::Reply(turn) => self.run_reply(session, turn, input).await,
            NextStep::StartQueued(queued) => Box::pin(self.start_queued(session, &queued)).await,
            NextStep::CloseOrphans => {
                let interrupted = FinishedReason::Interrupted;
                let tidy = |tx: &mut Transaction<'_>| match own_reply(session, tx) {
                    Some(_) => Ok(false),
                    None => end_own_replies(tx, session, &interrupted, None),
                };
                Box::pin(persist(session, &self.shutdown, &[], tidy)).await.map(drop)
            }
            NextStep::AwaitProducer => {
                let mut head = session.watch_head();
                tokio::select! {
                    _ = head.wait_for(|head| head.status == SessionStatus::Idle || head.is_deleted) => {}
                    () = self.shutdown.cancelled() => {}
                }
                Ok(())
            }
            NextStep::Idle => {
                worker.finish_unless_woken();
                Ok(())
            }
        }
    }

    /// Runs the agent, and makes sure that the reply ends or waits.
    async fn run_reply(
        self: &Arc<Self>,
        session: &Arc<Session>,
        mut turn: Box<OwnReply>,
        input: NewInput,
    ) -> Result<(), AgentError> {
        let stop = self.shutdown.child_token();
        self.set_running_reply(session, Some((turn.id.clone(), stop.clone())));
        let (input, running) = input.unzip();
        let input = input.unwrap_or_default();
        let history = Box::pin(self.prepare_history(session, &mut turn, input, &stop)).await;
        let mut journal = LogJournal::new(self, session, &turn.partial, turn.ownership, &stop);
        journal.running_input = running;
        let history = history.map(|History { messages, superseded_calls, .. }| {
            journal.used_calls = superseded_calls;
            messages
        });
        let running = self.metrics.reply_running(session.agent());
        let result = match history {
            Ok(history) => self.call_agent(session, &turn, history, &mut journal, &stop).await,
            Err(error) => Err(error),
        };
        drop(running);
        self.set_running_reply(session, None);
        let (reason, why) = match &result {
            // It continues after the restart.
            _ if self.shutdown.is_cancelled() => return Ok(()),
            // There is no such reply, or it starts again.
            _ if journal.has_lost_input => return Ok(()),
            // The reply waited, and was answered while its agent still ran.
            Ok(()) if journal.has_waited => return Ok(()),
            Ok(()) => (FinishedReason::Error, Some("it returned without ending its reply")),
            Err(AgentError::Stopped) => (FinishedReason::Interrupted, None),
            Err(AgentError::LogLost(_)) => return result,
            Err(AgentError::Failed(why)) => (FinishedReason::Error, Some(why.as_str())),
        };
        let error = why.map(|why| ReplyError {
            r#type: ErrorType::Internal,
            message: format!("the agent failed: {why}"),
            ..ReplyError::default()
        });
        let end = |tx: &mut Transaction<'_>| match own_reply(session, tx) {
            Some(own) if own.msg().id() == turn.id && tx.status() == SessionStatus::Running => {
                end_own_replies(tx, session, &reason, error.as_ref())
            }
            _ => Ok(false),
        };
        let (has_ended, _) = Box::pin(persist(session, &self.shutdown, &[], end)).await?;
        if has_ended {
            self.metrics.reply_ended(session.agent(), &reason);
        }
        if let Some(why) = why.filter(|_| has_ended) {
            tracing::error!(session = session.id(), reply = turn.id, why, "an agent failed");
        }
        Ok(())
    }

    /// Loads the conversation before a reply. If background work of an earlier process was lost,
    /// the reply gets a hint about it first.
    async fn prepare_history(
        &self,
        session: &Arc<Session>,
        turn: &mut OwnReply,
        input: Vec<StoredMessage>,
        stop: &CancellationToken,
    ) -> Result<History, AgentError> {
        let mut history = self.read_whole_history(session, turn.first, input, stop).await?;
        let lost = self.lost_background_calls(history.messages.iter().chain([&turn.partial]));
        if !lost.is_empty() {
            turn.partial = self.log_lost_work(session, &turn.id, lost).await?;
        }
        self.load_files(session, &mut history.messages, stop).await?;
        Ok(history)
    }

    /// Calls the agent.
    async fn call_agent(
        &self,
        session: &Arc<Session>,
        turn: &OwnReply,
        history: Vec<Msg>,
        journal: &mut LogJournal,
        stop: &CancellationToken,
    ) -> Result<(), AgentError> {
        let Some(agent) = self.agents.get(session.agent()) else {
            return Err(AgentError::Failed(format!(
                "the agent {} does not exist",
                session.agent()
            )));
        };
        // An answer to another reply is not for this one.
        let input = self.answers.lock().remove(&session.number());
        let input = input.filter(|(reply, _)| *reply == turn.id).map(|(_, answer)| answer);
        let has_begun = !turn.partial.content().is_empty() || turn.partial.usage().is_some();
        let handed = ReplyRequest {
            session_id: session.id().to_owned(),
            reply_id: turn.id.clone(),
            history,
            partial: has_begun.then(|| turn.partial.clone()),
            model_calls: turn.calls.clone(),
            sub_replies: turn.subs.clone(),
            accepted_rules: turn.rules.clone(),
            input,
            stop: stop.clone(),
        };
        let reply = AssertUnwindSafe(agent.run(handed, journal)).catch_unwind();
        let grace = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_GRACE).await;
        };
        tokio::select! {
            result = reply => {
                result.unwrap_or_else(|_| Err(AgentError::Failed("it panicked".to_owned())))
            }
            () = grace => Err(AgentError::Stopped),
        }
    }

    /// Whether a call waits for approval in a turn whose client said that nobody can be asked.
    async fn is_unattended(
        &self,
        session: &Session,
        snapshot: &Snapshot,
    ) -> Result<bool, AgentError> {
        let asks = snapshot.pending_calls().iter().any(|pending| !pending.confirm.is_empty());
        let own = snapshot.open.iter().find(|reply| !reply.is_of_sub_agent());
        let Some(own) = own.filter(|_| asks && !snapshot.state.is_produced) else {
            return Ok(false);
        };
        let history = self.read_history(session, own.first_seq(), 64, &self.shutdown).await?;
        let request = history.messages.iter().rev().find(|msg| msg.role() == Role::User);
        Ok(request.is_some_and(|msg| ClientContext::from_msg(msg).unattended))
    }

    /// All messages before a seq. Those of the turn before are kept in memory. `input` has the last ones if the store may
    /// not have them yet.
    async fn read_whole_history(
        &self,
        session: &Arc<Session>,
        before: Seq,
        input: Vec<StoredMessage>,
        stop: &CancellationToken,
    ) -> Result<History, AgentError> {
        let version = session.history_version();
        let before = input.first().map_or(before, |message| message.first);
        let mut history = self.histories.take(session, version, before).unwrap_or_default();
        let query = MessageQuery {
            before: Some(before),
            after: history.last,
            limit: usize::MAX,
            sub_agents: false,
            ..MessageQuery::default()
        };
        self.extend_history(session, &mut history, &query, stop).await?;
        // Without the input: the store may still refuse it.
        self.histories.insert(session, version, &history);
        input.iter().try_for_each(|message| add_message(&mut history, message))?;
        Ok(history)
    }

    /// The last messages before a seq.
    async fn read_history(
        &self,
        session: &Session,
        before: Seq,
        limit: usize,
        stop: &CancellationToken,
    ) -> Result<History, AgentError> {
        let query = MessageQuery {
            before: Some(before),
            limit,
            sub_agents: false,
            ..MessageQuery::default()
        };
        let mut history = History::default();
        self.extend_history(session, &mut history, &query, stop).await?;
        Ok(history)
    }

    /// Adds messages of a session.
    async fn extend_history(
        &self,
        session: &Session,
        history: &mut History,
        query: &MessageQuery,
        stop: &CancellationToken,
    ) -> Result<(), AgentError> {
        let mut backoff = RetryBackoff::new(session.id());
        let stored = loop {
            match session.list_messages(query).await {
                Ok(stored) => break stored,
                Err(error) => backoff.wait(error, stop).await?,
            }
        };
        stored.iter().try_for_each(|message| add_message(history, message))
    }

    /// Replaces blob URLs in the conversation with the bytes.
    async fn load_files(
        &self,
        session: &Session,
        history: &mut [Msg],
        stop: &CancellationToken,
    ) -> Result<(), AgentError> {
        let (store, tenant) = (&**self.log.store(), &session.key().tenant);
        let mut backoff = RetryBackoff::new(session.id());
        loop {
            match blobs::inline_blobs(store, &self.config, tenant, history).await {
                Ok(()) => return Ok(()),
                Err(error) => backoff.wait(error, stop).await?,
            }
        }
    }

    /// Starts the reply to the first queued message.
    async fn start_queued(
        &self,
        session: &Arc<Session>,
        queued: &QueuedMessage,
    ) -> Result<(), AgentError> {
        let msg = std::str::from_utf8(&queued.json).ok().and_then(|text| Msg::from_json(text).ok());
        let message =
            msg.map(|msg| stamp_event(Event::new("", Message { message: Box::new(msg) }), session));
        persist(session, &self.shutdown, &[&queued.id, &queued.reply_id], |tx| {
            if !tx.replies().is_empty() || tx.queue().next() != Some(queued) {
                return Ok(());
            }
            tx.dequeue(&queued.id);
            let is_taken = tx.is_finished(&queued.id) || tx.is_finished(&queued.reply_id);
            let Some(mut message) = message.clone().filter(|_| !is_taken) else {
                tracing::error!(
                    session = session.id(),
                    message = queued.id,
                    "a queued message was dropped: it cannot be read, or its id was taken meanwhile"
                );
                return Ok(());
            };
            let fits = tx.push(&mut message, None);
            let fits = fits.and_then(|_| send::start_reply(tx, session, &queued.reply_id));
            fits.map(drop).map_err(|why| AgentError::Failed(why.to_string()))
        })
        .await
        .map(drop)
    }

    fn set_running_reply(&self, session: &Session, call: Option<(String, CancellationToken)>) {
        if let Some(slot) = self.workers.lock().get_mut(&session.number()) {
            slot.running_reply = call;
        }
    }
}

fn add_message(history: &mut History, message: &StoredMessage) -> Result<(), AgentError> {
    let damaged = |why| AgentError::LogLost(format!("message {} is damaged: {why}", message.id));
    history.add(message).map_err(damaged)
}

fn next_step(snapshot: Snapshot) -> NextStep {
    let Snapshot { open, queue, state, ownership, .. } = snapshot;
    let next = queue.into_iter().next();
    if state.is_produced {
        return if next.is_some() { NextStep::AwaitProducer } else { NextStep::Idle };
    }
    let subs = open.iter().filter_map(|reply| {
        let agent = reply.agent().filter(|_| reply.is_of_sub_agent())?.clone();
        Some(SubAgentReply {
            msg: reply.msg().clone(),
            model_calls: reply.model_calls().clone(),
            agent,
        })
    });
    let subs = subs.collect();
    let own = open.into_iter().find(|reply| !reply.is_of_sub_agent());
    match (state.status, own, next) {
        (SessionStatus::Idle, _, Some(next)) => NextStep::StartQueued(next),
        (SessionStatus::Idle, _, None) | (SessionStatus::Waiting, Some(_), _) => NextStep::Idle,
        (SessionStatus::Running | SessionStatus::Waiting, None, _) => NextStep::CloseOrphans,
        (SessionStatus::Running, Some(reply), _) => NextStep::Reply(Box::new(OwnReply {
            id: reply.msg().id().to_owned(),
            first: reply.first_seq(),
            partial: reply.msg().clone(),
            calls: reply.model_calls().clone(),
            subs,
            rules: state.rules.clone(),
            ownership,
        })),
    }
}
