//! What an agent emits becomes durable, or the agent is told why not.

use super::counts::Counts;
use super::hints::{BACKGROUND, Findings};
use super::{Turns, own_reply};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use turnwire_agent::hints::HintStore;
use turnwire_agent::{AgentError, Journal};
use turnwire_core::Stamp;
use turnwire_core::stamp::{SequentialStamp, SystemStamp};
use turnwire_core::{Event, EventKind, HintBlock, ModelCalls, Msg, ToolResultState};
use turnwire_log::cost::COST_FIELD;
use turnwire_log::store::SessionStatus;
use turnwire_log::{Error, OpenReply, Receipt, Session, Transaction};

/// The journal of one call of an agent.
pub(super) struct Commits {
    session: Arc<Session>,
    reply_id: String,
    stop: CancellationToken,
    halted: Option<AgentError>,
    /// How long a person has to answer a question, in seconds.
    timeout_seconds: Option<u64>,
    counts: Counts,
    /// Where the tools of the session say what they find later.
    findings: Arc<dyn HintStore>,
    process: String,
    /// What stamps its events.
    stamp: SequentialStamp,
    /// How many hints the agent knows of.
    hints: usize,
    /// Whether the reply waited for somebody, in the course of this call.
    pub(super) has_waited: bool,
    /// Ids of calls that the agent cannot know of, and is not to use again.
    pub(super) used_calls: Vec<String>,
}

impl Commits {
    /// For a reply of which the agent is told this much.
    pub(super) fn new(
        turns: &Arc<Turns>,
        session: &Arc<Session>,
        partial: &Msg,
        stop: &CancellationToken,
    ) -> Self {
        let (agent, reply_id) = (session.agent(), partial.id());
        let findings = Findings { turns: Arc::downgrade(turns), session: session.clone() };
        Self {
            session: session.clone(),
            reply_id: reply_id.to_owned(),
            stop: stop.clone(),
            halted: None,
            timeout_seconds: turns.approval_timeout(agent).map(seconds),
            counts: Counts::new(&turns.metrics, &turns.config, agent, reply_id),
            findings: Arc::new(findings),
            process: turns.process.clone(),
            stamp: SequentialStamp::default(),
            hints: hints_in(partial),
            has_waited: false,
            used_calls: Vec::new(),
        }
    }

