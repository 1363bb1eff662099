//! Hints that come from outside while a reply grows.
//!
//! A model's words belong together: providers do not take a turn back in which somebody else speaks
//! between the reasoning and the call that it led to. So a hint that comes while a model call is open is
//! held, as durable as an event, and gets its place right behind the end of the call; where the reply
//! ends before that, right before its end.

use super::{Live, Pushed, Tx};
use crate::store::Held;
use turnwire_core::{ContentBlock, Error, ErrorKind, Event, EventKind, HintBlock, Msg, Role};

impl Live {
    /// Remembers the ids of hints beside those of their replies: where one belongs is decided here, so
    /// whoever sends it again may find another reply, or none.
    pub(super) fn note_hint(&mut self, event: &Event<'_>) {
        let is_hint = match &event.kind {
            EventKind::Hint(_) => true,
            EventKind::Message(message) => is_hint(&message.message),
            _ => false,
        };
        if is_hint {
            self.is_new_beside(&event.id);
        }
    }

    fn knows_beside(&mut self, id: &str) -> bool {
        self.beside.iter_mut().any(|ids| {
            let is_new = ids.insert(id);
            if is_new {
                ids.remove(id);
            }
            !is_new
        })
    }
}

/// Whether a message is nothing but hints.
fn is_hint(msg: &Msg) -> bool {
    let is_hint = |block: &ContentBlock| matches!(block, ContentBlock::Hint(_));
    msg.role() == Role::Assistant && !msg.content().is_empty() && msg.content().iter().all(is_hint)
}

impl Tx<'_> {
    /// Whether a hint came before, as far back as repeats of events that belong to no reply are known.
    pub fn has_hint(&mut self, id: &str) -> bool {
        let is_held = |held: &Held| held.event_id == id;
        !id.is_empty() && (self.live.state.held.iter().any(is_held) || self.live.knows_beside(id))
    }

    /// How many hints wait for the end of a model call.
    pub fn held(&self) -> usize {
        self.live.state.held.len()
    }

    /// Puts a hint into an open reply: at once, or behind what the model is saying. Whether it is new.
    pub fn hint(&mut self, event: &mut Event<'_>) -> Result<bool, Error> {
        let reply = self.live.reply(&event.reply_id);
        let reply = reply.filter(|reply| reply.calls.open_blocks.is_some());
        let (Some(reply), EventKind::Hint(hint)) = (reply, &event.kind) else {
            return Ok(self.push(event, None)? != Pushed::Repeated);
        };
        let is_same =
            |held: &Held| held.reply_id == event.reply_id && held.block_id == hint.block_id;
        let is_there = reply.msg.blocks::<HintBlock>().any(|own| own.id == hint.block_id);
        if is_there || self.live.state.held.iter().any(is_same) {
            let message = format!("the hint block {} was started before", hint.block_id);
            return Err(Error::new(ErrorKind::DuplicateBlock, message));
        }
        let held = Held {
            reply_id: event.reply_id.to_string(),
            event_id: event.id.to_string(),
            block_id: hint.block_id.clone(),
            json: event.to_json(),
        };
        self.live.state.held.push(held);
        self.noted = true;
        Ok(true)
    }

    /// Gives the hints that wait in a reply their places.
    pub(super) fn release(&mut self, reply_id: &str) {
        if self.live.state.held.is_empty() {
            return;
        }
        let held = std::mem::take(&mut self.live.state.held);
        let (now, later): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|held| held.reply_id == reply_id);
        self.live.state.held = later;
        for held in now {
            self.noted = true;
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
