//! Events in, what a terminal shows out. It knows no terminal and no clock.

mod calls;
mod ends;
mod inputs;

use super::markdown::Markdown;
use super::page::{Look, Page, Style};
use calls::Calls;
pub(crate) use calls::called;
pub(crate) use ends::ended;
use std::collections::{HashMap, HashSet};
use std::io;
use turnwire_core::event::{SubAgent, TokenCounts};
use turnwire_core::{ContentBlock, DataBlock, Event, EventKind, Folder, Role, Source};

/// Where pictures and other files of an answer go.
pub(crate) trait Keep {
    /// Keeps bytes, and says where.
    fn keep(&mut self, name: Option<&str>, media_type: &str, bytes: &[u8]) -> io::Result<String>;
}

/// Shows events.
pub(crate) struct Renderer {
    page: Page,
    keep: Box<dyn Keep + Send>,
    /// What has been said since the session's own reply began: it has the blocks whole.
    folder: Folder,
    texts: HashMap<String, Markdown>,
    /// The block that is being written.
    current: Option<String>,
    calls: Calls,
    /// Messages that stand on the screen already, because they were typed there.
    typed: HashSet<String>,
    /// Sub-agents whose replies have begun.
    started: HashSet<String>,
    usage: TokenCounts,
    status: Option<String>,
}

const THINKING: Style = Style { dim: true, italic: true, ..Style::PLAIN };

impl Renderer {
    pub(crate) fn new(look: Look, keep: Box<dyn Keep + Send>) -> Self {
        Self {
            page: Page::new(look),
            keep,
            folder: Folder::default(),
            texts: HashMap::new(),
            current: None,
            calls: Calls::default(),
            typed: HashSet::new(),
            started: HashSet::new(),
            usage: TokenCounts::default(),
            status: None,
        }
    }

    /// Does not show a message that the person has just typed.
    pub(crate) fn typed(&mut self, message_id: &str) {
        self.typed.insert(message_id.to_owned());
    }

    /// What is being done while nothing is to be seen, for a spinner. `None`: nothing.
    pub(crate) fn status(&self) -> Option<&str> {
        self.status.as_deref().filter(|_| self.page.is_at_start())
    }

    pub(crate) fn resize(&mut self, width: usize) {
        self.page.resize(width);
    }

    /// A line that is no event, such as a lost connection.
    pub(crate) fn note(&mut self, style: Style, text: &str) -> String {
        self.page.margin("");
        self.page.fresh();
        self.page.hang(2);
        self.page.text(style, text);
        self.page.end_row();
        self.page.take()
    }

    /// Ends what stands open, so that somebody can be asked.
    pub(crate) fn settle(&mut self) -> String {
        self.status = None;
        self.leave();
        self.page.margin("");
        self.page.fresh();
        self.page.was_written_to();
        self.page.take()
    }

    /// The same, with an empty row before what comes.
    pub(crate) fn part(&mut self) -> String {
        self.status = None;
        self.leave();
        self.page.margin("");
        self.page.gap();
        self.page.was_written_to();
        self.page.take()
    }

    /// What an event adds.
    pub(crate) fn push(&mut self, event: &Event<'_>) -> String {
        if let EventKind::Reset(reset) = &event.kind {
            self.forget();
            return self.note(Style::YELLOW, &format!("↻ from the start: {}", reset.reason));
        }
        // What does not fit is not shown otherwise than it came.
        let _ = self.folder.push_tolerant(event);
        self.page.margin(&"│ ".repeat(depth(event.agent.as_deref())));
        self.show(event);
        self.page.take()
    }

    fn forget(&mut self) {
        self.folder = Folder::default();
        self.texts.clear();
        self.current = None;
        self.calls = Calls::default();
        self.started.clear();
        self.usage = TokenCounts::default();
        self.status = None;
    }

