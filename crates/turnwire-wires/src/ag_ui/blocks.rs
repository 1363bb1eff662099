//! Encodes blocks as AG-UI messages: text, thinking and tool calls with a start, deltas and an end;
//! data and every other block as an activity.

use super::client_messages::MessageKind;
use super::encode::Encoder;
use super::frame::{DISCARDED, Frame, MessageMetadata};
use super::turn_state::{OpenMessage, RunState, StreamedKind, hash_text};
use super::write_messages::block_activity;
use crate::stream::Frames;
use turnwire_core::event::{DataBlockStart, TextBlockEnd, ThinkingBlockEnd};
use turnwire_core::{ContentBlock, Event, Json, Msg, content_blocks};

impl Encoder {
    /// A text, thinking or tool call block starts.
    pub(super) fn block_start(
        &mut self,
        kind: StreamedKind,
        id: &str,
        name: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        if !self.turn.client_messages.has(kind.message_kind(), id) {
            self.open_new_message(kind, id, name, event, out);
        }
    }

    /// Opens the message of a block that may be unknown so far.
    fn open_new_message(
        &mut self,
        kind: StreamedKind,
        id: &str,
        name: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        let (message_kind, messages) = (kind.message_kind(), &mut self.turn.client_messages);
        if !messages.has(message_kind, id) {
            let is_subagent = event.is_from_sub_agent();
            messages.add_block(message_kind, id, id, &event.reply_id, is_subagent);
        }
        if kind == StreamedKind::Call {
            self.turn.remember_call(id, name, &event.reply_id);
        }
        self.open_message(kind, id, event, out);
    }

    /// Opens the message of a block, with the id that the client knows.
    pub(super) fn open_message(
        &mut self,
        kind: StreamedKind,
        id: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        let known = self.turn.client_messages.id_of(kind.message_kind(), id).unwrap_or(id);
        let open = OpenMessage {
            order: self.turn.opened,
            id: (known != id).then(|| known.to_owned()),
            reply: event.reply_id.to_string(),
            is_subagent: event.is_from_sub_agent(),
            sent: false,
        };
        self.turn.opened += 1;
        self.write_start(kind, id, &open, out);
        self.turn.open_messages(kind).insert(id.to_owned(), open);
    }

    pub(super) fn write_start(
        &self,
        kind: StreamedKind,
        id: &str,
        open: &OpenMessage,
        out: &mut Frames,
    ) {
        let message_id = open.id.as_deref().unwrap_or(id);
        let subagent_run_id = open.is_subagent.then_some(&*open.reply);
        let metadata = MessageMetadata::new(&open.reply);
        match kind {
            StreamedKind::Text => {
                let name = self.turn.name_of(&open.reply);
                let role = "assistant";
                let frame =
                    Frame::TextMessageStart { message_id, role, name, subagent_run_id, metadata };
                out.push("", &frame);
            }
            StreamedKind::Thinking => {
                out.push("", &Frame::ReasoningStart { message_id, subagent_run_id });
                let role = "reasoning";
                let frame =
                    Frame::ReasoningMessageStart { message_id, role, subagent_run_id, metadata };
                out.push("", &frame);
            }
            StreamedKind::Call => {
                let tool_call_name = self.turn.calls.get(id).map_or("", |call| &call.name);
                let frame = Frame::ToolCallStart {
                    tool_call_id: id,
                    tool_call_name,
                    parent_message_id: open.id.as_deref(),
                    subagent_run_id,
                    metadata,
                };
                out.push("", &frame);
            }
        }
    }

