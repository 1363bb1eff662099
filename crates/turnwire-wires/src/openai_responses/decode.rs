//! Decodes the Responses stream into events.
//!
//! Items are identified by their `output_index`, because ids may change from event to event. A `done` event repeats the
//! text of the deltas: it is compared by length and checksum, and only what is missing is emitted.

mod frame;
mod items;
mod parts;

use super::{NAME, error};
use crate::lenient::{self, IntOrText, Raw};
use crate::provider::{
    LOGPROBS, ModelCall, ModelCallInfo, ProviderDecoder, model_call_in, parse_frame, set_count,
};
use crate::stream::{DecoderOptions, EventSink};
use frame::{Frame, IncompleteDetails, InputTokensDetails, Response, Usage};
use items::ItemState;
use parts::{PartKind, PartState, part_key};
use std::collections::{BTreeMap, HashMap, HashSet};
use turnwire_core::{Error, ErrorKind, Event, EventKind, FinishedReason, Json, Result};

pub(super) struct ResponsesDecoder {
    call: ModelCall,
    /// The start of the response was seen. Without it the stream may begin in the middle.
    has_start: bool,
    items: BTreeMap<u64, ItemState>,
    /// The items by their ids and call ids.
    names: HashMap<String, u64>,
    /// The index of the last item that shares a provider's index: some providers give all items the same.
    moved_indexes: HashMap<u64, u64>,
    move_count: u64,
    parts: BTreeMap<u64, PartState>,
    /// The ids of blocks so far.
    block_ids: HashSet<String>,
    /// The ids of items that are kept verbatim.
    item_ids: HashSet<String>,
    /// The index of the last item, and the next free one.
    last_index: u64,
    next_index: u64,
    call_count: usize,
    is_refusal: bool,
}

impl ResponsesDecoder {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self {
            call: ModelCall::new(NAME, decoding),
            has_start: false,
            items: BTreeMap::new(),
            names: HashMap::new(),
            moved_indexes: HashMap::new(),
            move_count: 0,
            parts: BTreeMap::new(),
            block_ids: HashSet::new(),
            item_ids: HashSet::new(),
            last_index: 0,
            next_index: 0,
            call_count: 0,
            is_refusal: false,
        }
    }

    fn begin_response(&mut self, response: &Response<'_>, out: &mut EventSink<'_>) {
        self.has_start = true;
        let about = ModelCallInfo {
            id: &response.id,
            model: &response.model,
            created: response.created_at.or_zero(),
        };
        self.call.begin(about, out);
        self.update_usage(response.usage);
    }

    /// Updates the token counts.
    fn update_usage(&mut self, usage: Raw<'_>) {
        let usage: Usage<'_> = lenient::parse_optional(usage);
        let cached: InputTokensDetails = lenient::parse_optional(usage.input_tokens_details);
        let counts = &mut self.call.usage;
        set_count(&mut counts.input_tokens, usage.input_tokens.0);
        set_count(&mut counts.output_tokens, usage.output_tokens.0);
        set_count(&mut counts.cache_input_tokens, cached.cached_tokens.0);
        set_count(&mut counts.cache_creation_input_tokens, cached.cache_write_tokens.0);
    }

    fn end_response(&mut self, response: &Response<'_>, word: &str, out: &mut EventSink<'_>) {
        // There is no event of its own for `cancelled`.
        let word = if &*response.status == "cancelled" { "cancelled" } else { word };
        self.begin_response(response, out);
        self.final_items(response, out);
        self.close_replaced_parts(out);
        self.call.metadata.insert("status", word);
        if let Some(output) = response.structured_output {
            self.call.structured_output = Json::parse(output.get()).ok();
        }
        let details: IncompleteDetails<'_> = lenient::parse_optional(response.incomplete_details);
        self.call.metadata.insert_unless_empty("incomplete_reason", &details.reason);
        if word == "failed" {
            let raw = response.error.map_or("{}", |error| error.get());
            return self.call.fail(error::read_error(raw), out);
        }
        self.call.finished_reason = Some(self.finished_reason(word, &details.reason));
        self.call.end_call(out);
    }

    /// Prepares for another response in the same body: the next model call of the same reply. Its indexes start anew; ids of
    /// blocks stay unique.
    fn next_response(&mut self) {
        self.items.clear();
        self.names.clear();
        self.parts.clear();
        (self.last_index, self.next_index) = (0, 0);
        self.moved_indexes.clear();
        (self.call_count, self.is_refusal) = (0, false);
    }

    fn finished_reason(&self, word: &str, why: &str) -> FinishedReason {
        match (word, why) {
            (_, "max_output_tokens" | "max_tokens" | "length") => FinishedReason::Length,
            (_, "content_filter") => FinishedReason::ContentFilter,
            ("cancelled", _) => FinishedReason::Interrupted,
            // An incomplete response never counts as completed.
            ("incomplete", why) => Some(FinishedReason::from(why))
                .filter(|reason| reason.is_known() && *reason != FinishedReason::Completed)
                .unwrap_or(FinishedReason::Truncated),
            _ if self.is_refusal => FinishedReason::Refusal,
            _ if self.call_count > 0 => FinishedReason::ToolCalls,
            _ => FinishedReason::Completed,
        }
    }

    fn fail(&mut self, text: &str, out: &mut EventSink<'_>) {
        self.close_replaced_parts(out);
        self.call.fail(error::read_error(text), out);
    }

    fn end_with_status(&mut self, raw: Raw<'_>, word: &str, out: &mut EventSink<'_>) {
        let response: Response<'_> = lenient::parse_optional(raw);
        self.end_response(&response, word, out);
    }

    /// Reads a response without streaming.
    fn read_whole_response(&mut self, text: &str, out: &mut EventSink<'_>) {
        let response: Response<'_> = serde_json::from_str(text).unwrap_or_default();
        let word = if response.status.is_empty() { "completed" } else { &response.status };
        let word = word.to_owned();
        self.end_response(&response, &word, out);
    }
}

