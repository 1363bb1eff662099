//! Folds the events of text, thinking, data and hint blocks.

use super::block_index::Family;
use super::{Fold, check_source_end, close_source};
use crate::base64;
use crate::block::{ContentBlock, DataBlock, HintBlock, Source, TextBlock, ThinkingBlock};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{
    Chunk, DataBlockDelta, DataBlockEnd, DataBlockStart, Event, Hint, TextBlockEnd, TextBlockStart,
    ThinkingBlockEnd, ThinkingBlockStart,
};
use crate::json::Fields;

/// Finds a block of the message, or makes the error that there is none. A macro, so that it borrows only the
/// message and the index, not the whole fold.
macro_rules! find {
    ($fold:ident, $variant:ident, $id:expr) => {
        match $fold
            .index
            .find(&$fold.msg.content, Family::$variant, $id)
            .and_then(|at| $fold.msg.content.get_mut(at))
        {
            Some(ContentBlock::$variant(block)) => Ok(block),
            _ => Err(super::blocks::unknown_block_error(Family::$variant, $id, &$fold.msg.id)),
        }
    };
}
pub(super) use find;

#[cold]
pub(super) fn unknown_block_error(family: Family, id: &str, reply: &str) -> Error {
    let (word, start) = describe_family(family);
    Error::new(
        ErrorKind::UnknownBlock,
        format!("reply {reply} has no {word} {id}; was its {start} lost?"),
    )
}

#[cold]
fn ended_error(family: Family, id: &str) -> Error {
    let (word, _) = describe_family(family);
    Error::new(ErrorKind::AlreadyEnded, format!("the {word} {id} has ended"))
}

fn describe_family(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::Text => ("text block", "TEXT_BLOCK_START"),
        Family::Thinking => ("thinking block", "THINKING_BLOCK_START"),
        Family::Data => ("data block", "DATA_BLOCK_START"),
        Family::Hint => ("hint", "HINT_BLOCK"),
        Family::ToolCall => ("tool call", "TOOL_CALL_START"),
        Family::ToolResult => ("tool result", "TOOL_RESULT_START"),
        Family::Other => ("block", "BLOCK"),
    }
}

/// Checks that the block has not ended.
#[inline]
pub(super) fn check_open(finished_at: Option<&String>, family: Family, id: &str) -> Result<()> {
    if finished_at.is_some() { Err(ended_error(family, id)) } else { Ok(()) }
}

/// Sets the provider's extra fields; never overwrites the block's own fields.
pub(super) fn set_extra(rest: &mut Fields, extra: &Fields, own: &[&str]) {
    for (key, value) in extra {
        if !COMMON_FIELDS.contains(&key) && !own.contains(&key) {
            rest.insert(key, value.clone());
        }
    }
}

const COMMON_FIELDS: [&str; 4] = ["type", "id", "created_at", "finished_at"];

