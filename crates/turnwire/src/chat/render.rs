//! Renders events as terminal text. Pure: it reads no terminal and no clock.

mod reply_end;
mod tool_calls;
mod tool_input;

use super::markdown::Markdown;
use super::page::{DisplayOptions, Page, Style};
pub(crate) use reply_end::describe_reply_end;
use std::collections::{HashMap, HashSet};
use std::io;
use tool_calls::ToolCallState;
pub(crate) use tool_calls::tool_label;
use turnwire_core::event::{SubAgent, TokenCounts};
use turnwire_core::{
    ContentBlock, DataBlock, Event, EventKind, Folder, Role, Source, content_blocks, event_kinds,
};

/// Saves images and other files of a reply.
pub(crate) trait FileSaver {
    /// Saves bytes, and returns the path.
    fn save(&mut self, name: Option<&str>, media_type: &str, bytes: &[u8]) -> io::Result<String>;
}

/// Renders events.
pub(crate) struct Renderer {
    page: Page,
    saver: Box<dyn FileSaver + Send>,
    /// The folded reply, for complete blocks.
    folder: Folder,
    texts: HashMap<String, Markdown>,
    /// The current block.
    current: Option<String>,
    calls: ToolCallState,
    /// Messages that the user typed, and sees already.
    typed: HashSet<String>,
    /// Sub-agents whose replies have started.
    started: HashSet<String>,
    usage: TokenCounts,
    status: Option<String>,
}

const THINKING: Style = Style { dim: true, italic: true, ..Style::PLAIN };

impl Renderer {
    pub(crate) fn new(display: DisplayOptions, saver: Box<dyn FileSaver + Send>) -> Self {
        Self {
            page: Page::new(display),
            saver,
            folder: Folder::default(),
            texts: HashMap::new(),
            current: None,
            calls: ToolCallState::default(),
            typed: HashSet::new(),
            started: HashSet::new(),
            usage: TokenCounts::default(),
            status: None,
        }
    }

    /// Hides a message that the user has just typed.
    pub(crate) fn hide_typed_message(&mut self, message_id: &str) {
        self.typed.insert(message_id.to_owned());
    }

    /// The spinner's text while there is no output; `None`: no spinner.
    pub(crate) fn status(&self) -> Option<&str> {
        self.status.as_deref().filter(|_| self.page.is_at_start())
    }

    pub(crate) fn resize(&mut self, width: usize) {
        self.page.resize(width);
    }

    /// Renders a line that is not an event, such as a lost connection.
    pub(crate) fn render_note(&mut self, style: Style, text: &str) -> String {
        self.page.set_margin("");
        self.page.start_row();
        self.page.set_hanging_indent(2);
        self.page.write_text(style, text);
        self.page.end_row();
        self.page.take_output()
    }

    /// Renders a note in one line: the terminal breaks it where it ends, and copies it as one line.
    pub(crate) fn render_command(&mut self, text: &str) -> String {
        self.page.set_margin("");
        self.page.start_row();
        self.page.write_unbroken(Style::DIM, text);
        self.page.end_row();
        self.page.take_output()
    }

    /// Ends the current block before a prompt.
    pub(crate) fn finish_block(&mut self) -> String {
        self.status = None;
        self.end_current_block();
        self.page.set_margin("");
        self.page.start_row();
        self.page.mark_row_written();
        self.page.take_output()
    }

    /// The same, followed by an empty row.
    pub(crate) fn finish_block_with_gap(&mut self) -> String {
        self.status = None;
        self.end_current_block();
        self.page.set_margin("");
        self.page.ensure_blank_row();
        self.page.mark_row_written();
        self.page.take_output()
    }

