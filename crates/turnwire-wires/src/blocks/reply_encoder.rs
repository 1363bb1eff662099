//! Encodes the blocks of one reply: the turn's own, or a sub-agent's.

mod tools;

use super::conversions::{DisplayMode, attachment};
use super::turn_writer::{BlockOwner, Finality, TurnWriter};
use super::{RESERVED_BLOCK_TYPES, WRAPPED_BLOCK};
use crate::stream::Frames;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use tools::{Call, OpenResult, find_title};
use turnwire_core::event::{Hint, ModelCallEnd, TextBlockEnd};
use turnwire_core::{
    ContentBlock, DataBlock, Event, EventKind, Fields, FinishedReason, HintBlock, Json, Msg,
    ToolResultState, event_kinds,
};

/// The open blocks of a reply, and what is needed of ended ones.
pub(super) struct ReplyEncoder {
    who: BlockOwner,
    texts: HashMap<String, OpenText>,
    /// Hidden thinking has no index.
    thoughts: HashMap<String, Option<u64>>,
    data: HashMap<String, (u64, Msg)>,
    calls: HashMap<String, Call>,
    /// `None` if it has ended.
    results: HashMap<String, Option<OpenResult>>,
    /// The blocks of this model call, which may be discarded at its end.
    recent: Vec<(String, u64)>,
    /// How many blocks have started: open blocks are closed in this order.
    started: u64,
}

struct OpenText {
    index: u64,
    is_empty: bool,
}

#[derive(Serialize)]
struct TextStart<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    text: &'static str,
    #[serde(flatten)]
    who: &'a BlockOwner,
    is_part: bool,
    /// The block that this one replaces, because its text differs from the deltas.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<u64>,
}

#[derive(Serialize)]
struct ThinkingStart<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    thinking: &'static str,
    #[serde(flatten)]
    who: &'a BlockOwner,
}

#[derive(Serialize)]
struct Wrapped<'a, T> {
    r#type: &'static str,
    block: &'a T,
    #[serde(flatten)]
    who: &'a BlockOwner,
}

impl ReplyEncoder {
    pub(super) fn new(who: BlockOwner) -> Self {
        Self {
            who,
            texts: HashMap::new(),
            thoughts: HashMap::new(),
            data: HashMap::new(),
            calls: HashMap::new(),
            results: HashMap::new(),
            recent: Vec::new(),
            started: 0,
        }
    }

