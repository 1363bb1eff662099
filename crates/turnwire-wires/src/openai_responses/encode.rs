//! The stream out: one reply is one response.

mod block;
mod frame;

use super::{NAME, error, item};
use crate::provider;
use crate::stream::{Encode, EncoderOptions, Frames};
use block::{BlockState, OutputBlock, OutputKind};
use frame::{ErrorBody, Incomplete, Part, Response};
use std::collections::HashMap;
use turnwire_core::event::{Chunk, Custom, ModelCallEnd, ReplyEnd, TokenCounts};
use turnwire_core::{
    ContentBlock, Event, EventKind, Fields, FinishedReason, Json, ReplyError, Source,
};

pub(super) struct ResponsesEncoder {
    model: Option<String>,
    /// What the response is called.
    id: Option<String>,
    wants_json: bool,
    response: Option<Box<OpenResponse>>,
    /// The reply that ended last: nothing comes after its end.
    ended_reply: String,
}

/// One reply on its way out.
struct OpenResponse {
    /// The reply.
    reply_id: String,
    /// What the response is called.
    response_id: String,
    /// Text that is no JSON waits until it is known whether it is needed.
    wants_json: bool,
    model: String,
    created: i64,
    /// The response was announced.
    announced: bool,
    /// The number of the next frame.
    number: u64,
    blocks: Vec<OutputBlock>,
    /// How many blocks have been written, or dropped, or are being written.
    released: usize,
    /// Text, thinking and data by id, and calls by id.
    positions: [HashMap<String, usize>; 2],
    /// The block of the last delta.
    last_block: usize,
    /// The items of the final response; those that were taken back are none.
    output: Vec<Option<Json>>,
    /// A reasoning item that the next thinking block goes on with.
    reasoning: Option<OpenReasoning>,
    /// The last text that was written whole.
    last_text: String,
    usage: Option<TokenCounts>,
    /// There are calls that the client has to execute.
    has_client_calls: bool,
}

struct OpenReasoning {
    index: usize,
    id: String,
    parts: Vec<String>,
}

/// Which of the places.
#[derive(Clone, Copy)]
enum IdSpace {
    Block = 0,
    Call = 1,
}

impl ResponsesEncoder {
    pub(super) fn new(encoding: &EncoderOptions) -> Self {
        Self {
            model: encoding.model.clone(),
            id: encoding.id.clone(),
            wants_json: encoding.wants_json,
            response: None,
            ended_reply: String::new(),
        }
    }

    /// The turn that an event belongs to; `None` where it is not for this wire.
    fn response_for_event(
        &mut self,
        event: &Event<'_>,
        out: &mut Frames,
    ) -> Option<&mut OpenResponse> {
        let is_beside = !event.kind.is_part_of_reply();
        if event.is_from_sub_agent() || (is_beside && self.response.is_none()) {
            return None;
        }
        let same =
            |turn: &OpenResponse| turn.reply_id == event.reply_id || event.reply_id.is_empty();
        let starts = matches!(event.kind, EventKind::ReplyStart(_));
        match &self.response {
            Some(turn) if same(turn) => {}
            // The reply before never ended: a crash, or another turn of the same stream.
            Some(_) if starts => self.end(out),
            Some(_) => return None,
            None if event.reply_id.is_empty() || event.reply_id == self.ended_reply => return None,
            None => {}
        }
        let (id, model) = (self.id.as_deref(), self.model.as_deref());
        let turn = self.response.get_or_insert_with(|| {
            Box::new(OpenResponse {
                wants_json: self.wants_json,
                ..OpenResponse::new(event, id, model)
            })
        });
        Some(turn)
    }

    fn finish(&mut self, end: &ReplyEnd, out: &mut Frames) {
        if let Some(mut turn) = self.response.take() {
            turn.finish(end, out);
            self.ended_reply = turn.reply_id;
        }
    }
}

