//! Leaves out the blocks of a model call that are discarded later in the log.
//!
//! After a crash the log has the beginning of an answer. The model is asked again, and the end of the broken call names
//! the blocks to discard. Clients of some protocols cannot take text back, so the events of a call are held until it is
//! known what becomes of them.

use std::collections::HashSet;
use turnwire_core::{Event, EventKind, Head, event_kinds};

/// Holds the events of one model call at a time.
pub(super) struct HeldCall {
    /// Calls are held while the log is read up to here; later ones are live. `None`: every call is held.
    until: Option<Head>,
    /// The events of the open call.
    events: Vec<Event<'static>>,
    is_open: bool,
}

impl HeldCall {
    pub(super) fn new(until: Option<Head>) -> Self {
        Self { until, events: Vec::new(), is_open: false }
    }

    /// Takes the next event, and returns those that are complete.
    pub(super) fn push(&mut self, event: Event<'_>) -> Vec<Event<'static>> {
        let is_live = event.seq.zip(self.until).is_some_and(|(seq, until)| !until.includes(seq));
        if let EventKind::ModelCallEnd(end) = &event.kind {
            let discard: HashSet<&str> = end.discard.iter().map(String::as_str).collect();
            let is_discarded = |held: &Event<'_>| {
                let id = block_id(&held.kind);
                held.reply_id == event.reply_id && id.is_some_and(|id| discard.contains(id))
            };
            self.events.retain(|held| !is_discarded(held));
        }
        let begins = matches!(event.kind, EventKind::ModelCallStart(_));
        let ends = matches!(event.kind, EventKind::ModelCallEnd(_) | EventKind::ReplyEnd(_));
        // A call that goes on live will not be discarded. One that a crash has broken off first ends its blocks.
        let goes_on = is_live && !is_block_end(&event.kind);
        self.is_open = !goes_on && !ends && (begins || self.is_open);
        self.events.push(event.into_owned());
        if self.is_open { Vec::new() } else { self.release() }
    }

    /// Returns the events that are held.
    pub(super) fn release(&mut self) -> Vec<Event<'static>> {
        std::mem::take(&mut self.events)
    }
}

fn is_block_end(kind: &EventKind<'_>) -> bool {
    matches!(
        kind,
        EventKind::TextBlockEnd(_)
            | EventKind::ThinkingBlockEnd(_)
            | EventKind::DataBlockEnd(_)
            | EventKind::ToolCallEnd(_)
    )
}

/// The block that an event belongs to.
fn block_id<'k>(kind: &'k EventKind<'_>) -> Option<&'k str> {
    Some(match kind {
        EventKind::TextBlockStart(event) => &event.block_id,
        EventKind::TextBlockDelta(event) => &event.block_id,
        EventKind::TextBlockEnd(event) => &event.block_id,
        EventKind::ThinkingBlockStart(event) => &event.block_id,
        EventKind::ThinkingBlockDelta(event) => &event.block_id,
        EventKind::ThinkingBlockEnd(event) => &event.block_id,
        EventKind::DataBlockStart(event) => &event.block_id,
        EventKind::DataBlockDelta(event) => &event.block_id,
        EventKind::DataBlockEnd(event) => &event.block_id,
        EventKind::ToolCallStart(event) => &event.tool_call_id,
        EventKind::ToolCallDelta(event) => &event.tool_call_id,
        EventKind::ToolCallEnd(event) => &event.tool_call_id,
        EventKind::Block(event) => event.block.id(),
        event_kinds!(Hint reply model_call tool_result pending_call notice session) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64, fields: &str) -> Event<'static> {
        let json = format!(r#"{{"reply_id":"r","seq":{seq},{fields}}}"#);
        Event::from_json(&json).unwrap().into_owned()
    }

    fn text(seq: u64, block: &str) -> Event<'static> {
        event(seq, &format!(r#""type":"TEXT_BLOCK_DELTA","block_id":"{block}","delta":"x""#))
    }

    const START: &str = r#""type":"MODEL_CALL_START""#;

    /// The seqs of the events that come out, after each event that goes in.
    fn seqs(held: &mut HeldCall, events: &[Event<'static>]) -> Vec<Vec<u64>> {
        let seqs = |events: Vec<Event<'_>>| events.iter().map(|it| it.seq.unwrap().get()).collect();
        events.iter().map(|event| seqs(held.push(event.clone()))).collect()
    }

    #[test]
    fn blocks_of_a_broken_call_are_left_out() {
        let events = [
            event(1, START),
            text(2, "a"),
            text(3, "b"),
            event(4, r#""type":"MODEL_CALL_END","discard":["a"]"#),
            event(5, START),
            text(6, "a2"),
            event(7, r#""type":"MODEL_CALL_END""#),
        ];
        let mut held = HeldCall::new(None);
        let expected: [&[u64]; 7] = [&[], &[], &[], &[1, 3, 4], &[], &[], &[5, 6, 7]];
        assert_eq!(seqs(&mut held, &events), expected);
        // The second call is live.
        let mut held = HeldCall::new(Some(Head::new(3)));
        let expected: [&[u64]; 7] = [&[], &[], &[], &[1, 3, 4], &[5], &[6], &[7]];
        assert_eq!(seqs(&mut held, &events), expected);
        // After a crash the first call is ended while the client waits.
        let broken = [
            event(1, START),
            text(2, "a"),
            event(3, r#""type":"TEXT_BLOCK_END","block_id":"a""#),
            event(4, r#""type":"MODEL_CALL_END","discard":["a"]"#),
        ];
        let mut held = HeldCall::new(Some(Head::new(2)));
        let expected: [&[u64]; 4] = [&[], &[], &[], &[1, 4]];
        assert_eq!(seqs(&mut held, &broken), expected);
        // The first call is live.
        let mut held = HeldCall::new(Some(Head::new(2)));
        let expected: [&[u64]; 4] = [&[], &[], &[1, 2, 3], &[4]];
        assert_eq!(seqs(&mut held, &events[..4]), expected);
    }
}
