//! Random streams: many replies at once, repeated events, and events that do not fit.

use crate::reply::{GeneratedReply, random_reply};
use crate::{one_in, pick, values};
use fastrand::Rng;
use std::collections::HashSet;
use turnwire_core::event::{
    DataBlockDelta, TextBlockDelta, TextBlockEnd, TextBlockStart, ToolResultEnd,
};
use turnwire_core::{Event, EventKind, Msg, Seq, ToolResultState, event_kinds};

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

/// Gives every event its seq.
pub fn with_seqs(mut events: Vec<Event<'static>>) -> Vec<Event<'static>> {
    for (seq, event) in (1..).zip(&mut events) {
        event.seq = Seq::new(seq);
    }
    events
}

/// The same stream with repeats: single events, and whole ranges, as after a reconnect.
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

/// An event that every fold refuses: for a block that does not exist, or with invalid base64.
pub fn misfit(rng: &mut Rng, reply_id: &str) -> Event<'static> {
    let kind: EventKind<'static> = match rng.u8(..4) {
        0 => TextBlockDelta { block_id: "x_none".into(), delta: "x".into() }.into(),
        1 => TextBlockEnd { block_id: "x_none".into(), ..TextBlockEnd::default() }.into(),
        2 => {
            ToolResultEnd { tool_call_id: "x_none".into(), state: ToolResultState::Success }.into()
        }
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

/// An event that starts the first text block of a reply again, if it has one.
pub fn second_start(message: &Msg) -> Option<Event<'static>> {
    let block = message.first::<turnwire_core::TextBlock>()?;
    let start = TextBlockStart { block_id: block.id.clone().into() };
    Some(Event::new(message.id().to_owned(), start))
}

/// The same events with each block complete before the next starts, in the order of their starts: for wires
/// on which only one block can be open at a time.
pub fn sequential(events: Vec<Event<'static>>) -> Vec<Event<'static>> {
    let mut left: Vec<Option<Event<'static>>> = events.into_iter().map(Some).collect();
    let mut sorted = Vec::new();
    for at in 0..left.len() {
        let Some(event) = left.get_mut(at).and_then(Option::take) else { continue };
        let block = block_of(&event);
        sorted.push(event);
        let Some((Stage::Start, key)) = block else { continue };
        let continues = |event: &Event<'_>| block_of(event) == Some((Stage::Later, key.clone()));
        for later in left.iter_mut().skip(at + 1) {
            if later.as_ref().is_some_and(continues) {
                sorted.extend(later.take());
            }
        }
    }
    sorted
}

/// The same events without corrections of sent text and without discarded blocks: for wires that cannot
/// take anything back.
pub fn without_corrections(mut events: Vec<Event<'static>>) -> Vec<Event<'static>> {
    let mut sent = HashSet::new();
    for event in &mut events {
        if let EventKind::TextBlockDelta(delta) = &event.kind {
            if !delta.delta.is_empty() {
                sent.insert(delta.block_id.to_string());
            }
        } else if let EventKind::TextBlockEnd(end) = &mut event.kind {
            if sent.contains(&*end.block_id) {
                end.text = None;
            }
        } else if let EventKind::ModelCallEnd(end) = &mut event.kind {
            end.discard.clear();
        }
    }
    events
}

/// The same events without replacements of sent text and without edits of tool input: for wires on which such a
/// block is written again, as another one.
pub fn without_rewrites(events: Vec<Event<'static>>) -> Vec<Event<'static>> {
    let mut rewritten = without_corrections(events.clone());
    for (event, original) in rewritten.iter_mut().zip(events) {
        if let EventKind::UserConfirmResult(answer) = &mut event.kind {
            for result in &mut answer.confirm_results {
                result.tool_call.input.clear();
            }
        } else if let EventKind::ModelCallEnd(_) = &event.kind {
            *event = original;
        }
    }
    rewritten
}

/// The part of a block's life that an event is.
#[derive(PartialEq)]
enum Stage {
    Start,
    Later,
}

/// The block, call or result that an event starts, continues or ends: whether it is a result, and its id.
fn block_of(event: &Event<'_>) -> Option<(Stage, (bool, String))> {
    let (stage, is_result, id) = match &event.kind {
        EventKind::TextBlockStart(event) => (Stage::Start, false, &event.block_id),
        EventKind::ThinkingBlockStart(event) => (Stage::Start, false, &event.block_id),
        EventKind::DataBlockStart(event) => (Stage::Start, false, &event.block_id),
        EventKind::ToolCallStart(event) => (Stage::Start, false, &event.tool_call_id),
        EventKind::ToolResultStart(event) => (Stage::Start, true, &event.tool_call_id),
        EventKind::TextBlockDelta(event) => (Stage::Later, false, &event.block_id),
        EventKind::TextBlockEnd(event) => (Stage::Later, false, &event.block_id),
        EventKind::ThinkingBlockDelta(event) => (Stage::Later, false, &event.block_id),
        EventKind::ThinkingBlockEnd(event) => (Stage::Later, false, &event.block_id),
        EventKind::DataBlockDelta(event) => (Stage::Later, false, &event.block_id),
        EventKind::DataBlockEnd(event) => (Stage::Later, false, &event.block_id),
        EventKind::ToolCallDelta(event) => (Stage::Later, false, &event.tool_call_id),
        EventKind::ToolCallEnd(event) => (Stage::Later, false, &event.tool_call_id),
        EventKind::ToolResultTextDelta(event) => (Stage::Later, true, &event.tool_call_id),
        EventKind::ToolResultDataDelta(event) => (Stage::Later, true, &event.tool_call_id),
        EventKind::ToolResultEnd(event) => (Stage::Later, true, &event.tool_call_id),
        event_kinds!(Hint Block reply model_call pending_call notice session) => return None,
    };
    Some((stage, (is_result, id.to_string())))
}
