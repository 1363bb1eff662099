//! Streams: many replies at once, repeats, and what does not belong there.

use crate::reply::{GeneratedReply, random_reply};
use crate::{one_in, pick, values};
use fastrand::Rng;
use std::collections::HashSet;
use turnwire_core::event::{
    DataBlockDelta, TextBlockDelta, TextBlockEnd, TextBlockStart, ToolResultEnd,
};
use turnwire_core::{Event, EventKind, Fields, Msg, Seq, ToolResultState};

/// Several replies in one stream, and their messages in the order of their first events.
pub fn random_replies(rng: &mut Rng) -> (Vec<Event<'static>>, Vec<Msg>) {
    let first = rng.u64(..);
    let made: Vec<GeneratedReply> =
        (0..rng.usize(1..4)).map(|at| random_reply(rng, &format!("{first:031x}{at}"))).collect();
    let mut messages: Vec<Msg> = Vec::new();
    let mut open: Vec<(Msg, std::vec::IntoIter<Event<'static>>)> =
        made.into_iter().map(|reply| (reply.message, reply.events.into_iter())).collect();
    let mut events = Vec::new();
    while !open.is_empty() {
        let at = rng.usize(..open.len());
        let Some((message, next)) = open.get_mut(at) else { continue };
        let Some(event) = next.next() else {
            drop(open.remove(at));
            continue;
        };
        if event.kind.is_part_of_reply() && !messages.iter().any(|known| known.id() == message.id())
        {
            messages.push(message.clone());
        }
        events.push(event);
    }
    (events, messages)
}

/// Gives every event its place in the log.
pub fn with_seqs(mut events: Vec<Event<'static>>) -> Vec<Event<'static>> {
    for (seq, event) in (1..).zip(&mut events) {
        event.seq = Seq::new(seq);
    }
    events
}

/// The same stream with repeats: single events again later, and whole stretches, as after a
/// reconnect.
pub fn with_repeats(rng: &mut Rng, events: &[Event<'static>]) -> Vec<Event<'static>> {
    let mut stream: Vec<Event<'static>> = Vec::new();
    for event in events {
        stream.push(event.clone());
        if one_in(rng, 3) {
            stream.push(pick(rng, &stream).clone());
        }
        if one_in(rng, 12) {
            let from = rng.usize(..stream.len());
            let again: Vec<_> = stream.iter().skip(from).take(9).cloned().collect();
            stream.extend(again);
        }
    }
    stream
}

/// An event that no fold takes: for a block that is not there, or one that is not base64.
pub fn misfit(rng: &mut Rng, reply_id: &str) -> Event<'static> {
    let kind: EventKind<'static> =
        match rng.u8(..4) {
            0 => TextBlockDelta { block_id: "x_none".into(), delta: "x".into() }.into(),
            1 => TextBlockEnd { block_id: "x_none".into(), text: None, extra: Fields::default() }
                .into(),
            2 => ToolResultEnd { tool_call_id: "x_none".into(), state: ToolResultState::Success }
                .into(),
            _ => DataBlockDelta {
                block_id: "x_none".into(),
                media_type: None,
                chunk: turnwire_core::event::Chunk::Data("=".into()),
            }
            .into(),
        };
    let mut event = Event::new(reply_id.to_owned(), kind);
    event.id = values::id(rng).into();
    event.created_at = "2026-11-15T09:00:00.000000".into();
    event
}

/// An event that starts a block of an open reply again, where it has one.
pub fn second_start(message: &Msg) -> Option<Event<'static>> {
    let block = message.first::<turnwire_core::TextBlock>()?;
    let start = TextBlockStart { block_id: block.id.clone().into() };
    Some(Event::new(message.id().to_owned(), start))
}

/// The same events with each block whole before the next begins, in the order of their starts: for
/// wires on which only one block can be open at a time.
pub fn sequential(events: Vec<Event<'static>>) -> Vec<Event<'static>> {
    let mut left: Vec<Option<Event<'static>>> = events.into_iter().map(Some).collect();
    let mut sorted = Vec::new();
    for at in 0..left.len() {
        let Some(event) = left.get_mut(at).and_then(Option::take) else { continue };
        let key = started_block(&event);
        sorted.push(event);
        let Some(key) = key else { continue };
        for later in left.iter_mut().skip(at + 1) {
            if later.as_ref().is_some_and(|event| continued_block(event) == Some(key.clone())) {
                sorted.extend(later.take());
            }
        }
    }
    sorted
}

/// The same events without what takes back something that was sent: for wires that write as it comes.
pub fn without_corrections(mut events: Vec<Event<'static>>) -> Vec<Event<'static>> {
    let mut sent = HashSet::new();
    for event in &mut events {
        match &mut event.kind {
            EventKind::TextBlockDelta(delta) if !delta.delta.is_empty() => {
                sent.insert(delta.block_id.to_string());
            }
            EventKind::TextBlockEnd(end) if sent.contains(&*end.block_id) => end.text = None,
            EventKind::ModelCallEnd(end) => end.discard.clear(),
            _ => {}
        }
    }
    events
}

/// What begins: a block or a call, or a result.
fn started_block(event: &Event<'_>) -> Option<(bool, String)> {
    match &event.kind {
        EventKind::TextBlockStart(event) => Some((false, event.block_id.to_string())),
        EventKind::ThinkingBlockStart(event) => Some((false, event.block_id.to_string())),
        EventKind::DataBlockStart(event) => Some((false, event.block_id.to_string())),
        EventKind::ToolCallStart(event) => Some((false, event.tool_call_id.to_string())),
        EventKind::ToolResultStart(event) => Some((true, event.tool_call_id.to_string())),
        _ => None,
    }
}

/// What goes on, or ends.
fn continued_block(event: &Event<'_>) -> Option<(bool, String)> {
    match &event.kind {
        EventKind::TextBlockDelta(event) => Some((false, event.block_id.to_string())),
        EventKind::TextBlockEnd(event) => Some((false, event.block_id.to_string())),
        EventKind::ThinkingBlockDelta(event) => Some((false, event.block_id.to_string())),
        EventKind::ThinkingBlockEnd(event) => Some((false, event.block_id.to_string())),
        EventKind::DataBlockDelta(event) => Some((false, event.block_id.to_string())),
        EventKind::DataBlockEnd(event) => Some((false, event.block_id.to_string())),
        EventKind::ToolCallDelta(event) => Some((false, event.tool_call_id.to_string())),
        EventKind::ToolCallEnd(event) => Some((false, event.tool_call_id.to_string())),
        EventKind::ToolResultTextDelta(event) => Some((true, event.tool_call_id.to_string())),
        EventKind::ToolResultDataDelta(event) => Some((true, event.tool_call_id.to_string())),
        EventKind::ToolResultEnd(event) => Some((true, event.tool_call_id.to_string())),
        _ => None,
    }
}
