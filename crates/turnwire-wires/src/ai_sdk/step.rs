//! What the client has in the current step.
//!
//! As long as the model call of a step runs, what was sent in it is kept: the call may have to be
//! repeated after a crash, and then the step is written again without what is taken back. Of a long text
//! nothing is kept: it can be taken back, but what stands beside it cannot be while it stays.

use super::calls::Calls;
use super::chunk::{Chunk, own_metadata};
use super::subagents::Subagents;
use crate::stream::Frames;
use std::collections::{HashMap, HashSet};
use turnwire_core::Fields;

/// How many bytes of text are kept of a step.
const MAX_RECORDED_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TextKind {
    Text,
    Reasoning,
}

/// What is said at the end of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextEnd<'a> {
    /// The whole text, where it is not what was sent.
    pub replaced: Option<&'a str>,
    pub extra: &'a Fields,
}

#[derive(Debug)]
pub(super) enum StepItem {
    Text(TextState),
    Call(usize),
    /// A part that is one chunk, with the id of its block.
    Part(String, String),
    Subagent(String),
}

#[derive(Debug)]
pub(super) struct TextState {
    kind: TextKind,
    id: String,
    /// What was sent, as long as the step may be written again; `None` where it is too long for that.
    recorded: Option<String>,
    is_open: bool,
    extra: Fields,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Step {
    is_open: bool,
    /// Whether its start was said in this response.
    is_announced: bool,
    /// Whether it can no longer be written again, so that nothing is kept for that.
    is_settled: bool,
    /// Whether it has to be written again: something in it was taken back.
    needs_rewrite: bool,
    items: Vec<StepItem>,
    texts: HashMap<String, usize>,
    reasonings: HashMap<String, usize>,
    /// How many bytes of text are kept.
    recorded_bytes: usize,
    /// Texts that go on although their part had to be closed.
    carried: HashSet<(TextKind, String)>,
}

impl Step {
    /// Begins, if it has not; whether that has to be said.
    pub(super) fn begin(&mut self) -> bool {
        if self.is_open {
            return false;
        }
        (self.is_open, self.is_announced) = (true, true);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn needs_rewrite(&self) -> bool {
        self.needs_rewrite
    }

    pub(super) fn resume_recording(&mut self) {
        self.is_settled = false;
    }

    /// Says that it is over, if its start was said. It may still go on in another response.
    pub(super) fn finish(&mut self, out: &mut Frames) {
        if std::mem::take(&mut self.is_announced) {
            out.push("", &Chunk::FinishStep);
        }
    }

    /// Makes room for the next one.
    pub(super) fn clear(&mut self) {
        *self = Self { carried: std::mem::take(&mut self.carried), ..Self::default() };
    }

    pub(super) fn add(&mut self, mut item: StepItem) {
        if self.is_settled {
            item.drop_recording();
        }
        self.items.push(item);
    }

    pub(super) fn add_call(&mut self, at: Option<usize>) {
        self.items.extend(at.map(StepItem::Call));
    }

    fn text_ids(&mut self, kind: TextKind) -> &mut HashMap<String, usize> {
        match kind {
            TextKind::Text => &mut self.texts,
            TextKind::Reasoning => &mut self.reasonings,
        }
    }

    pub(super) fn has_text(&self, kind: TextKind, id: &str) -> bool {
        match kind {
            TextKind::Text => self.texts.contains_key(id),
            TextKind::Reasoning => self.reasonings.contains_key(id),
        }
    }

    /// Whether a text of an earlier step, or response, goes on.
    pub(super) fn take_carried(&mut self, kind: TextKind, id: &str) -> bool {
        !self.carried.is_empty() && self.carried.remove(&(kind, id.to_owned()))
    }

    pub(super) fn text_start(&mut self, kind: TextKind, id: &str, out: &mut Frames) {
        if self.has_text(kind, id) {
            return;
        }
        let at = self.items.len();
        self.text_ids(kind).insert(id.to_owned(), at);
        let text = TextState {
            kind,
            id: id.to_owned(),
            recorded: Some(String::new()),
            is_open: true,
            extra: Fields::default(),
        };
        text.write_start(out);
        self.items.push(StepItem::Text(text));
    }

    fn open_text(&mut self, kind: TextKind, id: &str) -> Option<&mut TextState> {
        let at = *self.text_ids(kind).get(id)?;
        match self.items.get_mut(at) {
            Some(StepItem::Text(text)) if text.is_open => Some(text),
            _ => None,
        }
    }

    pub(super) fn text_delta(&mut self, kind: TextKind, id: &str, delta: &str, out: &mut Frames) {
        let (keeps, kept) = (!self.is_settled, self.recorded_bytes);
        let Some(text) = self.open_text(kind, id) else { return };
        out.push("", &kind.delta(id, delta));
        if keeps && let Some(sent) = &mut text.recorded {
            let own = sent.len();
            if kept + delta.len() > MAX_RECORDED_BYTES {
                text.recorded = None;
                self.recorded_bytes -= own;
            } else {
                sent.push_str(delta);
                self.recorded_bytes += delta.len();
            }
        }
    }

    pub(super) fn text_end(
        &mut self,
        kind: TextKind,
        id: &str,
        end: TextEnd<'_>,
        out: &mut Frames,
    ) {
        let is_settled = self.is_settled;
        let Some(text) = self.open_text(kind, id) else { return };
        text.is_open = false;
        text.extra = without_own_fields(end.extra);
        let mut is_wrong = false;
        if let Some(replaced) = end.replaced {
            match &mut text.recorded {
                Some(sent) if !is_settled => {
                    is_wrong = sent != replaced;
                    replaced.clone_into(sent);
                }
                // The client cannot be made to forget what it has; it can be told.
                _ => text.extra.insert("replaced_by", replaced),
            }
        }
        text.write_end(out);
        self.needs_rewrite |= is_wrong;
    }

    /// Closes the texts that are open. They may go on as parts of their own.
    pub(super) fn close_texts(&mut self, out: &mut Frames) {
        for item in &mut self.items {
            let StepItem::Text(text) = item else { continue };
            if std::mem::take(&mut text.is_open) {
                text.write_end(out);
                match text.kind {
                    TextKind::Text => self.texts.remove(&text.id),
                    TextKind::Reasoning => self.reasonings.remove(&text.id),
                };
                self.carried.insert((text.kind, text.id.clone()));
            }
        }
    }

    /// Takes blocks out; whether there were any of them.
    pub(super) fn discard(&mut self, ids: &[String], calls: &Calls) -> bool {
        if self.is_settled {
            return false;
        }
        let before = self.items.len();
        let ids: HashSet<&str> = ids.iter().map(String::as_str).collect();
        self.items.retain(|item| match item {
            StepItem::Text(text) => !ids.contains(&*text.id),
            StepItem::Call(at) => !calls.id(*at).is_some_and(|id| ids.contains(id)),
            StepItem::Part(id, _) => !ids.contains(&**id),
            StepItem::Subagent(_) => true,
        });
        if self.items.len() == before {
            return false;
        }
        self.needs_rewrite = true;
        self.texts.clear();
        self.reasonings.clear();
        for (at, item) in self.items.iter().enumerate() {
            let StepItem::Text(text) = item else { continue };
            match text.kind {
                TextKind::Text => self.texts.insert(text.id.clone(), at),
                TextKind::Reasoning => self.reasonings.insert(text.id.clone(), at),
            };
        }
        true
    }

    /// Writes the step again, where something in it was taken back; at most once, since nothing is
    /// kept beyond this.
    pub(super) fn settle(&mut self, calls: &mut Calls, subagents: &Subagents, out: &mut Frames) {
        if std::mem::take(&mut self.needs_rewrite) && self.items.iter().all(StepItem::is_recorded) {
            out.push("", &Chunk::ResetStep);
            for item in &self.items {
                match item {
                    StepItem::Text(text) => text.rewrite(out),
                    StepItem::Call(at) => calls.rewrite_call(*at, out),
                    StepItem::Part(_, chunk) => out.push_text("", chunk),
                    StepItem::Subagent(id) => subagents.write_message(id, out),
                }
            }
        }
        self.is_settled = true;
        calls.settle_step();
        self.items.iter_mut().for_each(StepItem::drop_recording);
    }
}

impl StepItem {
    /// Whether it can be written again.
    fn is_recorded(&self) -> bool {
        !matches!(self, Self::Text(TextState { recorded: None, .. }))
    }