    pub(super) fn block_delta(
        &mut self,
        kind: StreamedKind,
        id: &str,
        delta: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        if delta.is_empty() {
            return;
        }
        if self.run != RunState::Open || !self.turn.open_messages(kind).contains_key(id) {
            // It was closed with the previous run, or its start is missing.
            if self.turn.client_messages.is_discarded(kind.message_kind(), id) {
                return;
            }
            self.open_run(event, out);
            self.open_new_message(kind, id, "", event, out);
        }
        if kind == StreamedKind::Call
            && let Some(call) = self.turn.calls.get_mut(id)
        {
            call.input_hash = hash_text(call.input_hash, delta);
        }
        let Some(open) = self.turn.open_messages(kind).get_mut(id) else { return };
        if !open.sent {
            open.sent = true;
            self.turn.client_messages.mark_filled(kind.message_kind(), id);
        }
        let Some(open) = self.turn.open_messages(kind).get(id) else { return };
        let message_id = open.id.as_deref().unwrap_or(id);
        match kind {
            StreamedKind::Text => out.push("", &Frame::TextMessageContent { message_id, delta }),
            StreamedKind::Thinking => {
                out.push("", &Frame::ReasoningMessageContent { message_id, delta });
            }
            StreamedKind::Call => out.push("", &Frame::ToolCallArgs { tool_call_id: id, delta }),
        }
    }

    /// Closes a block's message, if it is open.
    pub(super) fn close_message(&mut self, kind: StreamedKind, id: &str, out: &mut Frames) {
        if let Some(open) = self.turn.open_messages(kind).remove(id) {
            write_end(kind, id, &open, out);
        }
    }

    pub(super) fn text_end(&mut self, end: &TextBlockEnd<'_>, event: &Event<'_>, out: &mut Frames) {
        let id = &*end.block_id;
        let Some(text) = end.text.as_deref() else {
            return self.close_message(StreamedKind::Text, id, out);
        };
        let sent = self.turn.client_messages.is_filled(MessageKind::Text, id);
        self.close_message(StreamedKind::Text, id, out);
        if self.turn.client_messages.id_of(MessageKind::Text, id).is_none() {
            return;
        }
        // A client cannot remove a message, only replace it.
        if sent {
            self.replace_message(MessageKind::Text, id, event, out);
        }
        self.open_message(StreamedKind::Text, id, event, out);
        if !text.is_empty() {
            self.block_delta(StreamedKind::Text, id, text, event, out);
        }
        self.close_message(StreamedKind::Text, id, out);
    }

    /// Discards a block's message, and gives the block a new id for its replacement.
    pub(super) fn replace_message(
        &mut self,
        message_kind: MessageKind,
        id: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        let known = self.turn.client_messages.id_of(message_kind, id).unwrap_or(id).to_owned();
        self.discard_message(message_kind, id, &known, event, out);
        let (next, sub) = (format!("{known}-2"), event.is_from_sub_agent());
        self.turn.client_messages.add_block(message_kind, id, &next, &event.reply_id, sub);
    }

    /// Discards a block's message.
    pub(super) fn discard_message(
        &mut self,
        message_kind: MessageKind,
        block: &str,
        id: &str,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        self.turn.client_messages.discard(message_kind, block);
        let frame = Frame::ActivitySnapshot {
            message_id: id,
            activity_type: DISCARDED,
            content: Json::from(serde_json::Map::new()),
            replace: true,
            subagent_run_id: event.is_from_sub_agent().then_some(&*event.reply_id),
            metadata: MessageMetadata::new(&event.reply_id),
        };
        out.push("", &frame);
    }

    pub(super) fn thinking_end(&mut self, end: &ThinkingBlockEnd<'_>, out: &mut Frames) {
        let id = &*end.block_id;
        let known = self.turn.client_messages.id_of(MessageKind::Thinking, id);
        if let (Some(entity_id), Ok(Some(signature))) =
            (known, end.extra.get::<String>("signature"))
        {
            let (subtype, encrypted_value) = ("message", &*signature);
            let frame = Frame::ReasoningEncryptedValue { subtype, entity_id, encrypted_value };
            out.push("", &frame);
        }
        self.close_message(StreamedKind::Thinking, id, out);
    }

