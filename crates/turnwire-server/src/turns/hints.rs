//! Hints: notes for an agent from outside, from another program, a trigger, or a tool that runs in
//! the background.
//!
//! All hints go through the log. If a reply is open, a hint becomes a `HINT_BLOCK` of it, and the
//! agent reads it before its next model call; during a model call it is held, as durable as an
//! event, and logged after the call. If no reply is open, it becomes a message that the next reply
//! has in its history, or it starts a reply.

use super::end_replies::sub_agent_of;
use super::journal::{persist, stamp_event};
use super::send::{agent_missing, start_reply};
use super::{EXTERNAL, Turns};
use crate::error::{ApiError, ApiResult};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::{Arc, Weak};
use turnwire_agent::AgentError;
use turnwire_agent::hints::HintStore;
use turnwire_core::event::{Hint, Message};
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{
    ContentBlock, Event, EventKind, HintBlock, Msg, Payload, Role, ToolResultState,
};
use turnwire_log::{OpenReply, PushOutcome, Session, Transaction};

/// In the metadata of a result that ends as `running`: the process in which its work continues.
pub(super) const BACKGROUND: &str = "background";

/// How many hints may wait for the end of one model call.
const MAX_HELD_HINTS: usize = 64;

/// What to do with a hint while no reply is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhenIdle {
    /// The next reply reads it.
    #[default]
    Wait,
    /// It starts a reply.
    Reply,
}

/// What became of a hint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HintOutcome {
    pub is_new: bool,
    /// The reply that it has started.
    pub started: Option<String>,
}

impl Turns {
    /// What to do with hints for an agent while no reply is open, if the sender does not say.
    pub fn when_idle(&self, agent: &str) -> WhenIdle {
        self.config.agents.get(agent).map_or(WhenIdle::Wait, |agent| agent.on_hint.into())
    }

    /// Stores a hint: in the reply that it names, else in the open reply, else in the history.
    pub(super) fn store_hint(
        self: &Arc<Self>,
        session: &Arc<Session>,
        tx: &mut Transaction<'_>,
        event: &Event<'_>,
        when_idle: WhenIdle,
    ) -> ApiResult<HintOutcome> {
        let EventKind::Hint(hint) = &event.kind else {
            return Err(ApiError::internal("not a hint"));
        };
        if tx.has_hint(&event.id) {
            return Ok(HintOutcome::default());
        }
        if hint.hint.is_blank() {
            return Err(ApiError::unprocessable("the hint is empty: `hint` has no text"));
        }
        let mut made = Event::new("", EventKind::from((**hint).clone()));
        made.id = event.id.clone().into_owned().into();
        made.metadata = event.metadata.clone();
        let mut made = made.stamped(&SystemStamp);
        if let EventKind::Hint(hint) = &mut made.kind
            && hint.block_id.is_empty()
        {
            hint.block_id = made.id.to_string();
        }
        let is_own = session.agent() != EXTERNAL && !tx.is_produced();
        let reply = match &*event.reply_id {
            "" => tx.replies().iter().find(|reply| !reply.is_of_sub_agent()),
            id => Some(find_named_reply(tx, id, is_own)?),
        };
        let put = if let Some(reply) = reply {
            made.reply_id = reply.msg().id().to_owned().into();
            made.agent = sub_agent_of(reply);
            HintOutcome { is_new: add_to_reply(tx, &mut made, is_own)?, started: None }
        } else {
            let starts = when_idle == WhenIdle::Reply
                && is_own
                && tx.replies().is_empty()
                && tx.queue().next().is_none();
            let mut started = None;
            if starts {
                if !self.agents.contains_key(session.agent()) {
                    return Err(agent_missing(session.agent()));
                }
                let reply_id = started.insert(SystemStamp.id());
                start_reply(tx, session, reply_id).map_err(refused)?;
                made.reply_id = reply_id.clone().into();
            } else {
                made = hint_as_message(made, session)?;
            }
            tx.push(&mut made, None).map_err(refused)?;
            HintOutcome { is_new: true, started }
        };
        self.wake(session);
        Ok(put)
    }

    /// Adds hints about lost background calls to the reply that is about to continue, and returns
    /// that reply.
    pub(super) async fn log_lost_work(
        &self,
        session: &Arc<Session>,
        reply_id: &str,
        lost: Vec<Hint>,
    ) -> Result<Msg, AgentError> {
        let events: Vec<_> = lost
            .into_iter()
            .map(|hint| stamp_event(Event::new(reply_id.to_owned(), hint), session))
            .collect();
        let stored = persist(session, &self.shutdown, &[], |tx| {
            for event in &events {
                if tx.reply(reply_id).is_none() {
                    return Err(AgentError::Stopped);
                }
                tx.push(&mut event.clone(), None)
                    .map_err(|why| AgentError::Failed(why.to_string()))?;
            }
            tx.reply(reply_id).map(|reply| reply.msg().clone()).ok_or(AgentError::Stopped)
        });
        Ok(stored.await?.0)
    }

