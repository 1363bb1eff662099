//! What the client has in the current step.
//!
//! As long as the model call of a step runs, what was sent in it is kept: the call may have to be
//! repeated after a crash, and then the step is written again without what is taken back. Of a long text
//! nothing is kept: it can be taken back, but what stands beside it cannot be while it stays.

use super::calls::Calls;
use super::chunk::{Chunk, ours};
use super::subagents::Subagents;
use crate::stream::Frames;
use std::collections::{HashMap, HashSet};
use turnwire_core::Fields;

/// How many bytes of text are kept of a step.
const KEPT: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Text,
    Reasoning,
}

/// What is said at the end of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct End<'a> {
    /// The whole text, where it is not what was sent.
    pub replaced: Option<&'a str>,
    pub extra: &'a Fields,
}

#[derive(Debug)]
pub(super) enum Item {
    Text(Text),
    Call(usize),
    /// A part that is one chunk, with the id of its block.
    Part(String, String),
    Subagent(String),
}

#[derive(Debug)]
pub(super) struct Text {
    kind: Kind,
    id: String,
    /// What was sent, as long as the step may be written again; `None` where it is too long for that.
    sent: Option<String>,
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
    is_wrong: bool,
    items: Vec<Item>,
    texts: HashMap<String, usize>,
    reasonings: HashMap<String, usize>,
    /// How many bytes of text are kept.
    kept: usize,
    /// Texts that go on although their part had to be closed.
    carried: HashSet<(Kind, String)>,
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

