//! The one task of a session that works.

use super::ending::end_own;
use super::journal::{Commits, Patience, filled, persist};
use super::{Turns, own_reply, send};
use crate::blobs;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use turnwire_agent::{AgentError, ClientContext, SubAgentReply, ReplyRequest, tool_call_ids};
use turnwire_core::event::Message;
use turnwire_core::{
    ErrorType, Event, FinishedReason, ModelCalls, Msg, PermissionRule, ReplyError, Role, Seq,
};
use turnwire_log::store::{MessageQuery, QueuedMessage, SessionNumber, SessionStatus};
use turnwire_log::{Session, Snapshot, Transaction};

/// How long an agent has to let go once it was told to.
const GRACE: Duration = Duration::from_secs(5);

/// What is to be done in a session.
enum Step {
    /// The agent replies, or goes on.
    Reply(Box<OpenTurn>),
    /// The next message of the queue gets its turn.
    Next(QueuedMessage),
    /// Sub-agents' replies were left open by one that has ended.
    TidyUp,
    /// Messages wait until somebody else's reply has ended.
    Await,
    /// Nothing.
    Rest,
}

/// The conversation before a reply.
#[derive(Default)]
struct History {
    messages: Vec<Msg>,
    /// The ids of calls in messages that no longer count.
    superseded_calls: Vec<String>,
}

/// The reply that is open.
struct OpenTurn {
    id: String,
    first: Seq,
    partial: Msg,
    calls: ModelCalls,
    subs: Vec<SubAgentReply>,
    rules: Vec<PermissionRule>,
}

/// Works until there is nothing more to do.
pub(super) async fn drive(turns: Arc<Turns>, session: Arc<Session>) {
    let mut seat = Seat { turns: turns.clone(), no: session.number(), has_left: false };
    let mut patience = Patience::new(session.id());
    while !turns.over.is_cancelled() {
        let done = match session.snapshot().await {
            Ok(snapshot) => {
                patience = Patience::new(session.id());
                turns.work(&session, &mut seat, snapshot).await
            }
            Err(error) => patience.wait(error, &turns.over).await,
        };
        if let Err(AgentError::LogLost(why) | AgentError::Failed(why)) = done {
            // A session that was deleted has nothing more to be done. Otherwise its log belongs to
            // another process now, or is damaged.
            if !session.head_state().is_deleted {
                tracing::error!(session = session.id(), why, "a session was given up");
            }
            seat.leave();
        }
        if seat.has_left {
            return;
        }
    }
}

/// The place of the one task of a session. It is free again however the task ends.
struct Seat {
    turns: Arc<Turns>,
    no: SessionNumber,
    has_left: bool,
}

