//! Writes the blocks of a reply as parts: text and thinking as they grow, everything else as a whole.

use super::part::{self, add_own_metadata, take_own_metadata};
use super::reply_writer::ReplyWriter;
use super::step::{StepItem, TextEnd, TextKind};
use crate::json::to_json;
use crate::provider::block_to_item;
use crate::stream::Frames;
use turnwire_core::event::{Hint, ReplyEnd};
use turnwire_core::{
    ContentBlock, DataBlock, Event, EventKind, Fields, HintBlock, Json, Msg, ToolCallState,
};

/// The id of the reply in which one data block is folded.
const DATA_REPLY_ID: &str = "data";

impl ReplyWriter {
    pub(super) fn text_start(&mut self, kind: TextKind, id: &str, out: &mut Frames) {
        self.begin_step(out);
        self.step.text_start(kind, id, out);
    }

    pub(super) fn text_delta(&mut self, kind: TextKind, id: &str, delta: &str, out: &mut Frames) {
        if !delta.is_empty() && self.ensure_text(kind, id, out) {
            self.step.text_delta(kind, id, delta, out);
        }
    }

    pub(super) fn text_end(
        &mut self,
        kind: TextKind,
        id: &str,
        end: TextEnd<'_>,
        out: &mut Frames,
    ) {
        if self.ensure_text(kind, id, out) {
            self.step.text_end(kind, id, end, out);
        }
    }

    /// Whether the current step has this text. One that was carried over starts there again.
    pub(super) fn ensure_text(&mut self, kind: TextKind, id: &str, out: &mut Frames) -> bool {
        if self.step.has_text(kind, id) {
            return true;
        }
        let is_carried = self.step.take_carried(kind, id);
        if is_carried {
            self.text_start(kind, id, out);
        }
        is_carried
    }

    pub(super) fn result_delta(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        if self.calls.has(id) {
            self.begin_response(out);
            self.calls.result_delta(id, event, out);
        }
    }

    /// Handles an event of a data block: a client takes a file only as a whole.
    pub(super) fn data_event(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        if matches!(event.kind, EventKind::DataBlockStart(_)) {
            let count = self.data_count;
            self.data_count += 1;
            self.data
                .entry(id.to_owned())
                .or_insert_with(|| (count, Msg::reply(DATA_REPLY_ID, "")));
        }
        let Some((_, msg)) = self.data.get_mut(id) else { return };
        let mut own = Event::new(DATA_REPLY_ID, event.kind.clone());
        own.created_at = (&*event.created_at).into();
        // Invalid events are ignored, as in the message.
        let _ = msg.append_event_tolerant(&own);
        if matches!(event.kind, EventKind::DataBlockEnd(_))
            && let Some((_, msg)) = self.data.remove(id)
        {
            self.write_file(&msg, out);
        }
    }

    pub(super) fn write_file(&mut self, msg: &Msg, out: &mut Frames) {
        if let Some(block) = msg.first::<DataBlock>() {
            self.write_part(&block.id, &file_chunk(block), out);
        }
    }

    /// Writes the data blocks that have no end.
    pub(super) fn flush_data(&mut self, out: &mut Frames) {
        let mut open: Vec<(usize, Msg)> = self.data.drain().map(|(_, block)| block).collect();
        open.sort_by_key(|(count, _)| *count);
        for (_, mut msg) in open {
            // The end of a reply ends its data.
            let _ = msg.append_event_tolerant(&Event::new(DATA_REPLY_ID, ReplyEnd::default()));
            self.write_file(&msg, out);
        }
    }

    pub(super) fn write_hint(&mut self, hint: &Hint, event: &Event<'_>, out: &mut Frames) {
        let block = HintBlock {
            id: hint.block_id.clone(),
            hint: hint.hint.clone(),
            source: hint.source.clone(),
            created_at: event.created_at.to_string(),
            finished_at: Some(event.created_at.to_string()),
            rest: Fields::default(),
        };
        let part = part::write_block(&block.into());
        self.write_part(&hint.block_id, &part, out);
    }