impl Encode for ResponsesEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        let Some(turn) = self.response_for_event(event, out) else { return };
        match &event.kind {
            EventKind::ReplyEnd(end) => self.finish(end, out),
            kind => turn.push_event(event, kind, out),
        }
    }

    /// The reply pauses, for the client to execute calls; or it broke off.
    fn end(&mut self, out: &mut Frames) {
        let Some(turn) = &self.response else { return };
        // What broke off was not stopped by anybody.
        let finished_reason = if turn.has_pending_calls() {
            FinishedReason::ToolCalls
        } else {
            FinishedReason::Truncated
        };
        self.finish(&ReplyEnd { finished_reason, ..ReplyEnd::default() }, out);
        // If the reply goes on, that is another response.
        self.ended_reply.clear();
    }
}

impl OpenResponse {
    fn new(event: &Event<'_>, name: Option<&str>, model: Option<&str>) -> Self {
        Self {
            reply_id: event.reply_id.to_string(),
            response_id: name.unwrap_or(&event.reply_id).to_owned(),
            wants_json: false,
            model: model.unwrap_or_default().to_owned(),
            created: unix_seconds(&event.created_at),
            announced: false,
            number: 0,
            blocks: Vec::new(),
            released: 0,
            positions: [HashMap::new(), HashMap::new()],
            last_block: 0,
            output: Vec::new(),
            reasoning: None,
            last_text: String::new(),
            usage: None,
            has_client_calls: false,
        }
    }

    fn push_event(&mut self, event: &Event<'_>, kind: &EventKind<'_>, out: &mut Frames) {
        match kind {
            EventKind::TextBlockDelta(delta) => {
                self.push_delta(event, IdSpace::Block, &delta.block_id, &delta.delta, out);
            }
            EventKind::ThinkingBlockDelta(delta) => {
                self.push_delta(event, IdSpace::Block, &delta.block_id, &delta.delta, out);
            }
            EventKind::ToolCallDelta(delta) => {
                self.push_delta(event, IdSpace::Call, &delta.tool_call_id, &delta.delta, out);
            }
            EventKind::ModelCallStart(start) => {
                if self.model.is_empty() {
                    self.model.clone_from(&start.model_name);
                }
                self.announce(out);
            }
            EventKind::ModelCallEnd(end) => self.end_model_call(end, out),
            EventKind::TextBlockStart(start) => {
                self.begin_block(OutputKind::Text, &start.block_id, out);
            }
            EventKind::ThinkingBlockStart(start) => {
                self.begin_block(OutputKind::Thinking, &start.block_id, out);
            }
            EventKind::DataBlockStart(start) => {
                let media_type = start.media_type.clone();
                self.begin_block(OutputKind::Data { media_type, url: false }, &start.block_id, out);
            }
            EventKind::DataBlockDelta(delta) => {
                let media_type = delta.media_type.as_deref();
                self.push_data(&delta.block_id, media_type, &delta.chunk);
            }
            EventKind::ToolCallStart(start) => {
                self.begin_block(
                    OutputKind::tool_call(&start.tool_call_name),
                    &start.tool_call_id,
                    out,
                );
            }
            EventKind::TextBlockEnd(end) => {
                let whole = end.text.as_deref();
                self.end_block(IdSpace::Block, &end.block_id, whole, &end.extra, out);
            }
            EventKind::ThinkingBlockEnd(end) => {
                self.end_block(IdSpace::Block, &end.block_id, None, &end.extra, out);
            }
            EventKind::DataBlockEnd(end) => {
                self.end_block(IdSpace::Block, &end.block_id, None, &end.extra, out);
            }
            EventKind::ToolCallEnd(end) => {
                self.end_block(IdSpace::Call, &end.tool_call_id, None, &end.extra, out);
            }
            EventKind::ToolResultStart(start) => self.mark_served(&start.tool_call_id, out),
            EventKind::ExternalExecutionResult(event) => {
                for result in &event.execution_results {
                    self.mark_served(&result.id, out);
                }
            }
            EventKind::RequireUserConfirm(event) => {
                for call in &event.tool_calls {
                    self.update_call(&call.id, |asking, _| *asking = true);
                }
            }
            EventKind::UserConfirmResult(event) => {
                for result in &event.confirm_results {
                    let call = &result.tool_call;
                    let mut denied = false;
                    self.update_call(&call.id, |asking, input| {
                        let asked = std::mem::take(asking);
                        denied = asked && !result.confirmed;
                        if asked && result.confirmed && !call.input.is_empty() {
                            input.clone_from(&call.input);
                        }
                    });
                    // Nobody is to execute it.
                    if denied {
                        self.mark_served(&call.id, out);
                    }
                }
            }
            EventKind::Block(event) => self.write_whole_block(&event.block, out),
            EventKind::Custom(custom) if custom.name == NAME => {
                self.write_custom_frame(custom, out);
            }
            // Hints, results, and what is not for this client.
            _ => {}
        }
    }

