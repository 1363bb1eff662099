//! Renders events for a pipe: the text of the reply for standard output, notes for standard error.

use super::render::{FileSaver, agent_depth, describe_reply_end, find_data_block, tool_label};
use turnwire_core::{DataBlock, Event, EventKind, Folder, ToolCall, event_kinds};

/// The output of one event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PlainOutput {
    /// For standard output.
    pub(crate) text: String,
    /// Lines for standard error.
    pub(crate) notes: Vec<String>,
}

/// Renders events without styles.
pub(crate) struct PlainRenderer {
    saver: Box<dyn FileSaver + Send>,
    folder: Folder,
    /// The last output ended a line, or there was none.
    is_fresh: bool,
    /// There was text before this block.
    has_text: bool,
    /// The current block.
    current: String,
}

impl PlainRenderer {
    pub(crate) fn new(saver: Box<dyn FileSaver + Send>) -> Self {
        Self {
            saver,
            folder: Folder::default(),
            is_fresh: true,
            has_text: false,
            current: String::new(),
        }
    }

    pub(crate) fn render_event(&mut self, event: &Event<'_>) -> PlainOutput {
        let mut out = PlainOutput::default();
        let _ = self.folder.push_tolerant(event);
        let is_own = agent_depth(event.agent.as_deref()) == 0;
        match &event.kind {
            EventKind::TextBlockDelta(delta) if is_own => {
                if self.current != delta.block_id {
                    self.current = delta.block_id.to_string();
                    if self.has_text {
                        self.end_line(&mut out);
                        out.text.push('\n');
                    }
                }
                out.text.push_str(&delta.delta);
                self.has_text |= !delta.delta.is_empty();
                self.is_fresh =
                    delta.delta.ends_with('\n') || (self.is_fresh && delta.delta.is_empty());
            }
            EventKind::ToolCallEnd(end) => {
                let msg = self.folder.get(&event.reply_id);
                let call = msg.and_then(|msg| {
                    msg.blocks::<ToolCall>().find(|call| call.id == end.tool_call_id)
                });
                if let Some(call) = call {
                    out.notes.push(format!("tool {} {}", tool_label(call), call.input));
                }
            }
            EventKind::ToolResultEnd(end) => {
                out.notes.push(format!("tool ended: {}", end.state));
            }
            EventKind::DataBlockEnd(end) => {
                let data = find_data_block(&self.folder, &event.reply_id, &end.block_id);
                out.notes.extend(data.map(|data| self.save_data(&data)));
            }
            EventKind::ReplyEnd(end) => {
                if is_own {
                    self.end_line(&mut out);
                    self.folder = Folder::default();
                }
                out.notes.extend(describe_reply_end(end).map(|(_, text)| text));
            }
            EventKind::Reset(reset) => {
                out.notes.push(format!("session reset: {}", reset.reason));
            }
            event_kinds!(
                ReplyStart DataBlockStart DataBlockDelta Hint Block ToolCallStart ToolCallDelta
                ToolResultStart ToolResultTextDelta ToolResultDataDelta Custom Message Supersede
                Unknown model_call text thinking pending_call notice
            ) => {}
        }
        out
    }

    fn end_line(&mut self, out: &mut PlainOutput) {
        if !std::mem::replace(&mut self.is_fresh, true) {
            out.text.push('\n');
        }
    }

    fn save_data(&mut self, data: &DataBlock) -> String {
        let media_type = data.media_type().unwrap_or("application/octet-stream");
        match data.decoded() {
            Some(Ok(bytes)) => match self.saver.save(data.name.as_deref(), media_type, &bytes) {
                Ok(path) => format!("saved {path} ({media_type})"),
                Err(error) => format!("{media_type}: cannot be saved: {error}"),
            },
            Some(Err(error)) => format!("{media_type}: invalid data: {error}"),
            None => format!("{media_type}: external"),
        }
    }
}