    pub(super) fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    pub(super) fn unsettle(&mut self) {
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

    pub(super) fn add(&mut self, mut item: Item) {
        if self.is_settled {
            item.forget();
        }
        self.items.push(item);
    }

    pub(super) fn add_call(&mut self, at: Option<usize>) {
        self.items.extend(at.map(Item::Call));
    }

    fn ids(&mut self, kind: Kind) -> &mut HashMap<String, usize> {
        match kind {
            Kind::Text => &mut self.texts,
            Kind::Reasoning => &mut self.reasonings,
        }
    }

    pub(super) fn has_text(&self, kind: Kind, id: &str) -> bool {
        match kind {
            Kind::Text => self.texts.contains_key(id),
            Kind::Reasoning => self.reasonings.contains_key(id),
        }
    }

    /// Whether a text of an earlier step, or response, goes on.
    pub(super) fn carries(&mut self, kind: Kind, id: &str) -> bool {
        !self.carried.is_empty() && self.carried.remove(&(kind, id.to_owned()))
    }

    pub(super) fn text_start(&mut self, kind: Kind, id: &str, out: &mut Frames) {
        if self.has_text(kind, id) {
            return;
        }
        let at = self.items.len();
        self.ids(kind).insert(id.to_owned(), at);
        let text = Text {
            kind,
            id: id.to_owned(),
            sent: Some(String::new()),
            is_open: true,
            extra: Fields::default(),
        };
        text.write_start(out);
        self.items.push(Item::Text(text));
    }

    fn open_text(&mut self, kind: Kind, id: &str) -> Option<&mut Text> {
        let at = *self.ids(kind).get(id)?;
        match self.items.get_mut(at) {
            Some(Item::Text(text)) if text.is_open => Some(text),
            _ => None,
        }
    }

    pub(super) fn text_delta(&mut self, kind: Kind, id: &str, delta: &str, out: &mut Frames) {
        let (keeps, kept) = (!self.is_settled, self.kept);
        let Some(text) = self.open_text(kind, id) else { return };
        out.push("", &kind.delta(id, delta));
        if keeps && let Some(sent) = &mut text.sent {
            let own = sent.len();
            if kept + delta.len() > KEPT {
                text.sent = None;
                self.kept -= own;
            } else {
                sent.push_str(delta);
                self.kept += delta.len();
            }
        }
    }

    pub(super) fn text_end(&mut self, kind: Kind, id: &str, end: End<'_>, out: &mut Frames) {
        let is_settled = self.is_settled;
        let Some(text) = self.open_text(kind, id) else { return };
        text.is_open = false;
        text.extra = plain(end.extra);
        let mut is_wrong = false;
        if let Some(replaced) = end.replaced {
            match &mut text.sent {
                Some(sent) if !is_settled => {
                    is_wrong = sent != replaced;
                    replaced.clone_into(sent);
                }
                // The client cannot be made to forget what it has; it can be told.
                _ => text.extra.insert("replaced_by", replaced),
            }
        }
        text.write_end(out);
        self.is_wrong |= is_wrong;
    }

    /// Closes the texts that are open. They may go on as parts of their own.
    pub(super) fn close_texts(&mut self, out: &mut Frames) {
        for item in &mut self.items {
            let Item::Text(text) = item else { continue };
            if std::mem::take(&mut text.is_open) {
                text.write_end(out);
                match text.kind {
                    Kind::Text => self.texts.remove(&text.id),
                    Kind::Reasoning => self.reasonings.remove(&text.id),
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
            Item::Text(text) => !ids.contains(&*text.id),
            Item::Call(at) => !calls.id(*at).is_some_and(|id| ids.contains(id)),
            Item::Part(id, _) => !ids.contains(&**id),
            Item::Subagent(_) => true,
        });
        if self.items.len() == before {
            return false;
        }
        self.is_wrong = true;
        self.texts.clear();
        self.reasonings.clear();
        for (at, item) in self.items.iter().enumerate() {
            let Item::Text(text) = item else { continue };
            match text.kind {
                Kind::Text => self.texts.insert(text.id.clone(), at),
                Kind::Reasoning => self.reasonings.insert(text.id.clone(), at),
            };
        }
        true
    }

    /// Writes the step again, where something in it was taken back; at most once, since nothing is
    /// kept beyond this.
    pub(super) fn settle(&mut self, calls: &mut Calls, subagents: &Subagents, out: &mut Frames) {
        if std::mem::take(&mut self.is_wrong) && self.items.iter().all(Item::is_kept) {
            out.push("", &Chunk::ResetStep);
            for item in &self.items {
                match item {
                    Item::Text(text) => text.rewrite(out),
                    Item::Call(at) => calls.rewrite(*at, out),
                    Item::Part(_, chunk) => out.push_text("", chunk),
                    Item::Subagent(id) => subagents.write(id, out),
                }
            }
        }
        self.is_settled = true;
        calls.settle();
        self.items.iter_mut().for_each(Item::forget);
    }
}

impl Item {
    /// Whether it can be written again.
    fn is_kept(&self) -> bool {
        !matches!(self, Self::Text(Text { sent: None, .. }))
    }

    /// Lets go of what is kept for writing it again.
    fn forget(&mut self) {
        match self {
            Self::Text(text) => text.sent = None,
            Self::Part(_, chunk) => *chunk = String::new(),
            Self::Call(_) | Self::Subagent(_) => {}
        }
    }
}

impl Kind {
    fn delta<'a>(self, id: &'a str, delta: &'a str) -> Chunk<'a> {
        match self {
            Self::Text => Chunk::TextDelta { id, delta },
            Self::Reasoning => Chunk::ReasoningDelta { id, delta },
        }
    }
}

impl Text {
    fn write_start(&self, out: &mut Frames) {
        let id = &self.id;
        match self.kind {
            Kind::Text => out.push("", &Chunk::TextStart { id }),
            Kind::Reasoning => out.push("", &Chunk::ReasoningStart { id }),
        }
    }

    fn write_end(&self, out: &mut Frames) {
        let (id, provider_metadata) = (&self.id, ours(&self.extra));
        match self.kind {
            Kind::Text => out.push("", &Chunk::TextEnd { id, provider_metadata }),
            Kind::Reasoning => out.push("", &Chunk::ReasoningEnd { id, provider_metadata }),
        }
    }

    fn rewrite(&self, out: &mut Frames) {
        self.write_start(out);
        if let Some(sent) = self.sent.as_ref().filter(|sent| !sent.is_empty()) {
            out.push("", &self.kind.delta(&self.id, sent));
        }
        if !self.is_open {
            self.write_end(out);
        }
    }
}

/// What a block may take over from what was said at its end.
pub(super) fn plain(extra: &Fields) -> Fields {
    let mut plain = extra.clone();
    for own in ["type", "id", "text", "thinking", "created_at", "finished_at", "name", "input"] {
        plain.remove(own);
    }
    plain
}