    /// Adds a frame. Every frame has its number.
    fn write_frame<T: serde::Serialize>(&mut self, out: &mut Frames, name: &'static str, body: &T) {
        let frame = frame::Frame { r#type: name, sequence_number: self.number, body };
        out.push(name, &frame);
        self.number += 1;
    }

    fn announce(&mut self, out: &mut Frames) {
        if std::mem::replace(&mut self.announced, true) {
            return;
        }
        for name in ["response.created", "response.in_progress"] {
            let response = Response {
                id: &self.response_id,
                created_at: self.created,
                model: &self.model,
                status: "in_progress",
                ..Response::default()
            };
            let frame = frame::Lifecycle {
                r#type: name,
                sequence_number: self.number,
                response: &response,
            };
            out.push(name, &frame);
            self.number += 1;
        }
    }

    fn begin_block(&mut self, kind: OutputKind, id: &str, out: &mut Frames) {
        self.announce(out);
        let family = if matches!(kind, OutputKind::ToolCall { .. }) {
            IdSpace::Call
        } else {
            IdSpace::Block
        };
        let place = self.blocks.len();
        let Some(places) = self.positions.get_mut(family as usize) else { return };
        if !id.is_empty() && places.contains_key(id) {
            return;
        }
        places.insert(id.to_owned(), place);
        self.blocks.push(OutputBlock::new(kind, id));
        self.last_block = place;
        self.release_blocks(false, out);
    }

    #[inline]
    fn find_block(&self, family: IdSpace, id: &str) -> Option<usize> {
        let is_last = self
            .blocks
            .get(self.last_block)
            .is_some_and(|block| block.id == id && block.kind.is_call() == family.is_call());
        if is_last {
            return Some(self.last_block);
        }
        self.positions.get(family as usize)?.get(id).copied()
    }

    #[inline]
    fn push_delta(
        &mut self,
        event: &Event<'_>,
        family: IdSpace,
        id: &str,
        delta: &str,
        out: &mut Frames,
    ) {
        let Some(place) = self.find_block(family, id) else { return };
        self.last_block = place;
        // A merged delta has the number of its last part.
        let merged = match (event.seq, event.seq_from) {
            (Some(seq), Some(from)) => seq.get().saturating_sub(from.get()),
            _ => 0,
        };
        self.append_text(place, delta, merged, out);
    }

    #[inline]
    fn append_text(&mut self, place: usize, delta: &str, merged: u64, out: &mut Frames) {
        let Some(block) = self.blocks.get_mut(place) else { return };
        if block.ended {
            return;
        }
        block.text.push_str(delta);
        if let BlockState::Live(_) = block.state {
            self.number += merged;
            block.write_delta(self.number, delta, out);
            self.number += 1;
        } else if self.wants_json {
            self.release_blocks(false, out);
        }
    }

    fn push_data(&mut self, id: &str, said: Option<&str>, chunk: &Chunk<'_>) {
        let Some(place) = self.find_block(IdSpace::Block, id) else { return };
        let Some(block) = self.blocks.get_mut(place) else { return };
        let OutputKind::Data { media_type, url } = &mut block.kind else { return };
        if media_type.is_none() {
            *media_type = said.map(str::to_owned);
        }
        match chunk {
            Chunk::Data(data) => block.text.push_str(data),
            Chunk::Url(_) => *url = true,
        }
    }

    fn end_block(
        &mut self,
        family: IdSpace,
        id: &str,
        whole: Option<&str>,
        extra: &Fields,
        out: &mut Frames,
    ) {
        let Some(place) = self.find_block(family, id) else { return };
        let Some(block) = self.blocks.get_mut(place) else { return };
        if std::mem::replace(&mut block.ended, true) {
            return;
        }
        if let Some(whole) = whole {
            block.is_replaced = matches!(block.state, BlockState::Live(_)) && block.text != whole;
            whole.clone_into(&mut block.text);
        }
        block.extra = extra.clone();
        self.close_block(place, "completed", out);
        self.release_blocks(false, out);
    }

    /// The agent has served a call, or nobody will: the client does not see it.
    fn mark_served(&mut self, id: &str, out: &mut Frames) {
        let Some(place) = self.find_block(IdSpace::Call, id) else { return };
        if let Some(block) = self.blocks.get_mut(place) {
            block.drop_held();
        }
        self.release_blocks(false, out);
    }

    fn update_call(&mut self, id: &str, change: impl FnOnce(&mut bool, &mut String)) {
        let Some(place) = self.find_block(IdSpace::Call, id) else { return };
        if let Some(block) = self.blocks.get_mut(place)
            && let OutputKind::ToolCall { asking, .. } = &mut block.kind
        {
            change(asking, &mut block.text);
        }
    }

    fn end_model_call(&mut self, end: &ModelCallEnd, out: &mut Frames) {
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
            for family in [IdSpace::Block, IdSpace::Call] {
                if let Some(place) = self.find_block(family, id) {
                    self.discard_block(place, out);
                }
            }
        }
        self.release_blocks(false, out);
    }