    pub(super) fn encode_event(
        &mut self,
        turn: &mut TurnWriter,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        match &event.kind {
            EventKind::TextBlockDelta(delta) => {
                self.text_delta(turn, &delta.block_id, &delta.delta, out);
            }
            EventKind::ThinkingBlockDelta(delta) => {
                if let Some(Some(index)) = self.thoughts.get(&*delta.block_id) {
                    turn.thinking_delta(*index, &delta.delta, out);
                }
            }
            EventKind::ToolCallDelta(delta) => {
                let call = self.calls.get_mut(&*delta.tool_call_id);
                if let Some(input) = call.and_then(|call| call.input.as_mut()) {
                    input.push_str(&delta.delta);
                }
            }
            EventKind::ToolResultTextDelta(delta) => {
                if let Some(Some(output)) = self.results.get_mut(&*delta.tool_call_id) {
                    output.push_text(&delta.delta);
                }
            }
            EventKind::ModelCallStart(_) => {
                self.recent.clear();
                self.decide_final(turn, false, out);
                turn.calls_made = false;
            }
            EventKind::ModelCallEnd(end) => self.model_call_end(turn, end, out),
            EventKind::TextBlockStart(start) => self.text_start(turn, &start.block_id, out),
            EventKind::TextBlockEnd(end) => self.text_end(turn, end, out),
            EventKind::ThinkingBlockStart(start) => self.thinking_start(turn, &start.block_id, out),
            EventKind::ThinkingBlockEnd(end) => {
                if let Some(Some(index)) = self.thoughts.remove(&*end.block_id) {
                    turn.block_stop(index, Finality::NotText, out);
                }
            }
            EventKind::DataBlockStart(start) => self.data_start(&start.block_id, event),
            EventKind::DataBlockDelta(delta) => {
                if let Some((_, msg)) = self.data.get_mut(&*delta.block_id) {
                    let _ = msg.append_event_tolerant(&without_identity(event));
                }
            }
            EventKind::DataBlockEnd(end) => {
                if let Some((_, mut msg)) = self.data.remove(&*end.block_id) {
                    let _ = msg.append_event_tolerant(&without_identity(event));
                    self.write_data_block(turn, &msg, out);
                }
            }
            EventKind::Hint(hint) => self.write_hint(turn, hint, out),
            EventKind::Block(block) => self.whole_block(turn, &block.block, out),
            EventKind::ToolCallStart(start) => {
                self.call_start(turn, &start.tool_call_id, &start.tool_call_name, event, out);
            }
            EventKind::ToolCallEnd(end) => {
                let title = find_title(&end.extra).or_else(|| find_title(&event.metadata));
                self.call_end(turn, &end.tool_call_id, title, out);
            }
            EventKind::ToolResultStart(start) => {
                self.result_start(turn, &start.tool_call_id, &start.tool_call_name, out);
            }
            EventKind::ToolResultEnd(end) => {
                let artifact = event.metadata.raw("artifact");
                self.result_end(turn, &end.tool_call_id, &end.state, artifact, out);
            }
            EventKind::RequireUserConfirm(ask) => self.request_approval(turn, event, ask, out),
            EventKind::UserConfirmResult(answer) => self.confirm_results(turn, answer, out),
            EventKind::RequireExternalExecution(ask) => {
                self.request_execution(turn, &ask.tool_calls, out);
            }
            EventKind::ExternalExecutionResult(answer) => {
                for result in &answer.execution_results {
                    self.execution_result(turn, result, out);
                }
            }
            // Starts and ends belong to the turn; the others have no block in this protocol.
            event_kinds!(ToolResultDataDelta reply notice session) => {}
        }
    }

    /// Closes open blocks, in order of their starts.
    pub(super) fn close(&mut self, turn: &mut TurnWriter, out: &mut Frames) {
        let last = self.finality(turn);
        let texts = self.texts.drain().map(|(_, text)| (text.index, last));
        let thoughts =
            self.thoughts.drain().filter_map(|(_, index)| Some((index?, Finality::NotText)));
        let mut stops: Vec<(u64, Finality)> = texts.chain(thoughts).collect();
        stops.sort_by_key(|(index, _)| *index);
        for (index, last) in stops {
            turn.block_stop(index, last, out);
        }
        let mut data: Vec<(u64, Msg)> = self.data.drain().map(|(_, data)| data).collect();
        data.sort_by_key(|(nth, _)| *nth);
        for (_, msg) in data {
            self.write_data_block(turn, &msg, out);
        }
        let open = self.calls.iter().filter(|(_, call)| call.input.is_some());
        let mut calls: Vec<(u64, String)> =
            open.map(|(id, call)| (call.order, id.clone())).collect();
        calls.sort();
        for (_, id) in calls {
            self.call_end(turn, &id, None, out);
        }
        let open =
            self.results.iter().filter_map(|(id, output)| Some((output.as_ref()?.order, id)));
        let mut results: Vec<(u64, String)> = open.map(|(nth, id)| (nth, id.clone())).collect();
        results.sort();
        for (_, id) in results {
            self.result_end(turn, &id, &ToolResultState::Interrupted, None, out);
        }
    }