    /// The output of one event.
    pub(crate) fn render_event(&mut self, event: &Event<'_>) -> String {
        if let EventKind::Reset(reset) = &event.kind {
            self.reset();
            return self.render_note(Style::YELLOW, &format!("↻ session reset: {}", reset.reason));
        }
        // An event that does not fit is rendered as it came.
        let _ = self.folder.push_tolerant(event);
        self.page.set_margin(&"│ ".repeat(agent_depth(event.agent.as_deref())));
        self.show_event(event);
        self.page.take_output()
    }

    fn reset(&mut self) {
        self.folder = Folder::default();
        self.texts.clear();
        self.current = None;
        self.calls = ToolCallState::default();
        self.started.clear();
        self.usage = TokenCounts::default();
        self.status = None;
    }

    fn show_event(&mut self, event: &Event<'_>) {
        match &event.kind {
            EventKind::ReplyStart(start) => {
                // A continued reply starts again.
                if event.is_from_sub_agent() && self.started.insert(event.reply_id.to_string()) {
                    self.end_current_block();
                    self.page.write_row(Style::DIM, &format!("┌ {}", start.name));
                }
                self.status = Some("thinking".to_owned());
            }
            EventKind::ModelCallStart(_) => self.status = Some("thinking".to_owned()),
            EventKind::ModelCallEnd(end) => {
                let add = |sum: &mut i64, count: i64| *sum = sum.saturating_add(count);
                add(&mut self.usage.input_tokens, end.usage.input_tokens);
                add(&mut self.usage.output_tokens, end.usage.output_tokens);
                add(&mut self.usage.cache_input_tokens, end.usage.cache_input_tokens);
                if !end.discard.is_empty() {
                    self.end_current_block();
                    self.page
                        .write_row(Style::YELLOW, "↻ the model's response was cut off; retrying");
                }
            }
            EventKind::TextBlockStart(start) => self.start_text_block(&start.block_id),
            EventKind::TextBlockDelta(delta) => {
                self.start_text_block(&delta.block_id);
                let text = self.texts.entry(delta.block_id.to_string()).or_default();
                text.feed(&delta.delta, &mut self.page);
            }
            EventKind::TextBlockEnd(end) => {
                self.start_text_block(&end.block_id);
                self.end_current_block();
                if end.text.is_some() {
                    self.page.write_row(Style::DIM, "(truncated here)");
                }
            }
            EventKind::ThinkingBlockStart(start) => self.show_thinking(&start.block_id, ""),
            EventKind::ThinkingBlockDelta(delta) => {
                self.show_thinking(&delta.block_id, &delta.delta);
            }
            EventKind::ThinkingBlockEnd(_) => self.end_current_block(),
            EventKind::DataBlockStart(_) => {
                self.end_current_block();
                self.status = Some("receiving a file".to_owned());
            }
            EventKind::DataBlockEnd(end) => self.show_data_block(&event.reply_id, &end.block_id),
            EventKind::Hint(hint) => {
                let source = hint.source.as_deref().unwrap_or("hint");
                let text = hint.hint.text("\n");
                self.show_note(Style::DIM, &format!("» {source}: {text}"));
            }
            EventKind::Block(block) => match &*block.block {
                ContentBlock::Data(data) => self.save_and_show_data(data),
                content_blocks!(Text Thinking Hint ToolCall ToolResult Other) => {
                    let what = block.block.block_type().as_str();
                    self.show_note(Style::DIM, &format!("» block of type {what}"));
                }
            },
            EventKind::Message(message) => {
                let msg = &message.message;
                if msg.role() == Role::User && !self.typed.remove(msg.id()) {
                    self.end_current_block();
                    self.page.ensure_blank_row();
                    self.page.write_verbatim(Style::BOLD, "› ");
                    self.page.set_hanging_indent(2);
                    self.page.write_text(Style::BOLD, &msg.text("\n").unwrap_or_default());
                    self.page.ensure_blank_row();
                    for data in msg.blocks::<DataBlock>() {
                        self.save_and_show_data(data);
                    }
                }
            }
            EventKind::Supersede(_) => self.show_note(Style::DIM, "↻ retried"),
            EventKind::ExceedMaxIters(_) => {
                self.show_note(Style::YELLOW, "! iteration limit reached");
            }
            EventKind::RequestStop(stop) => {
                let reason = stop.reason.as_deref().unwrap_or("stop requested");
                self.show_note(Style::YELLOW, &format!("■ {reason}"));
            }
            EventKind::ReplyEnd(end) => self.show_reply_end(event, end),
            event_kinds!(AllToolsDenied tool pending_call) => self.show_tool_event(event),
            // A stop is shown with the end of the reply; the rest has nothing to show.
            event_kinds!(DataBlockDelta SubagentExposed UserInterrupt Custom Reset Unknown) => {}
        }
    }

