//! The blocks of one reply on their way out: the turn's own, or a sub-agent's.

mod tools;

use super::frames::{Last, Turn, Who};
use super::words::attachment;
use super::{RESERVED, WRAPPED};
use crate::stream::{DisplayMode, Frames};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use tools::{Call, Output, title_in};
use turnwire_core::event::{Hint, ModelCallEnd, TextBlockEnd, UserInterrupt};
use turnwire_core::{
    ContentBlock, DataBlock, Event, EventKind, Fields, FinishedReason, HintBlock, Json, Msg,
    ToolResultState,
};

/// What a reply has open, and what must be known of what it had.
pub(super) struct Reply {
    who: Who,
    texts: HashMap<String, Text>,
    /// Thinking that is not shown has no index.
    thoughts: HashMap<String, Option<u64>>,
    data: HashMap<String, (u64, Msg)>,
    calls: HashMap<String, Call>,
    /// `None`: it is over.
    results: HashMap<String, Option<Output>>,
    /// The blocks of this model call, which its end may take back.
    recent: Vec<(String, u64)>,
    /// How many have begun: the order in which what is left open is closed.
    begun: u64,
}

struct Text {
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
    who: &'a Who,
    is_part: bool,
    /// The block that this one stands for: its text was not what the deltas gave.
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
    who: &'a Who,
}

#[derive(Serialize)]
struct Wrapped<'a, T> {
    r#type: &'static str,
    block: &'a T,
    #[serde(flatten)]
    who: &'a Who,
}

impl Reply {
    pub(super) fn new(who: Who) -> Self {
        Self {
            who,
            texts: HashMap::new(),
            thoughts: HashMap::new(),
            data: HashMap::new(),
            calls: HashMap::new(),
            results: HashMap::new(),
            recent: Vec::new(),
            begun: 0,
        }
    }

    pub(super) fn event(&mut self, turn: &mut Turn, event: &Event<'_>, out: &mut Frames) {
        match &event.kind {
            EventKind::TextBlockDelta(delta) => {
                self.text_delta(turn, &delta.block_id, &delta.delta, out);
            }
            EventKind::ThinkingBlockDelta(delta) => {
                if let Some(Some(index)) = self.thoughts.get(&*delta.block_id) {
                    turn.thinking(*index, &delta.delta, out);
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
                    output.push(&delta.delta);
                }
            }
            EventKind::ModelCallStart(_) => {
                self.recent.clear();
                self.decide(turn, false, out);
                turn.calls_made = false;
            }
            EventKind::ModelCallEnd(end) => self.model_call_end(turn, end, out),
            EventKind::TextBlockStart(start) => self.text_start(turn, &start.block_id, out),
            EventKind::TextBlockEnd(end) => self.text_end(turn, end, out),
            EventKind::ThinkingBlockStart(start) => self.thinking_start(turn, &start.block_id, out),
            EventKind::ThinkingBlockEnd(end) => {
                if let Some(Some(index)) = self.thoughts.remove(&*end.block_id) {
                    turn.stop(index, Last::Silent, out);
                }
            }
            EventKind::DataBlockStart(start) => self.data_start(&start.block_id, event),
            EventKind::DataBlockDelta(delta) => {
                if let Some((_, msg)) = self.data.get_mut(&*delta.block_id) {
                    let _ = msg.append_event_tolerant(&bare(event));
                }
            }
            EventKind::DataBlockEnd(end) => {
                if let Some((_, mut msg)) = self.data.remove(&*end.block_id) {
                    let _ = msg.append_event_tolerant(&bare(event));
                    self.data_block(turn, &msg, out);
                }
            }
            EventKind::Hint(hint) => self.hint(turn, hint, out),
            EventKind::Block(block) => self.block(turn, &block.block, out),
            EventKind::ToolCallStart(start) => {
                self.call_start(turn, &start.tool_call_id, &start.tool_call_name, event, out);
            }
            EventKind::ToolCallEnd(end) => {
                let title = title_in(&end.extra).or_else(|| title_in(&event.metadata));
                self.call_end(turn, &end.tool_call_id, title, out);
            }
            EventKind::ToolResultStart(start) => {
                self.result_start(turn, &start.tool_call_id, &start.tool_call_name, out);
            }
            EventKind::ToolResultEnd(end) => {
                let artifact = event.metadata.raw("artifact");
                self.result_end(turn, &end.tool_call_id, &end.state, artifact, out);
            }
            EventKind::RequireUserConfirm(ask) => self.ask(turn, event, ask, out),
            EventKind::UserConfirmResult(answer) => self.answer(turn, answer, out),
            EventKind::RequireExternalExecution(ask) => {
                self.external(turn, &ask.tool_calls, out);
            }
            EventKind::ExternalExecutionResult(answer) => {
                for result in &answer.execution_results {
                    self.external_result(turn, result, out);
                }
            }
            // Starts and ends are the turn's; the others have no block in this protocol.
            _ => {}
        }
    }

