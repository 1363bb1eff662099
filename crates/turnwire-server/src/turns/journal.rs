//! The journal of an agent run: makes the events that an agent emits durable, or tells it why not.

use super::hints::{BACKGROUND, BackgroundHints};
use super::usage_counter::UsageCounter;
use super::{Turns, own_reply};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use turnwire_agent::hints::HintStore;
use turnwire_agent::{AgentError, Journal};
use turnwire_core::Stamp;
use turnwire_core::stamp::{SequentialStamp, SystemStamp};
use turnwire_core::{Event, EventKind, HintBlock, ModelCalls, Msg, ToolResultState, event_kinds};
use turnwire_log::cost::COST_FIELD;
use turnwire_log::store::SessionStatus;
use turnwire_log::{Error, OpenReply, Receipt, RunningAppends, Session, Transaction};

/// The journal of one agent run.
pub(super) struct LogJournal {
    session: Arc<Session>,
    reply_id: String,
    /// Changes if another node has written the session since the run began.
    ownership: u64,
    stop: CancellationToken,
    failure: Option<AgentError>,
    /// The appends of what the reply answers, until they are durable: the agent has begun, and nothing of it is written
    /// before.
    pub(super) running_input: Option<RunningAppends>,
    /// The store did not take them, or did not say so: what there is to do has to be read from the log again.
    pub(super) has_lost_input: bool,
    /// How long an approval may take, in seconds.
    timeout_seconds: Option<u64>,
    counts: UsageCounter,
    /// Where background tools of the session report.
    background_hints: Arc<dyn HintStore>,
    process: String,
    /// Stamps its events.
    stamp: SequentialStamp,
    /// How many hints the agent knows.
    hints: usize,
    /// Whether the reply has waited for an answer during this run.
    pub(super) has_waited: bool,
    /// Ids of calls that the agent cannot know, and must not use again.
    pub(super) used_calls: Vec<String>,
}

impl LogJournal {
    /// For a reply in the state that the agent is given.
    pub(super) fn new(
        turns: &Arc<Turns>,
        session: &Arc<Session>,
        partial: &Msg,
        ownership: u64,
        stop: &CancellationToken,
    ) -> Self {
        let (agent, reply_id) = (session.agent(), partial.id());
        let findings = BackgroundHints { turns: Arc::downgrade(turns), session: session.clone() };
        Self {
            session: session.clone(),
            reply_id: reply_id.to_owned(),
            ownership,
            stop: stop.clone(),
            failure: None,
            running_input: None,
            has_lost_input: false,
            timeout_seconds: turns.approval_timeout(agent).map(ceil_seconds),
            counts: UsageCounter::new(&turns.metrics, &turns.config, agent, reply_id),
            background_hints: Arc::new(findings),
            process: turns.process.clone(),
            stamp: SequentialStamp::default(),
            hints: count_hints(partial),
            has_waited: false,
            used_calls: Vec::new(),
        }
    }

    /// Adds what the agent cannot know.
    fn stamp_events(&self, events: &mut [Event<'static>]) {
        for event in events {
            stamp_event_with(event, &self.session, &self.stamp);
            match &event.kind {
                // The cost is logged once, at the current prices.
                EventKind::ModelCallEnd(end) => {
                    if let Some(cost) = self.counts.cost(event, end) {
                        event.metadata.insert(COST_FIELD, cost.amount());
                    }
                }
                // The time limit of an approval is set by this server's clock.
                EventKind::RequireUserConfirm(_) => {
                    event.metadata.insert_some("timeout_seconds", self.timeout_seconds);
                }
                // Background work lives as long as this process.
                EventKind::ToolResultEnd(end) if end.state == ToolResultState::Running => {
                    event.metadata.insert(BACKGROUND, self.process.as_str());
                }
                event_kinds!(
                    ModelCallStart RequireExternalExecution UserConfirmResult
                    ExternalExecutionResult reply content tool notice session
                ) => {}
            }
        }
    }

    /// Commits events: all of them, or none if the agent has unread hints and `unread` is `Refuse`.
    async fn write_events(
        &mut self,
        mut events: Vec<Event<'static>>,
        if_unread: UnreadHints,
    ) -> Result<bool, AgentError> {
        self.stamp_events(&mut events);
        let mut touched: Vec<String> = Vec::new();
        for event in &events {
            if event.reply_id != self.reply_id && !touched.iter().any(|id| *id == event.reply_id) {
                touched.push(event.reply_id.to_string());
            }
        }
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        let Self { session, reply_id, stop, hints, ownership, .. } = self;
        let (written, _) = persist(session, stop, &touched, |tx| {
            check_ownership(tx, *ownership)?;
            if stop.is_cancelled() {
                return Err(AgentError::Stopped);
            }
            // A stop ends the reply; its agent notices here.
            let own = own_reply(session, tx).filter(|own| own.msg().id() == reply_id);
            let Some(own) = own else { return Err(AgentError::Stopped) };
            if if_unread == UnreadHints::Refuse && count_hints(own.msg()) != *hints {
                return Ok(None);
            }
            for event in &mut events {
                check_reply_id(event, reply_id, tx)?;
                // The reply was started together with its message. A second start by the agent is
                // ignored.
                let begins = matches!(event.kind, EventKind::ReplyStart(_));
                if begins && tx.reply(&event.reply_id).is_some() {
                    continue;
                }
                add_total_cost(event, tx);
                tx.push(event, None).map_err(|why| {
                    AgentError::Failed(format!("{} does not fit: {why}", event.kind.type_name()))
                })?;
            }
            Ok(Some(tx.status() == SessionStatus::Waiting))
        })
        .await?;
        let Some(waits) = written else { return Ok(false) };
        self.has_waited |= waits;
        let is_hint = |event: &&Event<'_>| {
            event.reply_id == self.reply_id && matches!(event.kind, EventKind::Hint(_))
        };
        self.hints += events.iter().filter(is_hint).count();
        self.counts.count_events(&events);
        Ok(true)
    }