    /// Takes a block back. What was written stays written, and is said to count no more.
    fn discard_block(&mut self, place: usize, out: &mut Frames) {
        let Some(block) = self.blocks.get_mut(place) else { return };
        block.drop_held();
        block.ended = true;
        let (BlockState::Live(index) | BlockState::Done(index)) = block.state else { return };
        block.state = BlockState::Done(index);
        let item = block.discarded_item();
        if self.reasoning.as_ref().is_some_and(|open| open.index == index) {
            self.reasoning = None;
        }
        self.write_frame(
            out,
            "response.output_item.done",
            &frame::ItemFrame { output_index: index, item: &item },
        );
        if let Some(slot) = self.output.get_mut(index) {
            *slot = None;
        }
    }

    fn write_whole_block(&mut self, block: &ContentBlock, out: &mut Frames) {
        match block {
            ContentBlock::Text(block) => {
                self.push_whole_block(OutputKind::Text, &block.id, &block.text, &block.rest, out);
            }
            ContentBlock::Thinking(block) => {
                self.push_whole_block(
                    OutputKind::Thinking,
                    &block.id,
                    &block.thinking,
                    &block.rest,
                    out,
                );
            }
            ContentBlock::Data(block) => {
                let media_type = block.media_type().map(str::to_owned);
                if let Source::Base64(source) = &block.source {
                    let kind = OutputKind::Data { media_type, url: false };
                    self.push_whole_block(kind, &block.id, &source.data, &block.rest, out);
                }
            }
            ContentBlock::ToolCall(call) => {
                self.push_whole_block(
                    OutputKind::tool_call(&call.name),
                    &call.id,
                    &call.input,
                    &call.rest,
                    out,
                );
            }
            ContentBlock::ToolResult(result) => self.mark_served(&result.id, out),
            ContentBlock::Other(fields) => {
                if let Some(item) = provider::block_to_item(NAME, fields)
                    && let Ok(item) = Json::from_value(&item)
                {
                    self.announce(out);
                    self.blocks.push(OutputBlock::new(OutputKind::Item(item), ""));
                    self.release_blocks(false, out);
                }
            }
            _ => {}
        }
    }