    /// Closes what is open, in the order in which it began.
    pub(super) fn close(&mut self, turn: &mut Turn, out: &mut Frames) {
        let last = self.last(turn);
        let texts = self.texts.drain().map(|(_, text)| (text.index, last));
        let thoughts = self.thoughts.drain().filter_map(|(_, index)| Some((index?, Last::Silent)));
        let mut stops: Vec<(u64, Last)> = texts.chain(thoughts).collect();
        stops.sort_by_key(|(index, _)| *index);
        for (index, last) in stops {
            turn.stop(index, last, out);
        }
        let mut data: Vec<(u64, Msg)> = self.data.drain().map(|(_, data)| data).collect();
        data.sort_by_key(|(nth, _)| *nth);
        for (_, msg) in data {
            self.data_block(turn, &msg, out);
        }
        let open = self.calls.iter().filter(|(_, call)| call.input.is_some());
        let mut calls: Vec<(u64, String)> = open.map(|(id, call)| (call.nth, id.clone())).collect();
        calls.sort();
        for (_, id) in calls {
            self.call_end(turn, &id, None, out);
        }
        let open = self.results.iter().filter_map(|(id, output)| Some((output.as_ref()?.nth, id)));
        let mut results: Vec<(u64, String)> = open.map(|(nth, id)| (nth, id.clone())).collect();
        results.sort();
        for (_, id) in results {
            self.result_end(turn, &id, &ToolResultState::Interrupted, None, out);
        }
    }