impl Fold<'_> {
    #[inline]
    pub(super) fn text_delta(&mut self, id: &str, delta: &str) -> Result<()> {
        let block = find!(self, Text, id)?;
        self.tolerance.check(check_open(block.finished_at.as_ref(), Family::Text, id))?;
        block.text.push_str(delta);
        Ok(())
    }

    #[inline]
    pub(super) fn thinking_delta(&mut self, id: &str, delta: &str) -> Result<()> {
        let block = find!(self, Thinking, id)?;
        self.tolerance.check(check_open(block.finished_at.as_ref(), Family::Thinking, id))?;
        block.thinking.push_str(delta);
        Ok(())
    }

    pub(super) fn text_start(
        &mut self,
        start: &TextBlockStart<'_>,
        event: &Event<'_>,
    ) -> Result<()> {
        self.start_block(ContentBlock::Text(TextBlock {
            id: start.block_id.to_string(),
            created_at: event.created_at.to_string(),
            ..TextBlock::default()
        }))
    }

    pub(super) fn text_end(&mut self, end: &TextBlockEnd<'_>, event: &Event<'_>) -> Result<()> {
        let block = find!(self, Text, &end.block_id)?;
        check_open(block.finished_at.as_ref(), Family::Text, &end.block_id)?;
        if let Some(text) = &end.text {
            block.text.clear();
            block.text.push_str(text);
        }
        set_extra(&mut block.rest, &end.extra, &["text"]);
        block.finished_at = Some(event.created_at.to_string());
        Ok(())
    }

    pub(super) fn thinking_start(
        &mut self,
        start: &ThinkingBlockStart<'_>,
        event: &Event<'_>,
    ) -> Result<()> {
        self.start_block(ContentBlock::Thinking(ThinkingBlock {
            id: start.block_id.to_string(),
            created_at: event.created_at.to_string(),
            ..ThinkingBlock::default()
        }))
    }

    pub(super) fn thinking_end(
        &mut self,
        end: &ThinkingBlockEnd<'_>,
        event: &Event<'_>,
    ) -> Result<()> {
        let block = find!(self, Thinking, &end.block_id)?;
        check_open(block.finished_at.as_ref(), Family::Thinking, &end.block_id)?;
        set_extra(&mut block.rest, &end.extra, &["thinking"]);
        block.finished_at = Some(event.created_at.to_string());
        Ok(())
    }

    pub(super) fn data_start(
        &mut self,
        start: &DataBlockStart<'_>,
        event: &Event<'_>,
    ) -> Result<()> {
        let source = Source::base64("", start.media_type.clone());
        self.start_block(ContentBlock::Data(DataBlock {
            id: start.block_id.to_string(),
            name: start.name.clone(),
            created_at: event.created_at.to_string(),
            ..DataBlock::from_source(source)
        }))
    }

    pub(super) fn data_delta(&mut self, delta: &DataBlockDelta<'_>) -> Result<()> {
        let block = find!(self, Data, &delta.block_id)?;
        let is_open = check_open(block.finished_at.as_ref(), Family::Data, &delta.block_id);
        let is_late = is_open.is_err();
        self.tolerance.check(is_open)?;
        if is_late {
            return append_late(&mut block.source, &delta.chunk, delta.media_type.as_ref());
        }
        append_chunk(&mut block.source, &delta.chunk, delta.media_type.as_ref())
    }

    pub(super) fn data_end(&mut self, end: &DataBlockEnd<'_>, event: &Event<'_>) -> Result<()> {
        let block = find!(self, Data, &end.block_id)?;
        check_open(block.finished_at.as_ref(), Family::Data, &end.block_id)?;
        self.tolerance.check(check_source_end(&block.source))?;
        close_source(&mut block.source);
        set_extra(&mut block.rest, &end.extra, &["source", "name"]);
        block.finished_at = Some(event.created_at.to_string());
        Ok(())
    }

    pub(super) fn hint(&mut self, hint: &Hint, event: &Event<'_>) -> Result<()> {
        self.start_block(ContentBlock::Hint(HintBlock {
            hint: hint.hint.clone(),
            id: hint.block_id.clone(),
            source: hint.source.clone(),
            created_at: event.created_at.to_string(),
            finished_at: Some(event.created_at.to_string()),
            rest: Fields::default(),
        }))
    }
}

/// Appends bytes to a source that has ended. No end event will close it again, so they must be complete.
pub(super) fn append_late(
    source: &mut Source,
    chunk: &Chunk<'_>,
    media_type: Option<&String>,
) -> Result<()> {
    match (chunk, source) {
        (Chunk::Data(data), Source::Base64(source)) => {
            base64::append_closed(&mut source.data, data)
        }
        (_, source) => append_chunk(source, chunk, media_type),
    }
}

/// Appends bytes to a source; a URL replaces the content.
pub(super) fn append_chunk(
    source: &mut Source,
    chunk: &Chunk<'_>,
    media_type: Option<&String>,
) -> Result<()> {
    match (chunk, source) {
        (Chunk::Url(url), source) => {
            let known = source.media_type().map(str::to_owned);
            *source = Source::url(&**url, media_type.cloned().or(known));
            Ok(())
        }
        (Chunk::Data(data), Source::Base64(source)) => {
            base64::append(&mut source.data, data)?;
            if source.media_type.is_none() {
                source.media_type = media_type.cloned();
            }
            Ok(())
        }
        // An empty delta is harmless.
        (Chunk::Data(data), Source::Url(_) | Source::Other(_)) if data.is_empty() => Ok(()),
        (Chunk::Data(_), Source::Url(_) | Source::Other(_)) => Err(Error::new(
            ErrorKind::MixedSource,
            "bytes for a data block whose content is a URL; a block has either bytes or a URL",
        )),
    }
}