impl Seat {
    /// Frees the place, unless there is something new to look at.
    fn leave(&mut self) {
        let mut slots = self.turns.slots.lock();
        match slots.get_mut(&self.no) {
            Some(slot) if slot.again => slot.again = false,
            _ => {
                self.has_left = true;
                slots.remove(&self.no);
                self.turns.working.send_replace(slots.len());
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.has_left {
            let mut slots = self.turns.slots.lock();
            slots.remove(&self.no);
            self.turns.working.send_replace(slots.len());
        }
    }
}

impl Turns {
    /// Does what is to be done next.
    async fn work(
        self: &Arc<Self>,
        session: &Arc<Session>,
        seat: &mut Seat,
        snapshot: Snapshot,
    ) -> Result<(), AgentError> {
        if snapshot.state.status == SessionStatus::Waiting {
            if Box::pin(self.is_unattended(session, &snapshot)).await? {
                let denied = Box::pin(self.deny_all(session)).await;
                denied.map_err(|error| AgentError::LogLost(error.to_string()))?;
            } else {
                self.note_deadline(session, &snapshot);
            }
        }
        match step(snapshot) {
            // The task is there as long as the reply is: what it needs for a moment is boxed.
            Step::Reply(turn) => self.reply(session, turn).await,
            Step::Next(queued) => Box::pin(self.start_queued(session, &queued)).await,
            Step::TidyUp => {
                let interrupted = FinishedReason::Interrupted;
                let tidy = |tx: &mut Transaction<'_>| match own_reply(session, tx) {
                    Some(_) => Ok(false),
                    None => end_own(tx, session, &interrupted, None),
                };
                Box::pin(persist(session, &self.over, &[], tidy)).await.map(drop)
            }
            Step::Await => {
                let mut head = session.watch_head();
                tokio::select! {
                    _ = head.wait_for(|head| head.status == SessionStatus::Idle || head.is_deleted) => {}
                    () = self.over.cancelled() => {}
                }
                Ok(())
            }
            Step::Rest => {
                seat.leave();
                Ok(())
            }
        }
    }

    /// Has the agent reply, and sees to it that the reply ends or waits.
    async fn reply(
        self: &Arc<Self>,
        session: &Arc<Session>,
        mut turn: Box<OpenTurn>,
    ) -> Result<(), AgentError> {
        let stop = self.over.child_token();
        self.at_work(session, Some((turn.id.clone(), stop.clone())));
        let history = Box::pin(self.prepare(session, &mut turn, &stop)).await;
        let mut journal = Commits::new(self, session, &turn.partial, &stop);
        let history = history.map(|History { messages, superseded_calls }| {
            journal.used_calls = superseded_calls;
            messages
        });
        let running = self.metrics.runs(session.agent());
        let result = match history {
            Ok(history) => self.call(session, &turn, history, &mut journal, &stop).await,
            Err(halt) => Err(halt),
        };
        drop(running);
        self.at_work(session, None);
        let (reason, why) = match &result {
            // It goes on after the restart.
            _ if self.over.is_cancelled() => return Ok(()),
            // One that has waited and does so no more was answered while its agent still ran.
            Ok(()) if journal.has_waited => return Ok(()),
            Ok(()) => (FinishedReason::Error, Some("it stopped without ending its reply")),
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
                end_own(tx, session, &reason, error.as_ref())
            }
            _ => Ok(false),
        };
        let (has_ended, _) = Box::pin(persist(session, &self.over, &[], end)).await?;
        if has_ended {
            self.metrics.ended(session.agent(), &reason);
        }
        if let Some(why) = why.filter(|_| has_ended) {
            tracing::error!(session = session.id(), reply = turn.id, why, "an agent failed");
        }
        Ok(())
    }

    /// The conversation before a reply. What worked in the background of a process that is gone is
    /// made known in the reply first.
    async fn prepare(
        &self,
        session: &Arc<Session>,
        turn: &mut OpenTurn,
        stop: &CancellationToken,
    ) -> Result<History, AgentError> {
        let mut history = self.history(session, turn.first, usize::MAX, stop).await?;
        let lost = self.lost_work(history.messages.iter().chain([&turn.partial]));
        if !lost.is_empty() {
            turn.partial = self.tell_of_lost_work(session, &turn.id, lost).await?;
        }
        self.with_bytes(session, &mut history.messages, stop).await?;
        Ok(history)
    }

