//! The stream out: one reply is one response.

mod block;
mod shape;

use super::{NAME, error, item};
use crate::provider;
use crate::stream::{Encode, EncoderOptions, Frames};
use block::{Block, Kind, State};
use shape::{Failure, Incomplete, Part, Response};
use std::collections::HashMap;
use turnwire_core::event::{Chunk, Custom, ModelCallEnd, ReplyEnd, TokenCounts};
use turnwire_core::{
    ContentBlock, Event, EventKind, Fields, FinishedReason, Json, ReplyError, Source,
};

pub(super) struct Responses {
    model: Option<String>,
    /// What the response is called.
    id: Option<String>,
    wants_json: bool,
    turn: Option<Box<Turn>>,
    /// The reply that ended last: nothing comes after its end.
    ended: String,
}

/// One reply on its way out.
struct Turn {
    /// The reply.
    id: String,
    /// What the response is called.
    name: String,
    /// Text that is no JSON waits until it is known whether it is needed.
    wants_json: bool,
    model: String,
    created: i64,
    /// The response was announced.
    announced: bool,
    /// The number of the next frame.
    number: u64,
    blocks: Vec<Block>,
    /// How many blocks have been written, or dropped, or are being written.
    released: usize,
    /// Text, thinking and data by id, and calls by id.
    places: [HashMap<String, usize>; 2],
    /// The block of the last delta.
    last: usize,
    /// The items of the final response; those that were taken back are none.
    output: Vec<Option<Json>>,
    /// A reasoning item that the next thinking block goes on with.
    reasoning: Option<Reasoning>,
    /// The last text that was written whole.
    said: String,
    usage: Option<TokenCounts>,
    /// There are calls that the client has to execute.
    calls: bool,
}

struct Reasoning {
    index: usize,
    id: String,
    parts: Vec<String>,
}

/// Which of the places.
#[derive(Clone, Copy)]
enum Family {
    Block = 0,
    Call = 1,
}

impl Responses {
    pub(super) fn new(encoding: &EncoderOptions) -> Self {
        Self {
            model: encoding.model.clone(),
            id: encoding.id.clone(),
            wants_json: encoding.wants_json,
            turn: None,
            ended: String::new(),
        }
    }

    /// The turn that an event belongs to; `None` where it is not for this wire.
    fn turn(&mut self, event: &Event<'_>, out: &mut Frames) -> Option<&mut Turn> {
        let is_beside = !event.kind.is_part_of_reply();
        if event.is_from_sub_agent() || (is_beside && self.turn.is_none()) {
            return None;
        }
        let same = |turn: &Turn| turn.id == event.reply_id || event.reply_id.is_empty();
        let starts = matches!(event.kind, EventKind::ReplyStart(_));
        match &self.turn {
            Some(turn) if same(turn) => {}
            // The reply before never ended: a crash, or another turn of the same stream.
            Some(_) if starts => self.end(out),
            Some(_) => return None,
            None if event.reply_id.is_empty() || event.reply_id == self.ended => return None,
            None => {}
        }
        let (id, model) = (self.id.as_deref(), self.model.as_deref());
        let turn = self.turn.get_or_insert_with(|| {
            Box::new(Turn { wants_json: self.wants_json, ..Turn::new(event, id, model) })
        });
        Some(turn)
    }

    fn finish(&mut self, end: &ReplyEnd, out: &mut Frames) {
        if let Some(mut turn) = self.turn.take() {
            turn.finish(end, out);
            self.ended = turn.id;
        }
    }
}

impl Encode for Responses {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        let Some(turn) = self.turn(event, out) else { return };
        match &event.kind {
            EventKind::ReplyEnd(end) => self.finish(end, out),
            kind => turn.event(event, kind, out),
        }
    }

    /// The reply pauses, for the client to execute calls; or it broke off.
    fn end(&mut self, out: &mut Frames) {
        let Some(turn) = &self.turn else { return };
        // What broke off was not stopped by anybody.
        let finished_reason =
            if turn.waits() { FinishedReason::ToolCalls } else { FinishedReason::Truncated };
        self.finish(&ReplyEnd { finished_reason, ..ReplyEnd::default() }, out);
        // If the reply goes on, that is another response.
        self.ended.clear();
    }
}