    fn nth(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// What the stop of a text says. A sub-agent's is never the answer.
    fn last(&self, turn: &Turn) -> Last {
        if self.who.is_sub || turn.calls_made { Last::No } else { Last::Open }
    }

    /// Whether a tool call follows is known, if this is the turn's own reply.
    fn decide(&self, turn: &mut Turn, is_final: bool, out: &mut Frames) {
        if !self.who.is_sub {
            turn.release(is_final, out);
        }
    }

    fn model_call_end(&mut self, turn: &mut Turn, end: &ModelCallEnd, out: &mut Frames) {
        if !end.discard.is_empty() {
            self.discard(turn, &end.discard, out);
        }
        let is_final = match end.finished_reason {
            FinishedReason::ToolCalls | FinishedReason::Interrupted | FinishedReason::Error => {
                false
            }
            _ => !turn.calls_made,
        };
        self.decide(turn, is_final, out);
        if !self.who.is_sub {
            turn.add(end.usage);
        }
    }

    fn discard(&mut self, turn: &mut Turn, ids: &[String], out: &mut Frames) {
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

    fn wrote(&mut self, id: &str, index: u64) {
        self.recent.push((id.to_owned(), index));
    }

    fn text_start(&mut self, turn: &mut Turn, id: &str, out: &mut Frames) {
        if !self.texts.contains_key(id) {
            self.new_text(turn, id, None, out);
        }
    }

    fn new_text(&mut self, turn: &mut Turn, id: &str, replaces: Option<u64>, out: &mut Frames) {
        let block =
            TextStart { r#type: "text", id, text: "", who: &self.who, is_part: false, replaces };
        let index = turn.start(&block, out);
        self.texts.insert(id.to_owned(), Text { index, is_empty: true });
        self.wrote(id, index);
    }

    fn text_delta(&mut self, turn: &mut Turn, id: &str, text: &str, out: &mut Frames) {
        let Some(block) = self.texts.get_mut(id) else { return };
        if !text.is_empty() {
            block.is_empty = false;
            turn.text(block.index, text, out);
        }
    }

    fn text_end(&mut self, turn: &mut Turn, end: &TextBlockEnd<'_>, out: &mut Frames) {
        let id = &*end.block_id;
        let Some(block) = self.texts.get(id) else { return };
        if let Some(text) = &end.text {
            // What was sent cannot be changed. The block is begun anew; the first never ends.
            if !block.is_empty {
                let old = block.index;
                turn.replaced(old);
                self.new_text(turn, id, Some(old), out);
            }
            self.text_delta(turn, id, text, out);
        }
        if let Some(block) = self.texts.remove(id) {
            let last = self.last(turn);
            turn.stop(block.index, last, out);
        }
    }

    fn thinking_start(&mut self, turn: &mut Turn, id: &str, out: &mut Frames) {
        if self.thoughts.contains_key(id) {
            return;
        }
        let index = (turn.mode == DisplayMode::Agent).then(|| {
            let block = ThinkingStart { r#type: "thinking", id, thinking: "", who: &self.who };
            turn.start(&block, out)
        });
        self.thoughts.insert(id.to_owned(), index);
        if let Some(index) = index {
            self.wrote(id, index);
        }
    }

    fn data_start(&mut self, id: &str, event: &Event<'_>) {
        if !self.data.contains_key(id) {
            let nth = self.nth();
            let mut msg = Msg::reply(event.reply_id.to_string(), "");
            let _ = msg.append_event_tolerant(&bare(event));
            self.data.insert(id.to_owned(), (nth, msg));
        }
    }

    fn data_block(&mut self, turn: &mut Turn, msg: &Msg, out: &mut Frames) {
        if let Some(block) = msg.first::<DataBlock>() {
            let index = self.fields(turn, attachment(block), out);
            self.wrote(&block.id, index);
        }
    }

    /// A block that is its fields.
    fn fields(&self, turn: &mut Turn, mut fields: Fields, out: &mut Frames) -> u64 {
        if self.who.is_sub {
            fields.insert("subagent", self.who.subagent.clone());
            fields.insert("parent_tool_use_id", self.who.parent_tool_use_id.clone());
        }
        turn.whole(&fields, out)
    }

    fn hint(&mut self, turn: &mut Turn, hint: &Hint, out: &mut Frames) {
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
        let index = self.fields(turn, fields, out);
        self.wrote(&hint.block_id, index);
    }

    /// A block that comes whole.
    fn block(&mut self, turn: &mut Turn, block: &ContentBlock, out: &mut Frames) {
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
                    turn.thinking(index, &block.thinking, out);
                    turn.stop(index, Last::Silent, out);
                }
            }
            ContentBlock::Data(block) => {
                let index = self.fields(turn, attachment(block), out);
                self.wrote(id, index);
            }
            ContentBlock::Hint(HintBlock { id, source, hint, .. }) => {
                let (block_id, source, hint) = (id.clone(), source.clone(), hint.clone());
                self.hint(turn, &Hint { block_id, source, hint }, out);
            }
            ContentBlock::ToolCall(call) => {
                let event = Event::new("", UserInterrupt {});
                self.call_start(turn, id, &call.name, &event, out);
                if let Some(Some(input)) = self.calls.get_mut(id).map(|call| call.input.as_mut()) {
                    input.push_str(&call.input);
                }
                self.call_end(turn, id, title_in(&call.rest), out);
            }
            ContentBlock::ToolResult(result) => self.external_result(turn, result, out),
            ContentBlock::Other(fields) => {
                let word = fields.get::<String>("type").ok().flatten().unwrap_or_default();
                let hides =
                    fields.raw("subagent").is_some() || fields.raw("parent_tool_use_id").is_some();
                let index = if RESERVED.contains(&word.as_str()) || hides {
                    turn.whole(&Wrapped { r#type: WRAPPED, block: fields, who: &self.who }, out)
                } else {
                    self.fields(turn, fields.clone(), out)
                };
                self.wrote(id, index);
            }
            _ => {}
        }
    }
}

/// The event without what makes it known again: nothing here comes twice.
fn bare<'e>(event: &Event<'e>) -> Event<'e> {
    Event::new(event.reply_id.clone(), event.kind.clone())
}