    /// Hints about calls that ran in the background of another process and have not reported since.
    pub(super) fn lost_background_calls<'m>(
        &self,
        messages: impl Iterator<Item = &'m Msg> + Clone,
    ) -> Vec<Hint> {
        let hints = messages.clone().flat_map(Msg::blocks::<HintBlock>);
        let reported: HashSet<String> = hints.filter_map(call_of_hint).collect();
        let calls = messages.flat_map(Msg::tool_calls);
        let lost = calls.filter_map(|(call, result)| {
            let result = result.filter(|result| result.state == ToolResultState::Running)?;
            let process: String = result.metadata.get(BACKGROUND).ok().flatten()?;
            (process != self.process && !reported.contains(&call.id)).then_some(call)
        });
        lost.map(|call| {
            let source = json!({
                "type": "background_tool",
                "tool_call_id": call.id,
                "tool_call_name": call.name,
                "state": "interrupted",
            });
            let text = format!(
                "The call {} of {} was at work in the background when the server stopped. It has \
                 ended, and what it had found is lost.",
                call.id, call.name
            );
            Hint {
                block_id: SystemStamp.id(),
                source: Some(source.to_string()),
                hint: Payload::Text(text),
            }
        })
        .collect()
    }
}

/// Adds a hint to the reply that it names. Returns whether it is new.
fn add_to_reply(tx: &mut Transaction<'_>, hint: &mut Event<'_>, is_own: bool) -> ApiResult<bool> {
    if !is_own {
        // An external agent reads it from the log, so it is logged at once.
        return Ok(tx.push(hint, None).map_err(refused)? != PushOutcome::Repeated);
    }
    if tx.held_hint_count() >= MAX_HELD_HINTS {
        return Err(ApiError::too_many(format!(
            "{MAX_HELD_HINTS} hints wait for the end of the model call already; nothing was stored"
        )));
    }
    tx.push_hint(hint).map_err(refused)
}

fn refused(why: turnwire_core::Error) -> ApiError {
    turnwire_log::Error::Refused { at: 0, why }.into()
}

/// The call whose result a hint reports.
fn call_of_hint(hint: &HintBlock) -> Option<String> {
    let source: Value = serde_json::from_str(hint.source.as_deref()?).ok()?;
    let is_finding = source.get("type")?.as_str()? == "background_tool";
    is_finding.then(|| source.get("tool_call_id")?.as_str().map(str::to_owned))?
}

/// The reply that a hint names.
fn find_named_reply<'t>(
    tx: &'t Transaction<'_>,
    id: &str,
    is_own: bool,
) -> ApiResult<&'t OpenReply> {
    let without = "omit `reply_id`: the open reply gets the hint, else the next one";
    let Some(reply) = tx.reply(id) else {
        return Err(if tx.is_finished(id) {
            ApiError::conflict(format!("the reply {id} has ended; nothing was stored"))
                .kind("reply_ended")
        } else {
            ApiError::unprocessable(format!("this session has no reply {id:?}"))
                .kind("unknown_reply")
        }
        .hint(without));
    };
    // A running sub-agent does not read the log: its parent relays its events.
    if is_own && reply.is_of_sub_agent() && reply.waiting_calls().next().is_none() {
        return Err(ApiError::unprocessable(format!(
            "{id} is the reply of a sub-agent at work; nothing was stored"
        ))
        .kind("sub_agent")
        .hint(without));
    }
    Ok(reply)
}

/// A hint without a reply, as a message.
fn hint_as_message(event: Event<'static>, session: &Session) -> ApiResult<Event<'static>> {
    let EventKind::Hint(hint) = event.kind else {
        return Err(ApiError::internal("not a hint"));
    };
    let block = HintBlock {
        id: hint.block_id,
        hint: hint.hint,
        source: hint.source,
        created_at: event.created_at.to_string(),
        finished_at: Some(event.created_at.to_string()),
        ..HintBlock::default()
    };
    let msg = Msg::builder(Role::Assistant)
        .id(SystemStamp.id())
        .name(session.agent())
        .block(ContentBlock::Hint(block))
        .build()
        .map_err(ApiError::internal)?
        .stamped(&SystemStamp);
    let message = EventKind::from(Message { message: Box::new(msg) });
    Ok(stamp_event(Event { kind: message, ..event }, session))
}

/// Whether a message consists of hints that came while no reply was open.
pub(crate) fn is_hint_message(msg: &Msg) -> bool {
    let is_hint = |block: &ContentBlock| matches!(block, ContentBlock::Hint(_));
    msg.finished_reason().is_none()
        && !msg.content().is_empty()
        && msg.content().iter().all(is_hint)
}

/// Logs what the tools of a session report after they went to the background.
pub(super) struct BackgroundHints {
    pub turns: Weak<Turns>,
    pub session: Arc<Session>,
}

#[async_trait]
impl HintStore for BackgroundHints {
    async fn post(&self, _: &str, mut hint: HintBlock) {
        let Some(turns) = self.turns.upgrade() else { return };
        if hint.id.is_empty() {
            hint.id = SystemStamp.id();
        }
        let session = &self.session;
        let event = Event::new("", Hint::from(hint)).stamped(&SystemStamp);
        let when_idle = turns.when_idle(session.agent());
        let put = |tx: &mut Transaction<'_>| {
            let put = turns.store_hint(session, tx, &event, when_idle);
            put.map_err(|error| AgentError::Failed(error.to_string()))
        };
        if let Err(error) = persist(session, &turns.shutdown, &[], put).await {
            tracing::error!(session = session.id(), error = %error, "the result of a background tool was not logged");
        }
    }

    /// They are in the log only.
    async fn pending(&self, _: &str) -> Vec<HintBlock> {
        Vec::new()
    }

    async fn remove(&self, _: &str, _: &[String]) {}
}