    pub(super) fn write_part(&mut self, id: &str, part: &Fields, out: &mut Frames) {
        self.begin_step(out);
        let chunk = to_json(part);
        out.push_text("", chunk.text());
        self.step.add(StepItem::Part(id.to_owned(), chunk.text().to_owned()));
    }

    /// Writes a block that arrives as a whole.
    pub(super) fn whole_block(&mut self, block: &ContentBlock, out: &mut Frames) {
        match block {
            ContentBlock::Text(text) => {
                self.whole_text(TextKind::Text, &text.id, &text.text, &text.rest, out);
            }
            ContentBlock::Thinking(text) => {
                self.whole_text(TextKind::Reasoning, &text.id, &text.thinking, &text.rest, out);
            }
            ContentBlock::Data(data) => self.write_part(&data.id, &file_chunk(data), out),
            ContentBlock::ToolCall(call) => {
                self.begin_step(out);
                let at = self.calls.add_whole_call(&call.id, &call.name, &call.input, None, out);
                self.step.add_call(at);
                match call.state {
                    ToolCallState::Asking => {
                        self.calls.request_approvals([call.id.as_str()].into_iter(), out);
                    }
                    ToolCallState::Submitted => self.calls.request_execution(&call.id, out),
                    ToolCallState::Pending
                    | ToolCallState::Allowed
                    | ToolCallState::Finished
                    | ToolCallState::Other(_) => {}
                }
            }
            ContentBlock::ToolResult(result) => {
                self.begin_step(out);
                let at = self.calls.add_whole_call(&result.id, &result.name, "", None, out);
                self.step.add_call(at);
                self.calls.execution_result(result, out);
            }
            ContentBlock::Other(fields) => {
                let part = match block_to_item(super::NAME, fields) {
                    Some(part) if is_chunk(&part) => part,
                    _ => part::block_part(fields),
                };
                self.write_part(block.id(), &part, out);
            }
            ContentBlock::Hint(_) => self.write_part(block.id(), &part::write_block(block), out),
        }
    }

    pub(super) fn whole_text(
        &mut self,
        kind: TextKind,
        id: &str,
        text: &str,
        extra: &Fields,
        out: &mut Frames,
    ) {
        // Blocks may have no id, but a part needs one.
        let own;
        let id = if id.is_empty() {
            self.generated_ids += 1;
            own = format!("{}-{}", self.id, self.generated_ids);
            &*own
        } else {
            id
        };
        self.text_start(kind, id, out);
        self.text_delta(kind, id, text, out);
        self.text_end(kind, id, TextEnd { replaced: None, extra }, out);
    }
}

/// A file. The chunk has no field for its name, so the metadata has it.
fn file_chunk(block: &DataBlock) -> Fields {
    let mut part = part::write_block(&block.clone().into());
    if let Some(name) = part.remove("filename") {
        let mut ours = take_own_metadata(&mut part, "providerMetadata");
        ours.insert("name", name);
        add_own_metadata(&mut part, "providerMetadata", &ours);
    }
    part
}

/// Whether a part that we keep can be sent as a chunk: both have the same fields, and a chunk
/// without a required field would end the client's stream.
fn is_chunk(part: &Fields) -> bool {
    let word: String = part.get("type").ok().flatten().unwrap_or_default();
    let is_text = |key: &str| part.raw(key).is_some_and(|json: &Json| json.text().starts_with('"'));
    let has = |needed: &[&str], optional: &[&str]| {
        needed.iter().all(|key| is_text(key))
            && optional.iter().all(|key| part.raw(key).is_none() || is_text(key))
            && part.raw("providerMetadata").is_none()
    };
    match word.as_str() {
        "source-url" => has(&["sourceId", "url"], &["title"]),
        "source-document" => has(&["sourceId", "mediaType", "title"], &["filename"]),
        word => word.starts_with("data-") && part.raw("data").is_some() && has(&[], &["id"]),
    }
}