    fn show(&mut self, event: &Event<'_>) {
        match &event.kind {
            EventKind::ReplyStart(start) => {
                // A reply that goes on says again that it starts.
                if event.is_from_sub_agent() && self.started.insert(event.reply_id.to_string()) {
                    self.leave();
                    self.page.row(Style::DIM, &format!("┌ {}", start.name));
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
                    self.leave();
                    self.page.row(Style::YELLOW, "↻ the model was cut off and is asked again");
                }
            }
            EventKind::TextBlockStart(start) => self.enter(&start.block_id),
            EventKind::TextBlockDelta(delta) => {
                self.enter(&delta.block_id);
                let text = self.texts.entry(delta.block_id.to_string()).or_default();
                text.feed(&delta.delta, &mut self.page);
            }
            EventKind::TextBlockEnd(end) => {
                self.enter(&end.block_id);
                self.leave();
                if end.text.is_some() {
                    self.page.row(Style::DIM, "(cut short here)");
                }
            }
            EventKind::ThinkingBlockStart(start) => self.think(&start.block_id, ""),
            EventKind::ThinkingBlockDelta(delta) => self.think(&delta.block_id, &delta.delta),
            EventKind::ThinkingBlockEnd(_) => self.leave(),
            EventKind::DataBlockStart(_) => {
                self.leave();
                self.status = Some("receiving a file".to_owned());
            }
            EventKind::DataBlockDelta(_) => {}
            EventKind::DataBlockEnd(end) => self.data_end(&event.reply_id, &end.block_id),
            EventKind::Hint(hint) => {
                let source = hint.source.as_deref().unwrap_or("hint");
                let text = hint.hint.text("\n");
                self.aside(Style::DIM, &format!("» {source}: {text}"));
            }
            EventKind::Block(block) => {
                if let ContentBlock::Data(data) = &*block.block {
                    self.data(data);
                } else {
                    let what = block.block.block_type().as_str();
                    self.aside(Style::DIM, &format!("» a block of the kind {what}"));
                }
            }
            EventKind::Message(message) => {
                let msg = &message.message;
                if msg.role() == Role::User && !self.typed.remove(msg.id()) {
                    self.leave();
                    self.page.gap();
                    self.page.verbatim(Style::BOLD, "› ");
                    self.page.hang(2);
                    self.page.text(Style::BOLD, &msg.text("\n").unwrap_or_default());
                    self.page.gap();
                    for data in msg.blocks::<DataBlock>() {
                        self.data(data);
                    }
                }
            }
            EventKind::Supersede(_) => self.aside(Style::DIM, "↻ answered again"),
            EventKind::ExceedMaxIters(_) => {
                self.aside(Style::YELLOW, "! it has gone round as often as it may");
            }
            EventKind::RequestStop(stop) => {
                let reason = stop.reason.as_deref().unwrap_or("it was asked to stop early");
                self.aside(Style::YELLOW, &format!("■ {reason}"));
            }
            EventKind::ReplyEnd(end) => self.reply_end(event, end),
            _ => self.show_call(event),
        }
    }

    /// Goes to a text, which begins a paragraph.
    fn enter(&mut self, block_id: &str) {
        if self.current.as_deref() == Some(block_id) {
            return;
        }
        self.leave();
        self.page.gap();
        self.current = Some(block_id.to_owned());
        self.status = Some("writing".to_owned());
    }

    /// Ends the block that is being written.
    fn leave(&mut self) {
        if let Some(mut text) = self.current.take().and_then(|block| self.texts.remove(&block)) {
            text.end(&mut self.page);
        }
        self.page.fresh();
    }

    fn think(&mut self, block_id: &str, text: &str) {
        if self.current.as_deref() != Some(block_id) {
            self.leave();
            self.page.gap();
            self.page.verbatim(Style::DIM, "✻ ");
            self.current = Some(block_id.to_owned());
            self.status = Some("thinking".to_owned());
        }
        self.page.hang(2);
        self.page.text(THINKING, text);
    }

    /// Something beside the answer.
    fn aside(&mut self, style: Style, text: &str) {
        self.leave();
        self.page.gap();
        self.page.hang(2);
        self.page.text(style, text);
        self.page.end_row();
    }

    fn data_end(&mut self, reply_id: &str, block_id: &str) {
        if let Some(data) = data_block(&self.folder, reply_id, block_id) {
            self.data(&data);
        }
    }

    /// Says where a file is, after it was kept.
    fn data(&mut self, data: &DataBlock) {
        self.leave();
        let media_type = data.media_type().unwrap_or("application/octet-stream");
        let name = data.name.as_deref();
        let text = match (&data.source, data.decoded()) {
            (Source::Url(source), _) => format!("{media_type} at {}", source.url),
            (_, Some(Ok(bytes))) => match self.keep.keep(name, media_type, &bytes) {
                Ok(path) => {
                    format!(
                        "saved {path} ({media_type}, {})",
                        indicatif::HumanBytes(bytes.len() as u64)
                    )
                }
                Err(error) => format!("{media_type}, which cannot be saved: {error}"),
            },
            (_, Some(Err(error))) => format!("{media_type}, which is damaged: {error}"),
            (_, None) => media_type.to_owned(),
        };
        self.page.gap();
        self.page.hang(2);
        self.page.text(Style::GREEN, &format!("▣ {text}"));
        self.page.end_row();
    }
}

/// A data block that has come whole.
pub(crate) fn data_block(folder: &Folder, reply_id: &str, block_id: &str) -> Option<DataBlock> {
    let msg = folder.get(reply_id)?;
    msg.blocks::<DataBlock>().find(|block| block.id == block_id).cloned()
}

/// How far below the session's own agent.
pub(crate) fn depth(agent: Option<&SubAgent>) -> usize {
    let Some(agent) = agent else { return 0 };
    let path = agent.agent_path.as_deref().unwrap_or_default();
    path.matches('/').count().max(usize::from(agent.parent_tool_call_id.is_some())).min(8)
}

#[cfg(test)]
mod tests;