    async fn commit_if(
        &mut self,
        events: Vec<Event<'static>>,
        if_unread: UnreadHints,
    ) -> Result<bool, AgentError> {
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        if events.is_empty() || self.is_known_start(&events) {
            return Ok(true);
        }
        let result = match self.await_input().await {
            Ok(()) => self.write_events(events, if_unread).await,
            Err(error) => Err(error),
        };
        self.failure = result.clone().err();
        result
    }

    /// Whether these events only start the reply, which was started together with its input.
    fn is_known_start(&self, events: &[Event<'_>]) -> bool {
        let is_start = |event: &Event<'_>| {
            event.reply_id == self.reply_id && matches!(event.kind, EventKind::ReplyStart(_))
        };
        self.running_input.is_some() && events.iter().all(is_start)
    }

    /// Waits until the input is durable.
    async fn await_input(&mut self) -> Result<(), AgentError> {
        let Some(running) = self.running_input.take() else { return Ok(()) };
        let written = running.finish().await;
        self.has_lost_input = written.is_err();
        written.map_err(|_| AgentError::Stopped)
    }
}

/// An agent must not continue from what it knows if another node has continued its reply meanwhile.
fn check_ownership(tx: &Transaction<'_>, since: u64) -> Result<(), AgentError> {
    if tx.ownership() == since {
        return Ok(());
    }
    Err(AgentError::LogLost("another node may have worked on the session meanwhile".to_owned()))
}

/// What to do with events if there are hints that the agent has not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnreadHints {
    Ignore,
    Refuse,
}

/// The number of hints in a reply.
fn count_hints(reply: &Msg) -> usize {
    reply.blocks::<HintBlock>().count()
}

#[async_trait]
impl Journal for LogJournal {
    async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError> {
        self.commit_if(events, UnreadHints::Ignore).await.map(drop)
    }

    async fn commit_end(&mut self, events: Vec<Event<'static>>) -> Result<bool, AgentError> {
        self.commit_if(events, UnreadHints::Refuse).await
    }

    async fn take_updates(&mut self) -> Result<Option<(Msg, ModelCalls)>, AgentError> {
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        if self.running_input.is_some() {
            let Self { session, reply_id, hints, .. } = self;
            let is_new = session
                .peek(|tx| tx.reply(reply_id).is_none_or(|own| count_hints(own.msg()) != *hints));
            if matches!(is_new.await, Ok(false)) {
                return Ok(None);
            }
            self.await_input().await?;
        }
        let Self { session, reply_id, stop, hints, ownership, .. } = self;
        let (news, _) = persist(session, stop, &[], |tx| {
            check_ownership(tx, *ownership)?;
            let own = own_reply(session, tx).filter(|own| own.msg().id() == reply_id);
            let own = own.ok_or(AgentError::Stopped)?;
            let is_new = count_hints(own.msg()) != *hints;
            Ok(is_new.then(|| (own.msg().clone(), own.model_calls().clone())))
        })
        .await?;
        if let Some((reply, _)) = &news {
            self.hints = count_hints(reply);
        }
        Ok(news)
    }

