//! Random text, thinking, data and hint blocks of a reply.

use super::{BlockScripts, Step, step};
use crate::one_in;
use crate::values::{self, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use turnwire_core::block::Source;
use turnwire_core::event::{
    Block, Chunk, DataBlockDelta, DataBlockEnd, DataBlockStart, Hint, Text, TextBlockDelta,
    TextBlockEnd, TextBlockStart, ThinkingBlockDelta, ThinkingBlockEnd, ThinkingBlockStart,
};
use turnwire_core::{ContentBlock, DataBlock, Fields, HintBlock, TextBlock, ThinkingBlock};

impl BlockScripts<'_> {
    pub(super) fn text(&mut self) -> Vec<Step> {
        let (id, extra) = (self.id(), self.extra());
        let (pieces, mut whole) = self.text_pieces();
        let mut steps = Vec::new();
        let replaced = one_in(self.rng, 6).then(|| text(self.rng));
        let ends = !one_in(self.rng, 6);
        if let Some(replaced) = replaced.as_ref().filter(|_| ends) {
            whole.clone_from(replaced);
        }
        let (block_id, block) = (
            Text::from(id.clone()),
            TextBlock { id: id.clone(), text: whole, ..TextBlock::default() },
        );
        steps.push(step(TextBlockStart { block_id: block_id.clone() }).with_effect(
            move |content, at| {
                content.push(TextBlock { created_at: at.to_owned(), ..block }.into());
            },
        ));
        for delta in pieces {
            steps.push(step(TextBlockDelta { block_id: block_id.clone(), delta: delta.into() }));
        }
        if ends {
            let signature = extra.raw("signature").cloned();
            let end = TextBlockEnd { block_id, text: replaced.map(Text::from), extra };
            steps.push(step(end).with_effect(move |content, at| {
                change_block(content, &id, |block: &mut ContentBlock| {
                    if let ContentBlock::Text(block) = block {
                        block.finished_at = Some(at.to_owned());
                        block.rest.insert_some("signature", signature);
                    }
                });
            }));
        }
        steps
    }

    pub(super) fn thinking(&mut self) -> Vec<Step> {
        let (id, extra) = (self.id(), self.extra());
        let (pieces, thinking) = self.text_pieces();
        let block_id = Text::from(id.clone());
        let block = ThinkingBlock { id: id.clone(), thinking, ..ThinkingBlock::default() };
        let mut steps = vec![step(ThinkingBlockStart { block_id: block_id.clone() }).with_effect(
            move |content, at| {
                content.push(ThinkingBlock { created_at: at.to_owned(), ..block }.into());
            },
        )];
        for delta in pieces {
            steps
                .push(step(ThinkingBlockDelta { block_id: block_id.clone(), delta: delta.into() }));
        }
        let signature = extra.raw("signature").cloned();
        steps.push(step(ThinkingBlockEnd { block_id, extra }).with_effect(move |content, at| {
            change_block(content, &id, |block| {
                if let ContentBlock::Thinking(block) = block {
                    block.finished_at = Some(at.to_owned());
                    block.rest.insert_some("signature", signature);
                }
            });
        }));
        steps
    }

    pub(super) fn data(&mut self) -> Vec<Step> {
        let (id, media_type) = (self.id(), Some("image/png".to_owned()));
        let block_id = Text::from(id.clone());
        let name = self.rng.bool().then(|| text(self.rng));
        let (chunks, source) = self.data_chunks();
        let block =
            DataBlock { id: id.clone(), name: name.clone(), ..DataBlock::from_source(source) };
        let begin =
            DataBlockStart { block_id: block_id.clone(), media_type: media_type.clone(), name };
        let mut steps = vec![step(begin).with_effect(move |content, at| {
            content.push(DataBlock { created_at: at.to_owned(), ..block }.into());
        })];
        for chunk in chunks {
            let media_type = media_type.clone();
            steps.push(step(DataBlockDelta { block_id: block_id.clone(), media_type, chunk }));
        }
        steps.push(step(DataBlockEnd { block_id, extra: self.ignored_extra() }).with_effect(
            move |content, at| {
                change_block(content, &id, |block| {
                    if let ContentBlock::Data(block) = block {
                        block.finished_at = Some(at.to_owned());
                    }
                });
            },
        ));
        steps
    }

    /// Extra fields that the fold never takes over.
    fn ignored_extra(&mut self) -> Fields {
        let mut extra = Fields::default();
        if self.rng.bool() {
            extra.insert("source", "x_other");
            extra.insert("finished_at", 0);
        }
        extra
    }

    pub(super) fn hint(&mut self) -> Vec<Step> {
        let block = HintBlock {
            id: self.id(),
            hint: values::payload(self.rng),
            source: self.rng.bool().then(|| text(self.rng)),
            ..HintBlock::default()
        };
        vec![step(Hint::from(block.clone())).with_effect(move |content, at| {
            let (created_at, finished_at) = (at.to_owned(), Some(at.to_owned()));
            content.push(HintBlock { created_at, finished_at, ..block }.into());
        })]
    }

    /// A block of any type, in one event.
    pub(super) fn whole_block(&mut self) -> Vec<Step> {
        let block = values::block(self.rng);
        vec![step(Block { block: Box::new(block.clone()) }).with_effect(move |content, _| {
            content.push(block);
        })]
    }

    /// A block of a failed model call, which the end of the call discards.
    pub(super) fn discarded_script(&mut self) -> Option<(String, Vec<Step>)> {
        if !one_in(self.rng, 5) {
            return None;
        }
        let id = self.id();
        let block_id = Text::from(id.clone());
        let steps = vec![
            step(TextBlockStart { block_id: block_id.clone() }),
            step(TextBlockDelta { block_id, delta: text(self.rng).into() }),
        ];
        Some((id, steps))
    }

    /// Deltas, and the text that they add up to.
    pub(super) fn text_pieces(&mut self) -> (Vec<String>, String) {
        let pieces: Vec<String> = (0..self.rng.usize(..5)).map(|_| text(self.rng)).collect();
        let whole = pieces.concat();
        (pieces, whole)
    }

    /// Chunks of base64 cut anywhere, padded or not, or a URL; and the source that they become.
    pub(super) fn data_chunks(&mut self) -> (Vec<Chunk<'static>>, Source) {
        if one_in(self.rng, 5) {
            let url = "https://example.com/a.png";
            let source = DataBlock::url(url, "image/png").source;
            return (vec![Chunk::Url(url.into())], source);
        }
        let mut bytes = Vec::new();
        let mut stream = String::new();
        let runs = self.rng.usize(1..4);
        for run in 1..=runs {
            let more: Vec<u8> = (0..self.rng.usize(..12)).map(|_| self.rng.u8(..)).collect();
            let mut encoded = STANDARD.encode(&more);
            // Only the last run may lack its padding: otherwise it would run into the next one.
            if run == runs && self.rng.bool() {
                encoded.truncate(encoded.trim_end_matches('=').len());
            }
            stream.push_str(&encoded);
            bytes.extend(more);
        }
        let mut chunks = Vec::new();
        let mut rest = stream.as_str();
        while !rest.is_empty() {
            let (chunk, more) = rest.split_at(self.rng.usize(1..=rest.len().min(7)));
            chunks.push(Chunk::Data(chunk.to_owned().into()));
            rest = more;
        }
        if chunks.is_empty() || one_in(self.rng, 5) {
            chunks.push(Chunk::Data("".into()));
        }
        (chunks, DataBlock::bytes(bytes, "image/png").source)
    }
}

fn change_block(content: &mut [ContentBlock], id: &str, change: impl FnOnce(&mut ContentBlock)) {
    if let Some(block) = content.iter_mut().find(|block| block.id() == id) {
        change(block);
    }
}