    /// Starts a text block as a new paragraph.
    fn start_text_block(&mut self, block_id: &str) {
        if self.current.as_deref() == Some(block_id) {
            return;
        }
        self.end_current_block();
        self.page.ensure_blank_row();
        self.current = Some(block_id.to_owned());
        self.status = Some("writing".to_owned());
    }

    /// Ends the current block.
    fn end_current_block(&mut self) {
        if let Some(mut text) = self.current.take().and_then(|block| self.texts.remove(&block)) {
            text.finish(&mut self.page);
        }
        self.page.start_row();
    }

    fn show_thinking(&mut self, block_id: &str, text: &str) {
        if self.current.as_deref() != Some(block_id) {
            self.end_current_block();
            self.page.ensure_blank_row();
            self.page.write_verbatim(Style::DIM, "✻ ");
            self.current = Some(block_id.to_owned());
            self.status = Some("thinking".to_owned());
        }
        self.page.set_hanging_indent(2);
        self.page.write_text(THINKING, text);
    }

    /// A note outside the reply's text.
    fn show_note(&mut self, style: Style, text: &str) {
        self.end_current_block();
        self.page.ensure_blank_row();
        self.page.set_hanging_indent(2);
        self.page.write_text(style, text);
        self.page.end_row();
    }

    fn show_data_block(&mut self, reply_id: &str, block_id: &str) {
        if let Some(data) = find_data_block(&self.folder, reply_id, block_id) {
            self.save_and_show_data(&data);
        }
    }

    /// Saves a file, and shows its path.
    fn save_and_show_data(&mut self, data: &DataBlock) {
        self.end_current_block();
        let media_type = data.media_type().unwrap_or("application/octet-stream");
        let name = data.name.as_deref();
        let text = match (&data.source, data.decoded()) {
            (Source::Url(source), _) => format!("{media_type} at {}", source.url),
            (_, Some(Ok(bytes))) => match self.saver.save(name, media_type, &bytes) {
                Ok(path) => {
                    format!(
                        "saved {path} ({media_type}, {})",
                        indicatif::HumanBytes(bytes.len() as u64)
                    )
                }
                Err(error) => format!("{media_type}: cannot be saved: {error}"),
            },
            (_, Some(Err(error))) => format!("{media_type}: invalid data: {error}"),
            (_, None) => media_type.to_owned(),
        };
        self.page.ensure_blank_row();
        self.page.set_hanging_indent(2);
        self.page.write_text(Style::GREEN, &format!("▣ {text}"));
        self.page.end_row();
    }
}

/// A complete data block.
pub(crate) fn find_data_block(
    folder: &Folder,
    reply_id: &str,
    block_id: &str,
) -> Option<DataBlock> {
    let msg = folder.get(reply_id)?;
    msg.blocks::<DataBlock>().find(|block| block.id == block_id).cloned()
}

/// Nesting depth below the session's agent.
pub(crate) fn agent_depth(agent: Option<&SubAgent>) -> usize {
    let Some(agent) = agent else { return 0 };
    let path = agent.agent_path.as_deref().unwrap_or_default();
    path.matches('/').count().max(usize::from(agent.parent_tool_call_id.is_some())).min(8)
}

#[cfg(test)]
mod tests;