impl ProviderDecoder for ResponsesDecoder {
    model_call_in!(call);

    fn read_frame(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        let frame: Frame<'_> = parse_frame(text)?;
        if self.call.is_between_calls() {
            if &*frame.r#type != "response.created" {
                return Ok(());
            }
            self.next_response();
        }
        let index = self.frame_index(&frame);
        match &*frame.r#type {
            "response.output_text.delta" => {
                let at = frame.content_index;
                let logprobs = frame.logprobs.filter(|raw| raw.get() != "[]");
                match logprobs.and_then(|raw| serde_json::from_str::<Vec<Json>>(raw.get()).ok()) {
                    None => self.push_delta(index, PartKind::Text, at, &frame.delta, out),
                    Some(list) => {
                        let mut list = Json::from_value(&list).ok();
                        let add = &mut |mut event: Event<'_>| {
                            if matches!(event.kind, EventKind::TextBlockDelta(_)) {
                                event.metadata.insert_some(LOGPROBS, list.take());
                            }
                            out(event);
                        };
                        self.push_delta(index, PartKind::Text, at, &frame.delta, add);
                    }
                }
            }
            "response.refusal.delta" => {
                self.is_refusal = true;
                self.push_delta(index, PartKind::Text, frame.content_index, &frame.delta, out);
            }
            "response.reasoning_summary_text.delta" => {
                self.push_delta(index, PartKind::Summary, frame.summary_index, &frame.delta, out);
            }
            "response.reasoning_text.delta" => {
                self.push_delta(index, PartKind::Thinking, frame.content_index, &frame.delta, out);
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.push_delta(index, PartKind::ToolCall, IntOrText(Some(0)), &frame.delta, out);
            }
            "response.output_text.done" | "response.refusal.done" => {
                let at = frame.content_index.index().unwrap_or(0);
                self.open_part(index, PartKind::Text, at, out);
                let whole = if frame.text.is_empty() { &frame.refusal } else { &frame.text };
                self.complete_text(part_key(index, PartKind::Text, at), whole, out);
            }
            "response.reasoning_summary_text.done" => {
                let at = frame.summary_index.index().unwrap_or(0);
                self.open_part(index, PartKind::Summary, at, out);
                self.complete_text(part_key(index, PartKind::Summary, at), &frame.text, out);
            }
            "response.reasoning_text.done" => {
                let at = frame.content_index.index().unwrap_or(0);
                self.open_part(index, PartKind::Thinking, at, out);
                self.complete_text(part_key(index, PartKind::Thinking, at), &frame.text, out);
            }
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                let input =
                    if frame.arguments.is_empty() { &frame.input } else { &frame.arguments };
                self.complete_text(part_key(index, PartKind::ToolCall, 0), input, out);
            }
            "response.content_part.added"
            | "response.content_part.done"
            | "response.reasoning_summary_part.added"
            | "response.reasoning_summary_part.done" => self.read_part(&frame, out),
            "response.output_item.added" => self.item_added(&frame, out),
            "response.output_item.done" => {
                if let Some(item) = frame.item {
                    let reported = frame.output_index.index().unwrap_or(self.last_index);
                    let index = self.assign_index(reported, &lenient::parse(item), false);
                    self.item_done(index, item, out);
                }
            }
            "response.created" | "response.queued" | "response.in_progress" => {
                let response: Response<'_> = lenient::parse_optional(frame.response);
                self.begin_response(&response, out);
            }
            "response.completed" | "response.done" => {
                let response: Response<'_> = lenient::parse_optional(frame.response);
                let word = match &*response.status {
                    word @ ("incomplete" | "failed" | "cancelled") => word.to_owned(),
                    _ => "completed".to_owned(),
                };
                self.end_response(&response, &word, out);
            }
            "response.incomplete" => self.end_with_status(frame.response, "incomplete", out),
            "response.failed" => self.end_with_status(frame.response, "failed", out),
            "response.cancelled" => self.end_with_status(frame.response, "cancelled", out),
            "error" => self.fail(text, out),
            // The end of the text repeats the annotations.
            "response.output_text.annotation.added" | "keepalive" | "ping" => {}
            "" if &*frame.object == "response" => self.read_whole_response(text, out),
            "" if frame.error.is_some() => self.fail(text, out),
            "" => {
                return Err(Error::new(ErrorKind::NotAnEvent, "the frame has no `type`"));
            }
            _ => {
                self.call.begin(ModelCallInfo::default(), out);
                self.call.emit_unknown_frame(text, out);
            }
        }
        Ok(())
    }

    fn close_at_end(&mut self, out: &mut EventSink<'_>) {
        self.close_replaced_parts(out);
    }
}