impl Turn {
    fn new(event: &Event<'_>, name: Option<&str>, model: Option<&str>) -> Self {
        Self {
            id: event.reply_id.to_string(),
            name: name.unwrap_or(&event.reply_id).to_owned(),
            wants_json: false,
            model: model.unwrap_or_default().to_owned(),
            created: seconds(&event.created_at),
            announced: false,
            number: 0,
            blocks: Vec::new(),
            released: 0,
            places: [HashMap::new(), HashMap::new()],
            last: 0,
            output: Vec::new(),
            reasoning: None,
            said: String::new(),
            usage: None,
            calls: false,
        }
    }

    fn event(&mut self, event: &Event<'_>, kind: &EventKind<'_>, out: &mut Frames) {
        match kind {
            EventKind::TextBlockDelta(delta) => {
                self.delta(event, Family::Block, &delta.block_id, &delta.delta, out);
            }
            EventKind::ThinkingBlockDelta(delta) => {
                self.delta(event, Family::Block, &delta.block_id, &delta.delta, out);
            }
            EventKind::ToolCallDelta(delta) => {
                self.delta(event, Family::Call, &delta.tool_call_id, &delta.delta, out);
            }
            EventKind::ModelCallStart(start) => {
                if self.model.is_empty() {
                    self.model.clone_from(&start.model_name);
                }
                self.announce(out);
            }
            EventKind::ModelCallEnd(end) => self.model_end(end, out),
            EventKind::TextBlockStart(start) => self.begin(Kind::Text, &start.block_id, out),
            EventKind::ThinkingBlockStart(start) => {
                self.begin(Kind::Thinking, &start.block_id, out);
            }
            EventKind::DataBlockStart(start) => {
                let media_type = start.media_type.clone();
                self.begin(Kind::Data { media_type, url: false }, &start.block_id, out);
            }
            EventKind::DataBlockDelta(delta) => {
                let media_type = delta.media_type.as_deref();
                self.chunk(&delta.block_id, media_type, &delta.chunk);
            }
            EventKind::ToolCallStart(start) => {
                self.begin(Kind::call(&start.tool_call_name), &start.tool_call_id, out);
            }
            EventKind::TextBlockEnd(end) => {
                let whole = end.text.as_deref();
                self.ends(Family::Block, &end.block_id, whole, &end.extra, out);
            }
            EventKind::ThinkingBlockEnd(end) => {
                self.ends(Family::Block, &end.block_id, None, &end.extra, out);
            }
            EventKind::DataBlockEnd(end) => {
                self.ends(Family::Block, &end.block_id, None, &end.extra, out);
            }
            EventKind::ToolCallEnd(end) => {
                self.ends(Family::Call, &end.tool_call_id, None, &end.extra, out);
            }
            EventKind::ToolResultStart(start) => self.served(&start.tool_call_id, out),
            EventKind::ExternalExecutionResult(event) => {
                for result in &event.execution_results {
                    self.served(&result.id, out);
                }
            }
            EventKind::RequireUserConfirm(event) => {
                for call in &event.tool_calls {
                    self.answer(&call.id, |asking, _| *asking = true);
                }
            }
            EventKind::UserConfirmResult(event) => {
                for result in &event.confirm_results {
                    let call = &result.tool_call;
                    let mut denied = false;
                    self.answer(&call.id, |asking, input| {
                        let asked = std::mem::take(asking);
                        denied = asked && !result.confirmed;
                        if asked && result.confirmed && !call.input.is_empty() {
                            input.clone_from(&call.input);
                        }
                    });
                    // Nobody is to execute it.
                    if denied {
                        self.served(&call.id, out);
                    }
                }
            }
            EventKind::Block(event) => self.whole_block(&event.block, out),
            EventKind::Custom(custom) if custom.name == NAME => self.write_back(custom, out),
            // Hints, results, and what is not for this client.
            _ => {}
        }
    }

