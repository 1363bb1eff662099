//! Blocks in the order of their starts, of which only the first is being written.

use super::super::content;
use super::{BlockDelta, Delta, Frame};
use crate::stream::Frames;
use std::collections::{HashMap, VecDeque};
use turnwire_core::{DataBlock, Event, Fields, Json, Msg, ThinkingBlock};

#[derive(Default)]
pub(super) struct Queue {
    blocks: VecDeque<Block>,
    /// The places of the blocks, by their ids, counted over the whole message.
    places: HashMap<String, usize>,
    /// How many blocks have left.
    gone: usize,
    /// The index of the next block on the wire.
    index: u64,
    has_calls: bool,
}

struct Block {
    id: String,
    slot: Slot,
    /// What was not written yet.
    text: String,
    /// Whether its start was written.
    begun: bool,
    /// Whether any of its text was.
    has_written: bool,
    ended: bool,
    extra: Fields,
}

/// What a block is.
pub(super) enum Slot {
    Text,
    Thinking,
    Call {
        name: String,
        /// A person was asked about it.
        asking: bool,
        /// It is the agent's own affair.
        served: bool,
    },
    /// Bytes are put together by the one fold.
    Data(Box<Msg>),
    Item(Fields),
}

impl Slot {
    pub(super) fn call(name: String) -> Self {
        Self::Call { name, asking: false, served: false }
    }

    /// A data block that begins with this event.
    pub(super) fn data(event: &Event<'_>) -> Self {
        let mut msg = Msg::reply(event.reply_id.to_string(), "");
        fold(&mut msg, event);
        Self::Data(Box::new(msg))
    }
}

/// What does not fit is not in the message either.
fn fold(msg: &mut Msg, event: &Event<'_>) {
    let _ = msg.append_event(event);
}

impl Queue {
    /// Whether a call was written, for the client to execute.
    pub(super) fn has_calls(&self) -> bool {
        self.has_calls
    }

    pub(super) fn start(&mut self, id: &str, slot: Slot, out: &mut Frames) {
        self.push(Block::new(id, slot), out);
    }

    pub(super) fn whole(
        &mut self,
        id: &str,
        slot: Slot,
        text: &str,
        extra: &Fields,
        out: &mut Frames,
    ) {
        let (text, extra) = (text.to_owned(), extra.clone());
        self.push(Block { text, extra, ended: true, ..Block::new(id, slot) }, out);
    }

    fn push(&mut self, block: Block, out: &mut Frames) {
        if self.places.contains_key(&block.id) {
            return;
        }
        if !block.id.is_empty() {
            self.places.insert(block.id.clone(), self.gone + self.blocks.len());
        }
        self.blocks.push_back(block);
        self.advance(Until::Known, out);
    }

    /// Goes on with the text of a block.
    #[inline]
    pub(super) fn text(&mut self, id: &str, delta: &str, out: &mut Frames) {
        if let Some(front) = self.blocks.front_mut()
            && front.id == id
            && front.is_live()
        {
            return front.write(delta, self.index, out);
        }
        if let Some(block) = self.get(id).filter(|block| !block.ended) {
            block.text.push_str(delta);
        }
    }

    pub(super) fn data(&mut self, id: &str, event: &Event<'_>) {
        if let Some(Block { slot: Slot::Data(msg), .. }) = self.get(id) {
            fold(msg, event);
        }
    }

    /// Ends a block. A text that replaces what the deltas gave can only be written where they gave
    /// nothing.
    pub(super) fn end(&mut self, id: &str, text: Option<&str>, extra: &Fields, out: &mut Frames) {
        let Some(block) = self.get(id).filter(|block| !block.ended) else { return };
        block.ended = true;
        block.extra = extra.clone();
        if let Some(text) = text.filter(|_| !block.has_written && block.text.is_empty()) {
            text.clone_into(&mut block.text);
        }
        self.advance(Until::Known, out);
    }

    /// A call was served by the agent.
    pub(super) fn served(&mut self, id: &str, out: &mut Frames) {
        if let Some(Block { slot: Slot::Call { served, .. }, .. }) = self.get(id) {
            *served = true;
            self.advance(Until::Known, out);
        }
    }

    /// A person is asked about a call.
    pub(super) fn asks(&mut self, id: &str) {
        if let Some(Block { slot: Slot::Call { asking, .. }, .. }) = self.get(id) {
            *asking = true;
        }
    }

    /// A person has agreed to a call, perhaps with another input.
    pub(super) fn edited(&mut self, id: &str, input: &str) {
        if let Some(Block { slot: Slot::Call { asking, .. }, text, .. }) = self.get(id)
            && std::mem::take(asking)
            && !input.is_empty()
        {
            input.clone_into(text);
        }
    }

    /// The model has said all: whatever is open is closed. Calls still wait for who executes them.
    pub(super) fn close(&mut self, out: &mut Frames) {
        for block in &mut self.blocks {
            block.ended = true;
        }
        self.advance(Until::Known, out);
    }

    /// Writes everything: calls without a result are the client's.
    pub(super) fn flush(&mut self, out: &mut Frames) {
        for block in &mut self.blocks {
            block.ended = true;
        }
        self.advance(Until::Empty, out);
    }