    fn push_whole_block(
        &mut self,
        kind: OutputKind,
        id: &str,
        text: &str,
        extra: &Fields,
        out: &mut Frames,
    ) {
        let family = if kind.is_call() { IdSpace::Call } else { IdSpace::Block };
        let before = self.blocks.len();
        self.begin_block(kind, id, out);
        if before < self.blocks.len() {
            self.append_text(before, text, 0, out);
            self.last_block = before;
            self.end_block(family, id, None, extra, out);
        }
    }

    /// An event of this wire that nobody else knows.
    fn write_custom_frame(&mut self, custom: &Custom, out: &mut Frames) {
        let Ok(mut fields) = custom.value.0.parse_as::<Fields>() else { return };
        self.announce(out);
        fields.insert("sequence_number", self.number);
        out.push("", &fields);
        self.number += 1;
    }

    /// Writes the blocks whose turn it is, up to one of which it is not known what becomes of it.
    /// At the end that is known of all of them.
    fn release_blocks(&mut self, at_end: bool, out: &mut Frames) {
        while let Some(block) = self.blocks.get(self.released) {
            let waits = matches!(block.state, BlockState::Held)
                && match &block.kind {
                    OutputKind::ToolCall { .. } => !at_end,
                    OutputKind::Data { .. } => !at_end && !block.ended,
                    OutputKind::Text => self.wants_json && !at_end && !block.looks_like_json(),
                    OutputKind::Thinking | OutputKind::Item(_) => false,
                };
            if waits {
                return;
            }
            let place = self.released;
            self.released += 1;
            self.write_block(place, out);
        }
    }

