//! Ends replies that cannot continue, in a way that keeps the history valid for the next model
//! call.

use super::EXTERNAL;
use super::journal::{add_total_cost, stamp_event};
use turnwire_agent::{AgentError, close_reply};
use turnwire_core::event::SubAgent;
use turnwire_core::{Event, FinishedReason, ReplyError};
use turnwire_log::{OpenReply, Session, Transaction};

/// Ends the open replies of the session's own agent. Returns whether there were any.
pub(super) fn end_own_replies(
    tx: &mut Transaction<'_>,
    session: &Session,
    reason: &FinishedReason,
    error: Option<&ReplyError>,
) -> Result<bool, AgentError> {
    if tx.is_produced() || session.agent() == EXTERNAL {
        return Ok(false);
    }
    end_all_replies(tx, session, reason, error)
}

/// Ends all open replies: those of sub-agents first.
pub(crate) fn end_all_replies(
    tx: &mut Transaction<'_>,
    session: &Session,
    reason: &FinishedReason,
    error: Option<&ReplyError>,
) -> Result<bool, AgentError> {
    let open = tx.replies().iter().rev();
    let (below, top): (Vec<_>, Vec<_>) = open.partition(|reply| reply.is_of_sub_agent());
    let mut events = Vec::new();
    for reply in below {
        let interrupted = FinishedReason::Interrupted;
        events.extend(with_agent(
            reply,
            close_reply(reply.msg(), reply.model_calls(), interrupted, None),
        ));
    }
    for reply in top {
        let end = close_reply(reply.msg(), reply.model_calls(), reason.clone(), error.cloned());
        events.extend(with_agent(reply, end));
    }
    let any = !events.is_empty();
    for event in events {
        let mut event = stamp_event(event, session);
        add_total_cost(&mut event, tx);
        tx.push(&mut event, None)
            .map_err(|why| AgentError::Failed(format!("a reply cannot be closed: {why}")))?;
    }
    Ok(any)
}

/// Sets the sub-agent of events.
fn with_agent(
    reply: &OpenReply,
    events: Vec<Event<'static>>,
) -> impl Iterator<Item = Event<'static>> {
    let agent = sub_agent_of(reply);
    events.into_iter().map(move |event| Event { agent: agent.clone(), ..event })
}

/// The sub-agent that writes a reply.
pub(super) fn sub_agent_of(reply: &OpenReply) -> Option<Box<SubAgent>> {
    reply.agent().cloned().map(Box::new)
}