    /// What the makers of these events could not know.
    fn fill(&self, events: &mut [Event<'static>]) {
        for event in events {
            fill(event, &self.session, &self.stamp);
            match &event.kind {
                // What it costs is said once, by the prices of this moment.
                EventKind::ModelCallEnd(end) => {
                    if let Some(cost) = self.counts.cost(event, end) {
                        event.metadata.insert(COST_FIELD, cost.amount());
                    }
                }
                // Who is asked is told how long the answer may take: by the clock here, not the agent's.
                EventKind::RequireUserConfirm(_) => {
                    if let Some(seconds) = self.timeout_seconds {
                        event.metadata.insert("timeout_seconds", seconds);
                    }
                }
                // What goes on in the background goes on as long as this process does.
                EventKind::ToolResultEnd(end) if end.state == ToolResultState::Running => {
                    event.metadata.insert(BACKGROUND, self.process.as_str());
                }
                _ => {}
            }
        }
    }

    /// Commits events: all of them, or, where the agent has not read everything, none.
    async fn write(
        &mut self,
        mut events: Vec<Event<'static>>,
        if_unread: IfUnread,
    ) -> Result<bool, AgentError> {
        self.fill(&mut events);
        let mut touched: Vec<String> = Vec::new();
        for event in &events {
            if event.reply_id != self.reply_id && !touched.iter().any(|id| *id == event.reply_id) {
                touched.push(event.reply_id.to_string());
            }
        }
        let touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        let Self { session, reply_id, stop, hints, .. } = self;
        let (written, _) = persist(session, stop, &touched, |tx| {
            if stop.is_cancelled() {
                return Err(AgentError::Stopped);
            }
            // Whoever stops a reply ends it; its agent learns of it here.
            let own = own_reply(session, tx).filter(|own| own.msg().id() == reply_id);
            let Some(own) = own else { return Err(AgentError::Stopped) };
            if if_unread == IfUnread::Refuse && hints_in(own.msg()) != *hints {
                return Ok(None);
            }
            for event in &mut events {
                check(event, reply_id, tx)?;
                // The reply was started with the message that it answers; an agent that says so again
                // tells nobody anything.
                let begins = matches!(event.kind, EventKind::ReplyStart(_));
                if begins && tx.reply(&event.reply_id).is_some() {
                    continue;
                }
                total(event, tx);
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
        self.counts.see(&events);
        Ok(true)
    }

    async fn commit_if(
        &mut self,
        events: Vec<Event<'static>>,
        if_unread: IfUnread,
    ) -> Result<bool, AgentError> {
        if let Some(halt) = &self.halted {
            return Err(halt.clone());
        }
        if events.is_empty() {
            return Ok(true);
        }
        let result = self.write(events, if_unread).await;
        self.halted = result.clone().err();
        result
    }
}

/// What becomes of events where there are hints that the agent does not know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfUnread {
    Commit,
    Refuse,
}

/// How many hints a reply has.
fn hints_in(reply: &Msg) -> usize {
    reply.blocks::<HintBlock>().count()
}

#[async_trait]
impl Journal for Commits {
    async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError> {
        self.commit_if(events, IfUnread::Commit).await.map(drop)
    }

    async fn commit_end(&mut self, events: Vec<Event<'static>>) -> Result<bool, AgentError> {
        self.commit_if(events, IfUnread::Refuse).await
    }

    async fn take_updates(&mut self) -> Result<Option<(Msg, ModelCalls)>, AgentError> {
        if let Some(halt) = &self.halted {
            return Err(halt.clone());
        }
        let Self { session, reply_id, stop, hints, .. } = self;
        let (news, _) = persist(session, stop, &[], |tx| {
            let own = own_reply(session, tx).filter(|own| own.msg().id() == reply_id);
            let own = own.ok_or(AgentError::Stopped)?;
            let is_new = hints_in(own.msg()) != *hints;
            Ok(is_new.then(|| (own.msg().clone(), own.model_calls().clone())))
        })
        .await?;
        if let Some((reply, _)) = &news {
            self.hints = hints_in(reply);
        }
        Ok(news)
    }

    fn hints(&self) -> Option<Arc<dyn HintStore>> {
        Some(self.findings.clone())
    }

    fn used_call_ids(&self) -> &[String] {
        &self.used_calls
    }
}

/// Whole seconds, rounded up: nobody is told of less time than there is.
pub(crate) fn seconds(timeout: Duration) -> u64 {
    timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0)
}

/// An event with what its maker could not know.
pub(crate) fn filled(mut event: Event<'static>, session: &Session) -> Event<'static> {
    fill(&mut event, session, &SystemStamp);
    event
}

fn fill(event: &mut Event<'static>, session: &Session, stamp: &impl Stamp) {
    let id = match &mut event.kind {
        EventKind::ReplyStart(start) => Some(&mut start.session_id),
        EventKind::ReplyEnd(end) => Some(&mut end.session_id),
        _ => None,
    };
    if let Some(id) = id.filter(|id| id.is_empty()) {
        session.id().clone_into(id);
    }
    event.stamp(stamp);
}

/// Has the end of a reply say what all of it cost.
pub(super) fn total(event: &mut Event<'_>, tx: &Transaction<'_>) {
    if let EventKind::ReplyEnd(end) = &mut event.kind
        && let Some(cost) = tx.reply(&event.reply_id).and_then(OpenReply::cost)
    {
        end.message_metadata.insert(COST_FIELD, cost.amount());
    }
}

/// An agent writes one reply, and those of its sub-agents.
fn check(event: &Event<'_>, reply_id: &str, tx: &Transaction<'_>) -> Result<(), AgentError> {
    let is_at_home = !event.kind.is_part_of_reply()
        || event.reply_id == reply_id
        || event.is_from_sub_agent()
        || tx.reply(&event.reply_id).is_some();
    if is_at_home {
        return Ok(());
    }
    let (kind, other) = (event.kind.type_name(), &event.reply_id);
    Err(AgentError::Failed(format!("{kind} names the reply {other}, and this agent writes {reply_id}")))
}

/// Why a change was not made.
enum Trouble {
    /// It does not want to be made.
    Halt(AgentError),
    /// The log did not take it.
    Log(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Log(error)
    }
}

/// Changes a session. As long as the store cannot take it for a reason that may pass, such as a
/// full disk, it tries again: nothing of a reply is to be lost for that. Only a stop ends the trying.
pub(crate) async fn persist<R>(
    session: &Arc<Session>,
    stop: &CancellationToken,
    touched: &[&str],
    mut change: impl FnMut(&mut Transaction<'_>) -> Result<R, AgentError>,
) -> Result<(R, Receipt), AgentError> {
    let mut patience = Patience::new(session.id());
    loop {
        // An attempt that came through after all is known by the ids of its events.
        match session.transact(touched, |tx| change(tx).map_err(Trouble::Halt)).await {
            Ok(done) => return Ok(done),
            Err(Trouble::Halt(halt)) => return Err(halt),
            Err(Trouble::Log(error)) => patience.wait(error, stop).await?,
        }
    }
}

/// How to go on after an error of the log.
pub(super) struct Patience<'s> {
    session: &'s str,
    pause: Duration,
}

/// The first pause after an error, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

impl<'s> Patience<'s> {
    pub(super) fn new(session: &'s str) -> Self {
        Self { session, pause: PAUSES.0 }
    }

    /// Waits, where trying again can help.
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
            "the log cannot be written or read; it is tried again"
        );
        tokio::select! {
            () = tokio::time::sleep(self.pause) => {}
            () = stop.cancelled() => return Err(AgentError::Stopped),
        }
        self.pause = (self.pause * 2).min(PAUSES.1);
        Ok(())
    }
}