    fn hints(&self) -> Option<Arc<dyn HintStore>> {
        Some(self.background_hints.clone())
    }

    fn used_call_ids(&self) -> &[String] {
        &self.used_calls
    }
}

/// Whole seconds, rounded up.
pub(crate) fn ceil_seconds(timeout: Duration) -> u64 {
    timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0)
}

/// Sets an event's session, id and time.
pub(crate) fn stamp_event(mut event: Event<'static>, session: &Session) -> Event<'static> {
    stamp_event_with(&mut event, session, &SystemStamp);
    event
}

fn stamp_event_with(event: &mut Event<'static>, session: &Session, stamp: &impl Stamp) {
    let id = match &mut event.kind {
        EventKind::ReplyStart(start) => Some(&mut start.session_id),
        EventKind::ReplyEnd(end) => Some(&mut end.session_id),
        event_kinds!(model_call content tool pending_call notice session) => None,
    };
    if let Some(id) = id.filter(|id| id.is_empty()) {
        session.id().clone_into(id);
    }
    event.stamp(stamp);
}

/// Sets the total cost in the end of a reply.
pub(super) fn add_total_cost(event: &mut Event<'_>, tx: &Transaction<'_>) {
    if let EventKind::ReplyEnd(end) = &mut event.kind
        && let Some(cost) = tx.reply(&event.reply_id).and_then(OpenReply::cost)
    {
        end.message_metadata.insert(COST_FIELD, cost.amount());
    }
}

/// An agent may write only its own reply and those of its sub-agents.
fn check_reply_id(
    event: &Event<'_>,
    reply_id: &str,
    tx: &Transaction<'_>,
) -> Result<(), AgentError> {
    let is_at_home = !event.kind.is_part_of_reply()
        || event.reply_id == reply_id
        || event.is_from_sub_agent()
        || tx.reply(&event.reply_id).is_some();
    if is_at_home {
        return Ok(());
    }
    let (kind, other) = (event.kind.type_name(), &event.reply_id);
    Err(AgentError::Failed(format!(
        "{kind} names the reply {other}, and this agent writes {reply_id}"
    )))
}

/// Why a change was not made.
enum PersistError {
    /// The change itself failed.
    Refused(AgentError),
    /// The log failed.
    Log(Error),
}

impl From<Error> for PersistError {
    fn from(error: Error) -> Self {
        Self::Log(error)
    }
}

/// Changes a session, and retries as long as the store fails for a reason that may pass, such as a
/// full disk: no event of a reply may be lost for that. Only a stop ends the retries.
pub(crate) async fn persist<R>(
    session: &Arc<Session>,
    stop: &CancellationToken,
    touched: &[&str],
    mut change: impl FnMut(&mut Transaction<'_>) -> Result<R, AgentError>,
) -> Result<(R, Receipt), AgentError> {
    let mut backoff = RetryBackoff::new(session.id());
    loop {
        // An attempt that was written after all is recognised by the ids of its events.
        match session.transact(touched, |tx| change(tx).map_err(PersistError::Refused)).await {
            Ok(done) => return Ok(done),
            Err(PersistError::Refused(error)) => return Err(error),
            Err(PersistError::Log(error)) => backoff.wait(error, stop).await?,
        }
    }
}

/// Pauses between retries after an error of the log.
pub(super) struct RetryBackoff<'s> {
    session: &'s str,
    pause: Duration,
}

/// The first pause, and the longest.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

impl<'s> RetryBackoff<'s> {
    pub(super) fn new(session: &'s str) -> Self {
        Self { session, pause: RETRY_PAUSES.0 }
    }

    /// Waits if a retry can help, otherwise returns the error.
    pub(super) async fn wait(
        &mut self,
        error: Error,
        stop: &CancellationToken,
    ) -> Result<(), AgentError> {
        let may_pass = matches!(
            error,
            Error::OutOfOrder
                | Error::Full(_)
                | Error::Locked(_)
                | Error::Denied(_)
                | Error::Store(_)
        );
        if !may_pass {
            return Err(AgentError::LogLost(error.to_string()));
        }
        tracing::warn!(
            session = self.session,
            %error,
            again_ms = u64::try_from(self.pause.as_millis()).unwrap_or(u64::MAX),
            "log error; will retry"
        );
        tokio::select! {
            () = tokio::time::sleep(self.pause) => {}
            () = stop.cancelled() => return Err(AgentError::Stopped),
        }
        self.pause = (self.pause * 2).min(RETRY_PAUSES.1);
        Ok(())
    }
}