    /// Calls the agent.
    async fn call(
        &self,
        session: &Arc<Session>,
        turn: &OpenTurn,
        history: Vec<Msg>,
        journal: &mut Commits,
        stop: &CancellationToken,
    ) -> Result<(), AgentError> {
        let Some(agent) = self.agents.get(session.agent()) else {
            return Err(AgentError::Failed(format!("the agent {} is not there", session.agent())));
        };
        // What was said to another reply is not for this one.
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
        let patience = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            result = reply => {
                result.unwrap_or_else(|_| Err(AgentError::Failed("it broke down".to_owned())))
            }
            () = patience => Err(AgentError::Stopped),
        }
    }

    /// Whether a question waits in a turn whose client said that nobody can be asked.
    async fn is_unattended(&self, session: &Session, snapshot: &Snapshot) -> Result<bool, AgentError> {
        let asks = snapshot.pending_calls().iter().any(|pending| !pending.confirm.is_empty());
        let own = snapshot.open.iter().find(|reply| !reply.is_of_sub_agent());
        let Some(own) = own.filter(|_| asks && !snapshot.state.is_produced) else {
            return Ok(false);
        };
        let history = self.history(session, own.first_seq(), 64, &self.over).await?;
        let asked = history.messages.iter().rev().find(|msg| msg.role() == Role::User);
        Ok(asked.is_some_and(|msg| ClientContext::from_msg(msg).unattended))
    }

    /// The conversation before a place, or the last messages of it.
    async fn history(
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
        let mut patience = Patience::new(session.id());
        let stored = loop {
            match session.list_messages(&query).await {
                Ok(stored) => break stored,
                Err(error) => patience.wait(error, stop).await?,
            }
        };
        let mut history = History::default();
        for message in stored {
            let text = std::str::from_utf8(&message.json).map_err(|why| why.to_string());
            let msg = text.and_then(|text| Msg::from_json(text).map_err(|why| why.to_string()));
            let damaged = |why| AgentError::LogLost(format!("message {} is damaged: {why}", message.id));
            match msg {
                Ok(msg) if message.superseded => {
                    history.superseded_calls.extend(tool_call_ids(&msg).map(str::to_owned));
                }
                Ok(msg) => history.messages.push(msg),
                Err(_) if message.superseded => {}
                Err(why) => return Err(damaged(why)),
            }
        }
        Ok(history)
    }

    /// Puts the bytes of stored files into the conversation.
    async fn with_bytes(
        &self,
        session: &Session,
        history: &mut [Msg],
        stop: &CancellationToken,
    ) -> Result<(), AgentError> {
        let (store, tenant) = (&**self.log.store(), &session.key().tenant);
        let mut patience = Patience::new(session.id());
        loop {
            match blobs::hand_over(store, &self.config, tenant, history).await {
                Ok(()) => return Ok(()),
                Err(error) => patience.wait(error, stop).await?,
            }
        }
    }

    /// Gives the first message of the queue its turn.
    async fn start_queued(&self, session: &Arc<Session>, queued: &QueuedMessage) -> Result<(), AgentError> {
        let msg = std::str::from_utf8(&queued.json).ok().and_then(|text| Msg::from_json(text).ok());
        let message =
            msg.map(|msg| filled(Event::new("", Message { message: Box::new(msg) }), session));
        persist(session, &self.over, &[&queued.id, &queued.reply_id], |tx| {
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
            let fits = fits.and_then(|_| send::start(tx, session, &queued.reply_id));
            fits.map(drop).map_err(|why| AgentError::Failed(why.to_string()))
        })
        .await
        .map(drop)
    }

    fn at_work(&self, session: &Session, call: Option<(String, CancellationToken)>) {
        if let Some(slot) = self.slots.lock().get_mut(&session.number()) {
            slot.call = call;
        }
    }
}

fn step(snapshot: Snapshot) -> Step {
    let Snapshot { open, queue, state, .. } = snapshot;
    let next = queue.into_iter().next();
    if state.is_produced {
        return if next.is_some() { Step::Await } else { Step::Rest };
    }
    let subs = open.iter().filter_map(|reply| {
        let agent = reply.agent().filter(|_| reply.is_of_sub_agent())?.clone();
        Some(SubAgentReply { msg: reply.msg().clone(), model_calls: reply.model_calls().clone(), agent })
    });
    let subs = subs.collect();
    let own = open.into_iter().find(|reply| !reply.is_of_sub_agent());
    match (state.status, own, next) {
        (SessionStatus::Idle, _, Some(next)) => Step::Next(next),
        (SessionStatus::Idle, _, None) | (SessionStatus::Waiting, Some(_), _) => Step::Rest,
        (SessionStatus::Running | SessionStatus::Waiting, None, _) => Step::TidyUp,
        (SessionStatus::Running, Some(reply), _) => Step::Reply(Box::new(OpenTurn {
            id: reply.msg().id().to_owned(),
            first: reply.first_seq(),
            partial: reply.msg().clone(),
            calls: reply.model_calls().clone(),
            subs,
            rules: state.rules.clone(),
        })),
    }
}
