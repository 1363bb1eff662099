//! Sequences interleaved replies one after the other, for wires that carry one reply at a time.
//! Used by `convert`.

use std::collections::VecDeque;
use turnwire_core::{Event, EventKind};

/// Holds back the events of other replies until the current reply ends.
#[derive(Default)]
pub(crate) struct ReplySequencer {
    current: Option<String>,
    /// The other replies, in the order of their first events.
    waiting: VecDeque<(String, Vec<Event<'static>>)>,
}

impl ReplySequencer {
    /// Adds an event, and passes on what may follow now. Events outside replies, and those of
    /// sub-agents, are not held back.
    pub(crate) fn push(&mut self, event: &Event<'_>, each: &mut impl FnMut(&Event<'_>)) {
        let is_own = event.kind.is_part_of_reply() && !event.reply_id.is_empty();
        if !is_own || event.is_from_sub_agent() {
            return each(event);
        }
        match &self.current {
            Some(current) if *current != event.reply_id => self.hold_back(event),
            Some(_) => self.forward(event, each),
            None => {
                self.current = Some(event.reply_id.to_string());
                self.forward(event, each);
            }
        }
    }

    /// The stream has ended: releases all held events.
    pub(crate) fn finish(&mut self, each: &mut impl FnMut(&Event<'_>)) {
        while !self.waiting.is_empty() {
            self.release_next(each);
        }
    }

    fn forward(&mut self, event: &Event<'_>, each: &mut impl FnMut(&Event<'_>)) {
        each(event);
        if matches!(event.kind, EventKind::ReplyEnd(_)) {
            self.release_next(each);
        }
    }

    fn hold_back(&mut self, event: &Event<'_>) {
        let event = event.clone().into_owned();
        match self.waiting.iter_mut().find(|(id, _)| *id == event.reply_id) {
            Some((_, events)) => events.push(event),
            None => self.waiting.push_back((event.reply_id.to_string(), vec![event])),
        }
    }

    /// Releases the next reply, and further ones while they are complete.
    fn release_next(&mut self, each: &mut impl FnMut(&Event<'_>)) {
        self.current = None;
        while let Some((id, events)) = self.waiting.pop_front() {
            events.iter().for_each(&mut *each);
            if !events.iter().any(|event| matches!(event.kind, EventKind::ReplyEnd(_))) {
                self.current = Some(id);
                return;
            }
        }
    }
}
