//! What the client has of the current step.
//!
//! While the model call of a step runs, its chunks are recorded: if the call is repeated after a
//! crash, the step is written again without the discarded blocks. A long text is not recorded: it
//! can be discarded, but nothing beside it can be discarded while it stays.

use super::calls::Calls;
use super::chunk::{Chunk, own_metadata};
use super::subagents::Subagents;
use crate::stream::Frames;
use std::collections::{HashMap, HashSet};
use turnwire_core::Fields;

/// How many bytes of text are recorded per step.
const MAX_RECORDED_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TextKind {
    Text,
    Reasoning,
}

/// The end of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextEnd<'a> {
    /// The whole text, if it differs from the deltas.
    pub replaced: Option<&'a str>,
    pub extra: &'a Fields,
}

#[derive(Debug)]
pub(super) enum StepItem {
    Text(TextState),
    Call(usize),
    /// A part of one chunk, with its block's id.
    Part(String, String),
    Subagent(String),
}

#[derive(Debug)]
pub(super) struct TextState {
    kind: TextKind,
    id: String,
    /// The text sent while the step can be rewritten; `None` if it is too long to record.
    recorded: Option<String>,
    is_open: bool,
    extra: Fields,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Step {
    is_open: bool,
    /// Whether its start was written in this response.
    is_announced: bool,
    /// Whether it can no longer be rewritten, so nothing is recorded.
    is_settled: bool,
    /// Whether it must be rewritten, because something in it was discarded.
    needs_rewrite: bool,
    items: Vec<StepItem>,
    texts: HashMap<String, usize>,
    reasonings: HashMap<String, usize>,
    /// How many bytes of text are recorded.
    recorded_bytes: usize,
    /// Texts that continue although their part was closed.
    carried: HashSet<(TextKind, String)>,
}

impl Step {
    /// Begins the step, unless it has begun. Returns whether to write its start.
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

    /// Writes its end, if its start was written. It may continue in another response.
    pub(super) fn finish(&mut self, out: &mut Frames) {
        if std::mem::take(&mut self.is_announced) {
            out.push("", &Chunk::FinishStep);
        }
    }

    /// Resets it for the next step.
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

    /// Whether a text of an earlier step or response continues.
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
                // The client cannot drop the text, but gets a note about it.
                _ => text.extra.insert("replaced_by", replaced),
            }
        }
        text.write_end(out);
        self.needs_rewrite |= is_wrong;
    }

    /// Closes the open texts. They may continue as new parts.
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

    /// Discards blocks. Returns whether there were any.
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

    /// Rewrites the step if something in it was discarded. Only once: afterwards nothing is
    /// recorded.
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

    /// Drops what is recorded.
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

/// The provider fields of a block's end that the block may take over.
pub(super) fn without_own_fields(extra: &Fields) -> Fields {
    let mut plain = extra.clone();
    for own in ["type", "id", "text", "thinking", "created_at", "finished_at", "name", "input"] {
        plain.remove(own);
    }
    plain
}