    /// Adds a frame. Every frame has its number.
    fn put<T: serde::Serialize>(&mut self, out: &mut Frames, name: &'static str, body: &T) {
        let frame = shape::Frame { r#type: name, sequence_number: self.number, body };
        out.push(name, &frame);
        self.number += 1;
    }

    fn announce(&mut self, out: &mut Frames) {
        if std::mem::replace(&mut self.announced, true) {
            return;
        }
        for name in ["response.created", "response.in_progress"] {
            let response = Response {
                id: &self.name,
                created_at: self.created,
                model: &self.model,
                status: "in_progress",
                ..Response::default()
            };
            let frame = shape::Lifecycle {
                r#type: name,
                sequence_number: self.number,
                response: &response,
            };
            out.push(name, &frame);
            self.number += 1;
        }
    }

    fn begin(&mut self, kind: Kind, id: &str, out: &mut Frames) {
        self.announce(out);
        let family = if matches!(kind, Kind::Call { .. }) { Family::Call } else { Family::Block };
        let place = self.blocks.len();
        let Some(places) = self.places.get_mut(family as usize) else { return };
        if !id.is_empty() && places.contains_key(id) {
            return;
        }
        places.insert(id.to_owned(), place);
        self.blocks.push(Block::new(kind, id));
        self.last = place;
        self.release(false, out);
    }

    #[inline]
    fn place(&self, family: Family, id: &str) -> Option<usize> {
        let is_last = self
            .blocks
            .get(self.last)
            .is_some_and(|block| block.id == id && block.kind.is_call() == family.is_call());
        if is_last {
            return Some(self.last);
        }
        self.places.get(family as usize)?.get(id).copied()
    }

    #[inline]
    fn delta(
        &mut self,
        event: &Event<'_>,
        family: Family,
        id: &str,
        delta: &str,
        out: &mut Frames,
    ) {
        let Some(place) = self.place(family, id) else { return };
        self.last = place;
        // A merged delta has the number of its last part.
        let merged = match (event.seq, event.seq_from) {
            (Some(seq), Some(from)) => seq.get().saturating_sub(from.get()),
            _ => 0,
        };
        self.append(place, delta, merged, out);
    }

    #[inline]
    fn append(&mut self, place: usize, delta: &str, merged: u64, out: &mut Frames) {
        let Some(block) = self.blocks.get_mut(place) else { return };
        if block.ended {
            return;
        }
        block.text.push_str(delta);
        if let State::Live(_) = block.state {
            self.number += merged;
            block.write_delta(self.number, delta, out);
            self.number += 1;
        } else if self.wants_json {
            self.release(false, out);
        }
    }

    fn chunk(&mut self, id: &str, said: Option<&str>, chunk: &Chunk<'_>) {
        let Some(place) = self.place(Family::Block, id) else { return };
        let Some(block) = self.blocks.get_mut(place) else { return };
        let Kind::Data { media_type, url } = &mut block.kind else { return };
        if media_type.is_none() {
            *media_type = said.map(str::to_owned);
        }
        match chunk {
            Chunk::Data(data) => block.text.push_str(data),
            Chunk::Url(_) => *url = true,
        }
    }

    fn ends(
        &mut self,
        family: Family,
        id: &str,
        whole: Option<&str>,
        extra: &Fields,
        out: &mut Frames,
    ) {
        let Some(place) = self.place(family, id) else { return };
        let Some(block) = self.blocks.get_mut(place) else { return };
        if std::mem::replace(&mut block.ended, true) {
            return;
        }
        if let Some(whole) = whole {
            block.is_replaced = matches!(block.state, State::Live(_)) && block.text != whole;
            whole.clone_into(&mut block.text);
        }
        block.extra = extra.clone();
        self.close(place, "completed", out);
        self.release(false, out);
    }

    /// The agent has served a call, or nobody will: the client does not see it.
    fn served(&mut self, id: &str, out: &mut Frames) {
        let Some(place) = self.place(Family::Call, id) else { return };
        if let Some(block) = self.blocks.get_mut(place) {
            block.drop_held();
        }
        self.release(false, out);
    }

    fn answer(&mut self, id: &str, change: impl FnOnce(&mut bool, &mut String)) {
        let Some(place) = self.place(Family::Call, id) else { return };
        if let Some(block) = self.blocks.get_mut(place)
            && let Kind::Call { asking, .. } = &mut block.kind
        {
            change(asking, &mut block.text);
        }
    }

    fn model_end(&mut self, end: &ModelCallEnd, out: &mut Frames) {
        let sum = self.usage.get_or_insert_default();
        for (sum, count) in [
            (&mut sum.input_tokens, end.usage.input_tokens),
            (&mut sum.output_tokens, end.usage.output_tokens),
            (&mut sum.cache_input_tokens, end.usage.cache_input_tokens),
            (&mut sum.cache_creation_input_tokens, end.usage.cache_creation_input_tokens),
        ] {
            *sum = sum.saturating_add(count);
        }
        for id in &end.discard {
            for family in [Family::Block, Family::Call] {
                if let Some(place) = self.place(family, id) {
                    self.discard(place, out);
                }
            }
        }
        self.release(false, out);
    }

    /// Takes a block back. What was written stays written, and is said to count no more.
    fn discard(&mut self, place: usize, out: &mut Frames) {
        let Some(block) = self.blocks.get_mut(place) else { return };
        block.drop_held();
        block.ended = true;
        let (State::Live(index) | State::Done(index)) = block.state else { return };
        block.state = State::Done(index);
        let item = block.discarded();
        if self.reasoning.as_ref().is_some_and(|open| open.index == index) {
            self.reasoning = None;
        }
        self.put(
            out,
            "response.output_item.done",
            &shape::Done { output_index: index, item: &item },
        );
        if let Some(slot) = self.output.get_mut(index) {
            *slot = None;
        }
    }

    fn whole_block(&mut self, block: &ContentBlock, out: &mut Frames) {
        match block {
            ContentBlock::Text(block) => {
                self.whole(Kind::Text, &block.id, &block.text, &block.rest, out);
            }
            ContentBlock::Thinking(block) => {
                self.whole(Kind::Thinking, &block.id, &block.thinking, &block.rest, out);
            }
            ContentBlock::Data(block) => {
                let media_type = block.media_type().map(str::to_owned);
                if let Source::Base64(source) = &block.source {
                    let kind = Kind::Data { media_type, url: false };
                    self.whole(kind, &block.id, &source.data, &block.rest, out);
                }
            }
            ContentBlock::ToolCall(call) => {
                self.whole(Kind::call(&call.name), &call.id, &call.input, &call.rest, out);
            }
            ContentBlock::ToolResult(result) => self.served(&result.id, out),
            ContentBlock::Other(fields) => {
                if let Some(item) = provider::item(NAME, fields)
                    && let Ok(item) = Json::from_value(&item)
                {
                    self.announce(out);
                    self.blocks.push(Block::new(Kind::Item(item), ""));
                    self.release(false, out);
                }
            }
            _ => {}
        }
    }

    fn whole(&mut self, kind: Kind, id: &str, text: &str, extra: &Fields, out: &mut Frames) {
        let family = if kind.is_call() { Family::Call } else { Family::Block };
        let before = self.blocks.len();
        self.begin(kind, id, out);
        if before < self.blocks.len() {
            self.append(before, text, 0, out);
            self.last = before;
            self.ends(family, id, None, extra, out);
        }
    }

    /// An event of this wire that nobody else knows.
    fn write_back(&mut self, custom: &Custom, out: &mut Frames) {
        let Ok(mut fields) = custom.value.0.parse_as::<Fields>() else { return };
        self.announce(out);
        fields.insert("sequence_number", self.number);
        out.push("", &fields);
        self.number += 1;
    }

    /// Writes the blocks whose turn it is, up to one of which it is not known what becomes of it.
    /// At the end that is known of all of them.
    fn release(&mut self, at_end: bool, out: &mut Frames) {
        while let Some(block) = self.blocks.get(self.released) {
            let waits = matches!(block.state, State::Held)
                && match &block.kind {
                    Kind::Call { .. } => !at_end,
                    Kind::Data { .. } => !at_end && !block.ended,
                    Kind::Text => self.wants_json && !at_end && !block.looks_like_json(),
                    Kind::Thinking | Kind::Item(_) => false,
                };
            if waits {
                return;
            }
            let place = self.released;
            self.released += 1;
            self.write(place, out);
        }
    }

    /// Writes a block as far as it has come.
    fn write(&mut self, place: usize, out: &mut Frames) {
        let Some(block) = self.blocks.get_mut(place) else { return };
        if !matches!(block.state, State::Held) {
            return;
        }
        if block.prepare().is_none() {
            block.state = State::Dropped;
            return;
        }
        let is_thinking = matches!(block.kind, Kind::Thinking);
        if !is_thinking {
            self.close_reasoning(&Fields::default(), out);
        }
        let joined = self.reasoning.as_ref().map(|open| (open.index, open.parts.len(), &open.id));
        let Some(block) = self.blocks.get_mut(place) else { return };
        let index = if let Some((index, part, id)) = joined {
            block.part = part;
            block.item_id.clone_from(id);
            index
        } else {
            block.name_item(self.output.len());
            self.output.push(None);
            self.output.len() - 1
        };
        block.state = State::Live(index);
        self.calls |= block.kind.is_call();
        let ended = block.ended;
        block.write_start(&mut self.number, index, out);
        if ended || !matches!(block.kind, Kind::Text | Kind::Thinking) {
            // A call that never ended has only a part of its input.
            self.close(place, "incomplete", out);
        }
    }

    /// Ends a block that is being written.
    fn close(&mut self, place: usize, status: &'static str, out: &mut Frames) {
        let Some(block) = self.blocks.get_mut(place) else { return };
        let State::Live(index) = block.state else { return };
        let status = if block.ended { "completed" } else { status };
        block.state = State::Done(index);
        block.write_end(&mut self.number, index, out);
        let text = std::mem::take(&mut block.text);
        if matches!(block.kind, Kind::Thinking) {
            let (extra, id) = (std::mem::take(&mut block.extra), block.item_id.clone());
            let parts = match self.reasoning.take() {
                Some(open) if open.index == index => open.parts,
                other => {
                    self.reasoning = other;
                    Vec::new()
                }
            };
            let mut open = Reasoning { index, id, parts };
            open.parts.push(text);
            if item::goes_on(&extra) {
                self.reasoning = Some(open);
            } else {
                self.reasoning_done(&open, &extra, out);
            }
            return;
        }
        let item = block.item(&text, status);
        if matches!(block.kind, Kind::Text) {
            self.said = text;
        }
        self.item_done(index, item, out);
    }

    fn item_done(&mut self, index: usize, item: Option<Json>, out: &mut Frames) {
        let Some(item) = item else { return };
        self.put(
            out,
            "response.output_item.done",
            &shape::Done { output_index: index, item: &item },
        );
        if let Some(slot) = self.output.get_mut(index) {
            *slot = Some(item);
        }
    }

    fn close_reasoning(&mut self, extra: &Fields, out: &mut Frames) {
        if let Some(open) = self.reasoning.take() {
            self.reasoning_done(&open, extra, out);
        }
    }

    fn reasoning_done(&mut self, open: &Reasoning, extra: &Fields, out: &mut Frames) {
        let summary = open.parts.iter().map(|text| Part::summary(text)).collect();
        let item = shape::Reasoning {
            id: &open.id,
            r#type: "reasoning",
            summary,
            encrypted_content: extra.raw("encrypted_content").filter(|value| !value.is_null()),
        };
        self.item_done(open.index, Json::from_value(&item).ok(), out);
    }

    /// Whether there are calls for the client to execute.
    fn waits(&self) -> bool {
        self.blocks.iter().any(|block| block.kind.is_call() && matches!(block.state, State::Held))
    }

    fn finish(&mut self, end: &ReplyEnd, out: &mut Frames) {
        self.announce(out);
        let (name, status) = match &end.finished_reason {
            FinishedReason::Completed | FinishedReason::ToolCalls => {
                ("response.completed", "completed")
            }
            FinishedReason::Error => ("response.failed", "failed"),
            // They have the word, but no event of that name.
            FinishedReason::Interrupted => ("response.incomplete", "cancelled"),
            _ => ("response.incomplete", "incomplete"),
        };
        let open = if status == "completed" { "completed" } else { "incomplete" };
        let is_tool_calls = matches!(end.finished_reason, FinishedReason::ToolCalls);
        if self.wants_json && (end.structured_output.is_some() || is_tool_calls) {
            let mut texts = self.blocks.iter_mut().filter(|block| matches!(block.kind, Kind::Text));
            texts.by_ref().filter(|block| !block.looks_like_json()).for_each(Block::drop_held);
        }
        self.release(true, out);
        for place in 0..self.blocks.len() {
            self.close(place, open, out);
        }
        self.close_reasoning(&Fields::default(), out);
        if let Some(output) = &end.structured_output {
            self.structured(output, out);
        }
        self.respond(name, status, end, out);
    }

    /// Says the structured output, unless the text has said it.
    fn structured(&mut self, output: &Json, out: &mut Frames) {
        let said: Option<serde_json::Value> = serde_json::from_str(&self.said).ok();
        if said.is_some() && said == output.parse_as().ok() {
            return;
        }
        let mut block = Block::new(Kind::Text, "");
        let index = self.output.len();
        self.output.push(None);
        block.is_structured = true;
        block.name_item(index);
        output.text().clone_into(&mut block.text);
        block.write_start(&mut self.number, index, out);
        block.write_end(&mut self.number, index, out);
        let item = block.item(output.text(), "completed");
        self.item_done(index, item, out);
    }

    fn respond(&mut self, name: &'static str, status: &str, end: &ReplyEnd, out: &mut Frames) {
        let unknown = ReplyError::default();
        let failure = (status == "failed").then(|| {
            let error = end.error.as_ref().unwrap_or(&unknown);
            Failure { code: error::code(&error.r#type), message: &error.message }
        });
        let incomplete = (status == "incomplete").then(|| Incomplete {
            reason: match &end.finished_reason {
                FinishedReason::Length => "max_output_tokens",
                reason => reason.as_str(),
            },
        });
        let output: Vec<Json> = std::mem::take(&mut self.output).into_iter().flatten().collect();
        let response = Response {
            id: &self.name,
            created_at: self.created,
            model: &self.model,
            status,
            error: failure,
            incomplete_details: incomplete,
            output: &output,
            usage: self.usage.map(shape::Usage::from),
            structured_output: end.structured_output.as_ref(),
            ..Response::default()
        };
        let frame =
            shape::Lifecycle { r#type: name, sequence_number: self.number, response: &response };
        out.push(name, &frame);
        self.number += 1;
    }
}

impl Family {
    fn is_call(self) -> bool {
        matches!(self, Self::Call)
    }
}

/// A time as seconds since 1970; 0 where it is not known. One without a zone is in UTC.
fn seconds(time: &str) -> i64 {
    let at = time.parse::<jiff::Timestamp>().or_else(|_| {
        time.parse::<jiff::civil::DateTime>()
            .and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC))
            .map(|time| time.timestamp())
    });
    at.map_or(0, jiff::Timestamp::as_second)
}
