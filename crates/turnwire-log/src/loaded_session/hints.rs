//! Hints that come from outside while a reply grows.
//!
//! A model's words belong together: providers do not take a turn back in which somebody else speaks
//! between the reasoning and the call that it led to. So a hint that comes while a model call is open is
//! held, as durable as an event, and gets its place right behind the end of the call; where the reply
//! ends before that, right before its end.

use super::{LoadedSession, PushOutcome, Transaction};
use crate::store::HeldHint;
use turnwire_core::{ContentBlock, Error, ErrorKind, Event, EventKind, HintBlock, Msg, Role};

impl LoadedSession {
    /// Remembers the ids of hints beside those of their replies: where one belongs is decided here, so
    /// whoever sends it again may find another reply, or none.
    pub(super) fn remember_hint_id(&mut self, event: &Event<'_>) {
        let is_hint = match &event.kind {
            EventKind::Hint(_) => true,
            EventKind::Message(message) => is_hint_message(&message.message),
            _ => false,
        };
        if is_hint {
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

/// Whether a message is nothing but hints.
fn is_hint_message(msg: &Msg) -> bool {
    let is_hint = |block: &ContentBlock| matches!(block, ContentBlock::Hint(_));
    msg.role() == Role::Assistant && !msg.content().is_empty() && msg.content().iter().all(is_hint)
}

impl Transaction<'_> {
    /// Whether a hint came before, as far back as repeats of events that belong to no reply are known.
    pub fn has_hint(&mut self, id: &str) -> bool {
        let is_held = |held: &HeldHint| held.event_id == id;
        !id.is_empty() && (self.live.state.held.iter().any(is_held) || self.live.has_other_id(id))
    }

    /// How many hints wait for the end of a model call.
    pub fn held_hint_count(&self) -> usize {
        self.live.state.held.len()
    }

    /// Puts a hint into an open reply: at once, or behind what the model is saying. Whether it is new.
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
            let message = format!("the hint block {} was started before", hint.block_id);
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

    /// Gives the hints that wait in a reply their places.
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
                // Somebody else has taken its id meanwhile.
                hint.block_id = held.event_id;
                let _ = self.push(&mut event, None);
            }
        }
    }
}