    fn get(&mut self, id: &str) -> Option<&mut Block> {
        let place = *self.places.get(id)?;
        self.blocks.get_mut(place.checked_sub(self.gone)?)
    }

    /// Writes what can be written of the first block, and goes on to the next once it is done.
    fn advance(&mut self, until: Until, out: &mut Frames) {
        while let Some(block) = self.blocks.front_mut() {
            match block.advance(self.index, until, out) {
                Step::Waits => return,
                Step::LeftOut => {}
                Step::Written => {
                    self.has_calls |= matches!(block.slot, Slot::Call { .. });
                    self.index += 1;
                }
            }
            if let Some(block) = self.blocks.pop_front() {
                self.places.remove(&block.id);
                self.gone += 1;
            }
        }
    }
}

/// How far to go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// To the first call of which it is not known who executes it.
    Known,
    Empty,
}

enum Step {
    Waits,
    LeftOut,
    Written,
}

impl Block {
    fn new(id: &str, slot: Slot) -> Self {
        Self {
            id: id.to_owned(),
            slot,
            text: String::new(),
            begun: false,
            has_written: false,
            ended: false,
            extra: Fields::default(),
        }
    }

    /// Whether its text is written as it comes, once it is the first.
    fn is_live(&self) -> bool {
        matches!(self.slot, Slot::Text | Slot::Thinking)
    }

    fn advance(&mut self, index: u64, until: Until, out: &mut Frames) -> Step {
        let text = std::mem::take(&mut self.text);
        match &self.slot {
            Slot::Text | Slot::Thinking => {
                // Thinking may turn out to be redacted, which is a block of another type.
                if matches!(self.slot, Slot::Text) {
                    self.begin(index, out);
                }
                self.write(&text, index, out);
                if !self.ended {
                    return Step::Waits;
                }
                self.finish(index, out);
            }
            Slot::Call { served: true, .. } => return Step::LeftOut,
            Slot::Call { name, .. } => {
                if !self.ended || until == Until::Known {
                    self.text = text;
                    return Step::Waits;
                }
                let mut fields = content::object([
                    ("type", "tool_use".into()),
                    ("id", self.id.as_str().into()),
                    ("name", name.as_str().into()),
                    ("input", serde_json::Map::new().into()),
                ]);
                fields.extend(&content::call_extra(&self.extra));
                start(&fields, index, out);
                if !text.is_empty() {
                    delta(Delta::Input { partial_json: &text }, index, out);
                }
                stop(index, out);
            }
            Slot::Data(_) if !self.ended => return Step::Waits,
            Slot::Data(msg) => match msg.first::<DataBlock>().and_then(content::data) {
                Some(fields) => whole(&fields, index, out),
                None => return Step::LeftOut,
            },
            Slot::Item(fields) => whole(fields, index, out),
        }
        Step::Written
    }

    fn begin(&mut self, index: u64, out: &mut Frames) {
        if self.begun {
            return;
        }
        self.begun = true;
        let fields = match self.slot {
            Slot::Thinking => content::object([
                ("type", "thinking".into()),
                ("thinking", "".into()),
                ("signature", "".into()),
            ]),
            _ => content::plain_text(""),
        };
        start(&fields, index, out);
    }

    /// Writes text of a block that is written as it comes.
    #[inline]
    fn write(&mut self, text: &str, index: u64, out: &mut Frames) {
        if text.is_empty() {
            return;
        }
        self.begin(index, out);
        self.has_written = true;
        match self.slot {
            Slot::Thinking => delta(Delta::Thinking { thinking: text }, index, out),
            _ => delta(Delta::Text { text }, index, out),
        }
    }

    /// Ends such a block, with what its provider added to it.
    fn finish(&mut self, index: u64, out: &mut Frames) {
        let is_thinking = matches!(self.slot, Slot::Thinking);
        if is_thinking && !self.begun {
            let block = ThinkingBlock { rest: self.extra.clone(), ..ThinkingBlock::default() };
            if content::redacted(&self.extra).is_some()
                && let Some(fields) = content::thinking(&block)
            {
                return whole(&fields, index, out);
            }
        }
        self.begin(index, out);
        if is_thinking {
            if let Ok(Some(signature)) = self.extra.get::<String>("signature") {
                delta(Delta::Signature { signature: &signature }, index, out);
            }
        } else if let Ok(Some(citations)) = self.extra.get::<Vec<Json>>("citations") {
            for citation in &citations {
                delta(Delta::Citation { citation }, index, out);
            }
        }
        stop(index, out);
    }
}

fn start(fields: &Fields, index: u64, out: &mut Frames) {
    let content_block = content::json(fields);
    out.push("content_block_start", &Frame::ContentBlockStart { index, content_block });
}

fn delta(delta: Delta<'_>, index: u64, out: &mut Frames) {
    let name = "content_block_delta";
    out.push(name, &BlockDelta { r#type: name, index, delta });
}

fn stop(index: u64, out: &mut Frames) {
    out.push("content_block_stop", &Frame::ContentBlockStop { index });
}

fn whole(fields: &Fields, index: u64, out: &mut Frames) {
    start(fields, index, out);
    stop(index, out);
}
