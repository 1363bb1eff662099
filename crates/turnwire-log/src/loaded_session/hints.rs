//! Hints that arrive while a reply is open.
//!
//! Providers reject a turn in which a hint stands between the model's reasoning and the tool call
//! that follows from it. So a hint that arrives during a model call is held, as durable as an
//! event, and is appended right after the end of the call. If the reply ends first, it is appended
//! right before that end.

use super::{LoadedSession, PushOutcome, Transaction};
use crate::store::HeldHint;
use turnwire_core::event::Message;
use turnwire_core::{ContentBlock, Error, ErrorKind, Event, EventKind, HintBlock, Msg, Role};

impl LoadedSession {
    /// Remembers the id of a hint outside of its reply. The log chooses the reply of a hint, so a
    /// retry may find another reply, or none.
    pub(super) fn remember_hint_id(&mut self, event: &Event<'_>) {
        let is_hint_message = |message: &Message| is_hint_message(&message.message);
        if matches!(event.kind, EventKind::Hint(_))
            || matches!(&event.kind, EventKind::Message(message) if is_hint_message(message))
        {
            self.insert_other_id(&event.id);
        }
    }

    fn has_other_id(&mut self, id: &str) -> bool {
        self.other_ids.iter_mut().any(|ids| {
            let is_new = ids.insert(id);
            if is_new {
                ids.remove(id);
            }
            !is_new
        })
    }
}

/// Whether a message consists of hints only.
fn is_hint_message(msg: &Msg) -> bool {
    let is_hint = |block: &ContentBlock| matches!(block, ContentBlock::Hint(_));
    msg.role() == Role::Assistant && !msg.content().is_empty() && msg.content().iter().all(is_hint)
}

impl Transaction<'_> {
    /// Whether this hint was sent before, as far back as ids outside of replies are remembered.
    pub fn has_hint(&mut self, id: &str) -> bool {
        let is_held = |held: &HeldHint| held.event_id == id;
        !id.is_empty() && (self.live.state.held.iter().any(is_held) || self.live.has_other_id(id))
    }

    /// How many hints wait for the end of a model call.
    pub fn held_hint_count(&self) -> usize {
        self.live.state.held.len()
    }

    /// Adds a hint to an open reply, at once or after the current model call. Returns whether it is
    /// new.
    pub fn push_hint(&mut self, event: &mut Event<'_>) -> Result<bool, Error> {
        let reply = self.live.reply(&event.reply_id);
        let reply = reply.filter(|reply| reply.calls.open_blocks.is_some());
        let (Some(reply), EventKind::Hint(hint)) = (reply, &event.kind) else {
            return Ok(self.push(event, None)? != PushOutcome::Repeated);
        };
        let is_same =
            |held: &HeldHint| held.reply_id == event.reply_id && held.block_id == hint.block_id;
        let is_there = reply.msg.blocks::<HintBlock>().any(|own| own.id == hint.block_id);
        if is_there || self.live.state.held.iter().any(is_same) {
            let message = format!("a hint block with the id {} already exists", hint.block_id);
            return Err(Error::new(ErrorKind::DuplicateBlock, message));
        }
        let held = HeldHint {
            reply_id: event.reply_id.to_string(),
            event_id: event.id.to_string(),
            block_id: hint.block_id.clone(),
            json: event.to_json(),
        };
        self.live.state.held.push(held);
        self.state_changed = true;
        Ok(true)
    }

    /// Appends the held hints of a reply.
    pub(super) fn release_hints(&mut self, reply_id: &str) {
        if self.live.state.held.is_empty() {
            return;
        }
        let held = std::mem::take(&mut self.live.state.held);
        let (now, later): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|held| held.reply_id == reply_id);
        self.live.state.held = later;
        for held in now {
            self.state_changed = true;
            let Ok(mut event) = Event::from_json(&held.json) else { continue };
            if self.push(&mut event, None).is_err()
                && let EventKind::Hint(hint) = &mut event.kind
            {
                // Another block has taken its id meanwhile.
                hint.block_id = held.event_id;
                let _ = self.push(&mut event, None);
            }
        }
    }
}