    pub(super) fn data_start(
        &mut self,
        start: &DataBlockStart<'_>,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        let id = &*start.block_id;
        if self.turn.client_messages.has(MessageKind::Activity, id) {
            return;
        }
        let mut block = Msg::reply(event.reply_id.to_string(), "");
        block.append_event_tolerant(event);
        let sub = event.is_from_sub_agent();
        self.turn.client_messages.add_block(MessageKind::Activity, id, id, &event.reply_id, sub);
        self.turn.data.insert(id.to_owned(), (sub, block));
        // It gets its position in the list now, and its content when it is complete.
        self.write_data(id, out);
    }

    /// A data block ends, complete or not.
    pub(super) fn data_end(&mut self, id: &str, event: &Event<'_>, out: &mut Frames) {
        if let Some((_, block)) = self.turn.data.get_mut(id) {
            block.append_event_tolerant(event);
        }
        self.write_data(id, out);
        self.turn.data.remove(id);
    }

    pub(super) fn write_data(&self, id: &str, out: &mut Frames) {
        if let Some((sub, msg)) = self.turn.data.get(id)
            && let Some(block) = msg.content().first()
        {
            let id = self.turn.client_messages.id_of(MessageKind::Activity, id).unwrap_or(id);
            write_activity(id, block, msg.id(), *sub, out);
        }
    }

    /// A block that arrives as a whole.
    pub(super) fn whole_block(
        &mut self,
        block: &ContentBlock,
        event: &Event<'_>,
        out: &mut Frames,
    ) {
        if let ContentBlock::ToolResult(result) = block {
            return self.whole_result(result, event, out);
        }
        let id = self.turn.reply_state(event).block_ids.id_for(block, &event.reply_id);
        if self.turn.client_messages.has(MessageKind::from_block(block), &id) {
            return;
        }
        let (kind, name, text) = match block {
            ContentBlock::Text(block) => (StreamedKind::Text, "", &block.text),
            ContentBlock::Thinking(block) => (StreamedKind::Thinking, "", &block.thinking),
            ContentBlock::ToolCall(call) => (StreamedKind::Call, &*call.name, &call.input),
            content_blocks!(Data Hint ToolResult Other) => {
                let (kind, sub) = (MessageKind::Activity, event.is_from_sub_agent());
                let messages = &mut self.turn.client_messages;
                messages.add_block(kind, &id, &id, &event.reply_id, sub);
                let known = messages.id_of(kind, &id).unwrap_or(&id);
                return write_activity(known, block, &event.reply_id, sub, out);
            }
        };
        self.block_start(kind, &id, name, event, out);
        self.block_delta(kind, &id, text, event, out);
        if let ContentBlock::Thinking(block) = block {
            let (block_id, extra) = (id.as_str().into(), block.rest.clone());
            return self.thinking_end(&ThinkingBlockEnd { block_id, extra }, out);
        }
        self.close_message(kind, &id, out);
    }
}

/// Closes the message of a block.
pub(super) fn write_end(kind: StreamedKind, id: &str, open: &OpenMessage, out: &mut Frames) {
    let message_id = open.id.as_deref().unwrap_or(id);
    match kind {
        StreamedKind::Text => out.push("", &Frame::TextMessageEnd { message_id }),
        StreamedKind::Thinking => {
            out.push("", &Frame::ReasoningMessageEnd { message_id });
            out.push("", &Frame::ReasoningEnd { message_id });
        }
        StreamedKind::Call => out.push("", &Frame::ToolCallEnd { tool_call_id: id }),
    }
}

fn write_activity(id: &str, block: &ContentBlock, reply: &str, sub: bool, out: &mut Frames) {
    let (word, content) = block_activity(block);
    let frame = Frame::ActivitySnapshot {
        message_id: id,
        activity_type: &word,
        content,
        replace: true,
        subagent_run_id: sub.then_some(reply),
        metadata: MessageMetadata::new(reply),
    };
    out.push("", &frame);
}