    /// Lets go of what is kept for writing it again.
    fn drop_recording(&mut self) {
        match self {
            Self::Text(text) => text.recorded = None,
            Self::Part(_, chunk) => *chunk = String::new(),
            Self::Call(_) | Self::Subagent(_) => {}
        }
    }
}

impl TextKind {
    fn delta<'a>(self, id: &'a str, delta: &'a str) -> Chunk<'a> {
        match self {
            Self::Text => Chunk::TextDelta { id, delta },
            Self::Reasoning => Chunk::ReasoningDelta { id, delta },
        }
    }
}

impl TextState {
    fn write_start(&self, out: &mut Frames) {
        let id = &self.id;
        match self.kind {
            TextKind::Text => out.push("", &Chunk::TextStart { id }),
            TextKind::Reasoning => out.push("", &Chunk::ReasoningStart { id }),
        }
    }

    fn write_end(&self, out: &mut Frames) {
        let (id, provider_metadata) = (&self.id, own_metadata(&self.extra));
        match self.kind {
            TextKind::Text => out.push("", &Chunk::TextEnd { id, provider_metadata }),
            TextKind::Reasoning => out.push("", &Chunk::ReasoningEnd { id, provider_metadata }),
        }
    }

    fn rewrite(&self, out: &mut Frames) {
        self.write_start(out);
        if let Some(sent) = self.recorded.as_ref().filter(|sent| !sent.is_empty()) {
            out.push("", &self.kind.delta(&self.id, sent));
        }
        if !self.is_open {
            self.write_end(out);
        }
    }
}

/// What a block may take over from what was said at its end.
pub(super) fn without_own_fields(extra: &Fields) -> Fields {
    let mut plain = extra.clone();
    for own in ["type", "id", "text", "thinking", "created_at", "finished_at", "name", "input"] {
        plain.remove(own);
    }
    plain
}