    fn next_order(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    /// What the stop of a text says. A sub-agent's text is never final.
    fn finality(&self, turn: &TurnWriter) -> Finality {
        if self.who.is_subagent || turn.calls_made {
            Finality::NotFinal
        } else {
            Finality::Undecided
        }
    }

    /// It is known now whether a tool call follows, if this is the turn's own reply.
    fn decide_final(&self, turn: &mut TurnWriter, is_final: bool, out: &mut Frames) {
        if !self.who.is_subagent {
            turn.decide_final(is_final, out);
        }
    }

    fn model_call_end(&mut self, turn: &mut TurnWriter, end: &ModelCallEnd, out: &mut Frames) {
        if !end.discard.is_empty() {
            self.discard(turn, &end.discard, out);
        }
        let is_final = match end.finished_reason {
            FinishedReason::ToolCalls | FinishedReason::Interrupted | FinishedReason::Error => {
                false
            }
            FinishedReason::Completed
            | FinishedReason::ExceedMaxIters
            | FinishedReason::Length
            | FinishedReason::Refusal
            | FinishedReason::ContentFilter
            | FinishedReason::Truncated
            | FinishedReason::Other(_) => !turn.calls_made,
        };
        self.decide_final(turn, is_final, out);
        if !self.who.is_subagent {
            turn.add_usage(end.usage);
        }
    }

    fn discard(&mut self, turn: &mut TurnWriter, ids: &[String], out: &mut Frames) {
        for id in ids {
            self.texts.remove(id);
            self.thoughts.remove(id);
            self.data.remove(id);
            self.calls.remove(id);
            self.results.remove(id);
        }
        let ids: HashSet<&str> = ids.iter().map(String::as_str).collect();
        let gone = self.recent.extract_if(.., |(known, _)| ids.contains(known.as_str()));
        let gone: Vec<u64> = gone.map(|(_, index)| index).collect();
        turn.discard(&gone, out);
    }

    fn record_block(&mut self, id: &str, index: u64) {
        self.recent.push((id.to_owned(), index));
    }

    fn text_start(&mut self, turn: &mut TurnWriter, id: &str, out: &mut Frames) {
        if !self.texts.contains_key(id) {
            self.write_text_start(turn, id, None, out);
        }
    }

    fn write_text_start(
        &mut self,
        turn: &mut TurnWriter,
        id: &str,
        replaces: Option<u64>,
        out: &mut Frames,
    ) {
        let block =
            TextStart { r#type: "text", id, text: "", who: &self.who, is_part: false, replaces };
        let index = turn.block_start(&block, out);
        self.texts.insert(id.to_owned(), OpenText { index, is_empty: true });
        self.record_block(id, index);
    }

    fn text_delta(&mut self, turn: &mut TurnWriter, id: &str, text: &str, out: &mut Frames) {
        let Some(block) = self.texts.get_mut(id) else { return };
        if !text.is_empty() {
            block.is_empty = false;
            turn.text_delta(block.index, text, out);
        }
    }

    fn text_end(&mut self, turn: &mut TurnWriter, end: &TextBlockEnd<'_>, out: &mut Frames) {
        let id = &*end.block_id;
        let Some(block) = self.texts.get(id) else { return };
        if let Some(text) = &end.text {
            // Sent text cannot be changed. The block starts again; the first one never ends.
            if !block.is_empty {
                let old = block.index;
                turn.mark_replaced(old);
                self.write_text_start(turn, id, Some(old), out);
            }
            self.text_delta(turn, id, text, out);
        }
        if let Some(block) = self.texts.remove(id) {
            let last = self.finality(turn);
            turn.block_stop(block.index, last, out);
        }
    }

    fn thinking_start(&mut self, turn: &mut TurnWriter, id: &str, out: &mut Frames) {
        if self.thoughts.contains_key(id) {
            return;
        }
        let index = (turn.mode == DisplayMode::Agent).then(|| {
            let block = ThinkingStart { r#type: "thinking", id, thinking: "", who: &self.who };
            turn.block_start(&block, out)
        });
        self.thoughts.insert(id.to_owned(), index);
        if let Some(index) = index {
            self.record_block(id, index);
        }
    }

    fn data_start(&mut self, id: &str, event: &Event<'_>) {
        if !self.data.contains_key(id) {
            let nth = self.next_order();
            let mut msg = Msg::reply(event.reply_id.to_string(), "");
            let _ = msg.append_event_tolerant(&without_identity(event));
            self.data.insert(id.to_owned(), (nth, msg));
        }
    }

    fn write_data_block(&mut self, turn: &mut TurnWriter, msg: &Msg, out: &mut Frames) {
        if let Some(block) = msg.first::<DataBlock>() {
            let index = self.write_fields(turn, attachment(block), out);
            self.record_block(&block.id, index);
        }
    }

    /// Writes a block from its fields.
    fn write_fields(&self, turn: &mut TurnWriter, mut fields: Fields, out: &mut Frames) -> u64 {
        if self.who.is_subagent {
            fields.insert("subagent", self.who.subagent.clone());
            fields.insert("parent_tool_use_id", self.who.parent_tool_use_id.clone());
        }
        turn.whole_block(&fields, out)
    }

    fn write_hint(&mut self, turn: &mut TurnWriter, hint: &Hint, out: &mut Frames) {
        if turn.mode == DisplayMode::Chat {
            return;
        }
        let mut fields = Fields::default();
        fields.insert("type", "hint");
        fields.insert("id", hint.block_id.as_str());
        if let Ok(payload) = Json::from_value(&hint.hint) {
            fields.insert("hint", payload);
        }
        fields.insert("source", hint.source.clone());
        let index = self.write_fields(turn, fields, out);
        self.record_block(&hint.block_id, index);
    }

    /// Writes a block that arrives as a whole.
    fn whole_block(&mut self, turn: &mut TurnWriter, block: &ContentBlock, out: &mut Frames) {
        let id = block.id();
        match block {
            ContentBlock::Text(block) => {
                self.text_start(turn, id, out);
                self.text_delta(turn, id, &block.text, out);
                let block_id = id.into();
                self.text_end(
                    turn,
                    &TextBlockEnd { block_id, text: None, extra: Fields::default() },
                    out,
                );
            }
            ContentBlock::Thinking(block) => {
                self.thinking_start(turn, id, out);
                if let Some(Some(index)) = self.thoughts.remove(id) {
                    turn.thinking_delta(index, &block.thinking, out);
                    turn.block_stop(index, Finality::NotText, out);
                }
            }
            ContentBlock::Data(block) => {
                let index = self.write_fields(turn, attachment(block), out);
                self.record_block(id, index);
            }
            ContentBlock::Hint(HintBlock { id, source, hint, .. }) => {
                let (block_id, source, hint) = (id.clone(), source.clone(), hint.clone());
                self.write_hint(turn, &Hint { block_id, source, hint }, out);
            }
            ContentBlock::ToolCall(call) => self.whole_call(turn, call, out),
            ContentBlock::ToolResult(result) => self.execution_result(turn, result, out),
            ContentBlock::Other(fields) => {
                let word = fields.get::<String>("type").ok().flatten().unwrap_or_default();
                let hides =
                    fields.raw("subagent").is_some() || fields.raw("parent_tool_use_id").is_some();
                let index = if RESERVED_BLOCK_TYPES.contains(&word.as_str()) || hides {
                    turn.whole_block(
                        &Wrapped { r#type: WRAPPED_BLOCK, block: fields, who: &self.who },
                        out,
                    )
                } else {
                    self.write_fields(turn, fields.clone(), out)
                };
                self.record_block(id, index);
            }
        }
    }
}

/// The event without its id, so that the fold does not treat it as a repeat.
fn without_identity<'e>(event: &Event<'e>) -> Event<'e> {
    Event::new(event.reply_id.clone(), event.kind.clone())
}