    /// Writes a block as far as it has come.
    fn write_block(&mut self, place: usize, out: &mut Frames) {
        let Some(block) = self.blocks.get_mut(place) else { return };
        if !matches!(block.state, BlockState::Held) {
            return;
        }
        if block.normalize_data().is_none() {
            block.state = BlockState::Dropped;
            return;
        }
        let is_thinking = matches!(block.kind, OutputKind::Thinking);
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
            block.assign_item_id(self.output.len());
            self.output.push(None);
            self.output.len() - 1
        };
        block.state = BlockState::Live(index);
        self.has_client_calls |= block.kind.is_call();
        let ended = block.ended;
        block.write_start(&mut self.number, index, out);
        if ended || !matches!(block.kind, OutputKind::Text | OutputKind::Thinking) {
            // A call that never ended has only a part of its input.
            self.close_block(place, "incomplete", out);
        }
    }

    /// Ends a block that is being written.
    fn close_block(&mut self, place: usize, status: &'static str, out: &mut Frames) {
        let Some(block) = self.blocks.get_mut(place) else { return };
        let BlockState::Live(index) = block.state else { return };
        let status = if block.ended { "completed" } else { status };
        block.state = BlockState::Done(index);
        block.write_end(&mut self.number, index, out);
        let text = std::mem::take(&mut block.text);
        if matches!(block.kind, OutputKind::Thinking) {
            let (extra, id) = (std::mem::take(&mut block.extra), block.item_id.clone());
            let parts = match self.reasoning.take() {
                Some(open) if open.index == index => open.parts,
                other => {
                    self.reasoning = other;
                    Vec::new()
                }
            };
            let mut open = OpenReasoning { index, id, parts };
            open.parts.push(text);
            if item::continues_reasoning(&extra) {
                self.reasoning = Some(open);
            } else {
                self.reasoning_done(&open, &extra, out);
            }
            return;
        }
        let item = block.item(&text, status);
        if matches!(block.kind, OutputKind::Text) {
            self.last_text = text;
        }
        self.item_done(index, item, out);
    }

    fn item_done(&mut self, index: usize, item: Option<Json>, out: &mut Frames) {
        let Some(item) = item else { return };
        self.write_frame(
            out,
            "response.output_item.done",
            &frame::ItemFrame { output_index: index, item: &item },
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

    fn reasoning_done(&mut self, open: &OpenReasoning, extra: &Fields, out: &mut Frames) {
        let summary = open.parts.iter().map(|text| Part::summary(text)).collect();
        let item = frame::Reasoning {
            id: &open.id,
            r#type: "reasoning",
            summary,
            encrypted_content: extra.raw("encrypted_content").filter(|value| !value.is_null()),
        };
        self.item_done(open.index, Json::from_value(&item).ok(), out);
    }

    /// Whether there are calls for the client to execute.
    fn has_pending_calls(&self) -> bool {
        self.blocks
            .iter()
            .any(|block| block.kind.is_call() && matches!(block.state, BlockState::Held))
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
            let mut texts =
                self.blocks.iter_mut().filter(|block| matches!(block.kind, OutputKind::Text));
            texts
                .by_ref()
                .filter(|block| !block.looks_like_json())
                .for_each(OutputBlock::drop_held);
        }
        self.release_blocks(true, out);
        for place in 0..self.blocks.len() {
            self.close_block(place, open, out);
        }
        self.close_reasoning(&Fields::default(), out);
        if let Some(output) = &end.structured_output {
            self.write_structured_output(output, out);
        }
        self.write_final_response(name, status, end, out);
    }

    /// Says the structured output, unless the text has said it.
    fn write_structured_output(&mut self, output: &Json, out: &mut Frames) {
        let said: Option<serde_json::Value> = serde_json::from_str(&self.last_text).ok();
        if said.is_some() && said == output.parse_as().ok() {
            return;
        }
        let mut block = OutputBlock::new(OutputKind::Text, "");
        let index = self.output.len();
        self.output.push(None);
        block.is_structured = true;
        block.assign_item_id(index);
        output.text().clone_into(&mut block.text);
        block.write_start(&mut self.number, index, out);
        block.write_end(&mut self.number, index, out);
        let item = block.item(output.text(), "completed");
        self.item_done(index, item, out);
    }

    fn write_final_response(
        &mut self,
        name: &'static str,
        status: &str,
        end: &ReplyEnd,
        out: &mut Frames,
    ) {
        let unknown = ReplyError::default();
        let failure = (status == "failed").then(|| {
            let error = end.error.as_ref().unwrap_or(&unknown);
            ErrorBody { code: error::error_code(&error.r#type), message: &error.message }
        });
        let incomplete = (status == "incomplete").then(|| Incomplete {
            reason: match &end.finished_reason {
                FinishedReason::Length => "max_output_tokens",
                reason => reason.as_str(),
            },
        });
        let output: Vec<Json> = std::mem::take(&mut self.output).into_iter().flatten().collect();
        let response = Response {
            id: &self.response_id,
            created_at: self.created,
            model: &self.model,
            status,
            error: failure,
            incomplete_details: incomplete,
            output: &output,
            usage: self.usage.map(frame::Usage::from),
            structured_output: end.structured_output.as_ref(),
            ..Response::default()
        };
        let frame =
            frame::Lifecycle { r#type: name, sequence_number: self.number, response: &response };
        out.push(name, &frame);
        self.number += 1;
    }
}

impl IdSpace {
    fn is_call(self) -> bool {
        matches!(self, Self::Call)
    }
}

/// A time as seconds since 1970; 0 where it is not known. One without a zone is in UTC.
fn unix_seconds(time: &str) -> i64 {
    let at = time.parse::<jiff::Timestamp>().or_else(|_| {
        time.parse::<jiff::civil::DateTime>()
            .and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC))
            .map(|time| time.timestamp())
    });
    at.map_or(0, jiff::Timestamp::as_second)
}
