//! The fold: turns the events of one reply into its message. [`Folder`](crate::Folder) calls it for a stream
//! with several replies.
//!
//! ```
//! use turnwire_core::{Event, Msg, Outcome};
//!
//! let mut msg = Msg::reply("r", "friday");
//! for line in [
//!     r#"{"id":"e1","type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#,
//!     r#"{"id":"e2","type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"Hello"}"#,
//! ] {
//!     msg.append_event(&Event::from_json(line)?)?;
//! }
//! assert_eq!(msg.text("").as_deref(), Some("Hello"));
//!
//! // A repeated event changes nothing; an event that does not fit is an error, and changes nothing.
//! let again = r#"{"id":"e2","type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"Hello"}"#;
//! assert_eq!(msg.append_event(&Event::from_json(again)?)?, Outcome::Repeated);
//! let lost = r#"{"id":"e3","type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"x","delta":"?"}"#;
//! let problem = msg.append_event(&Event::from_json(lost)?).unwrap_err();
//! assert_eq!(problem.kind(), turnwire_core::ErrorKind::UnknownBlock);
//!
//! // Stop anywhere, store the message and its cursor as JSON, and continue later.
//! let (stored, cursor) = (msg.to_json(), serde_json::to_string(&msg.cursor()).unwrap());
//! let mut later = Msg::from_json(&stored)?.with_cursor(serde_json::from_str(&cursor).unwrap());
//! assert_eq!(later.append_event(&Event::from_json(again)?)?, Outcome::Repeated);
//! # Ok::<(), turnwire_core::Error>(())
//! ```
//!
//! [`Msg::append_event`] is strict. [`Msg::append_event_tolerant`] applies what fits and reports the rest.

mod block_index;
mod blocks;
mod event_ids;
mod memory;
mod repeats;
mod tools;

pub use event_ids::EventIds;
pub use memory::FoldCursor;
pub(crate) use memory::FoldMemory;
pub use repeats::RepeatDetector;

use crate::base64;
use crate::block::{ContentBlock, Part, Payload, Source, ToolResult};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, EventKind, ModelCallEnd, ReplyEnd, ReplyStart};
use crate::msg::{Msg, Usage, check_role};
use crate::names::Role;
use crate::work;
use crate::{content_blocks, event_kinds};
use block_index::BlockIndex;
use memory::Seen;
use std::collections::HashSet;
use std::ops::Range;

/// What the fold did with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was applied.
    Applied,
    /// It was applied before: nothing changed.
    Repeated,
    /// It does not concern the message: nothing changed.
    Ignored,
    /// It did not fit and was skipped (only in a tolerant fold).
    Skipped,
}

impl Msg {
    /// Applies an event. An event that does not fit is an error and leaves the message unchanged.
    pub fn append_event(&mut self, event: &Event<'_>) -> Result<Outcome> {
        if !self.is_for_this_reply(event)? {
            return Ok(Outcome::Ignored);
        }
        self.append_matching(event)
    }

    /// Applies what fits of an event, and reports the rest.
    pub fn append_event_tolerant(&mut self, event: &Event<'_>) -> (Outcome, Option<Error>) {
        match self.is_for_this_reply(event) {
            Ok(true) => self.append_matching_tolerant(event),
            Ok(false) => (Outcome::Ignored, None),
            Err(error) => (Outcome::Skipped, Some(error)),
        }
    }

    /// [`append_event`](Self::append_event) for an event that is known to be this reply's.
    #[inline]
    pub(crate) fn append_matching(&mut self, event: &Event<'_>) -> Result<Outcome> {
        let mut tolerance = Tolerance { refuse: true, report: None };
        self.fold(event, &mut tolerance)
    }

    /// The same, tolerant.
    pub(crate) fn append_matching_tolerant(
        &mut self,
        event: &Event<'_>,
    ) -> (Outcome, Option<Error>) {
        let mut tolerance = Tolerance { refuse: false, report: None };
        match self.fold(event, &mut tolerance) {
            Ok(outcome) => (outcome, tolerance.report),
            Err(error) => (Outcome::Skipped, Some(error)),
        }
    }

    /// The state of the fold. Store it with the message to continue later.
    pub fn cursor(&self) -> FoldCursor {
        self.memory.cursor()
    }

    /// Restores the state of the fold, to continue where [`cursor`](Self::cursor) was called.
    #[must_use]
    pub fn with_cursor(mut self, cursor: FoldCursor) -> Self {
        self.memory = FoldMemory::from(cursor);
        self
    }

    /// Whether an event belongs to this reply; `false` if it belongs to no reply.
    fn is_for_this_reply(&self, event: &Event<'_>) -> Result<bool> {
        if event.reply_id.is_empty() || !event.kind.is_part_of_reply() {
            return Ok(false);
        }
        if event.reply_id == self.id { Ok(true) } else { Err(self.wrong_reply_error(event)) }
    }

    fn fold(&mut self, event: &Event<'_>, tolerance: &mut Tolerance) -> Result<Outcome> {
        let mut memory = std::mem::take(&mut self.memory);
        let state = memory.state();
        let outcome = match state.seen.remember(event) {
            Ok(Seen::Before) => Ok(Outcome::Repeated),
            Ok(Seen::New(mark)) if state.is_whole => {
                state.seen.forget(event, mark);
                Err(self.duplicate_error())
            }
            Ok(Seen::New(mark)) => {
                let mut fold = Fold {
                    msg: self,
                    index: &mut state.index,
                    started: &mut state.started,
                    tolerance,
                };
                let result = fold.apply(event);
                if result.is_err() {
                    state.seen.forget(event, mark);
                } else if self.finished_at.is_some() {
                    // A finished message grows no more: give back the spare memory.
                    self.content.shrink_to_fit();
                    state.shrink();
                }
                result.map(|()| Outcome::Applied)
            }
            Err(overlap) => Err(overlap),
        };
        self.memory = memory;
        outcome
    }

    /// A complete message is not a reply and accepts no events.
    #[cold]
    pub(crate) fn duplicate_error(&self) -> Error {
        let message = format!("the message {} exists already", self.id);
        Error::new(ErrorKind::DuplicateMessage, message)
    }

    #[cold]
    fn wrong_reply_error(&self, event: &Event<'_>) -> Error {
        let message = format!(
            "{} is for the reply {}, but this message is {}",
            event.kind.type_name(),
            event.reply_id,
            self.id
        );
        Error::new(ErrorKind::WrongReply, message)
    }
}

/// How to treat an event that could be applied although it is late or incomplete.
struct Tolerance {
    refuse: bool,
    report: Option<Error>,
}

impl Tolerance {
    fn check(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(error) if self.refuse => Err(error),
            Err(error) => {
                self.report.get_or_insert(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Applies one event. Every step first checks and then changes.
struct Fold<'f> {
    msg: &'f mut Msg,
    index: &'f mut BlockIndex,
    /// Whether a `REPLY_START` was applied.
    started: &'f mut bool,
    tolerance: &'f mut Tolerance,
}

impl Fold<'_> {
    #[inline]
    fn apply(&mut self, event: &Event<'_>) -> Result<()> {
        if self.msg.finished_at.is_some() {
            return Err(self.reply_ended_error(event));
        }
        match &event.kind {
            EventKind::TextBlockDelta(delta) => self.text_delta(&delta.block_id, &delta.delta)?,
            EventKind::ThinkingBlockDelta(delta) => {
                self.thinking_delta(&delta.block_id, &delta.delta)?;
            }
            EventKind::ToolCallDelta(delta) => {
                self.tool_call_delta(&delta.tool_call_id, &delta.delta)?;
            }
            EventKind::ToolResultTextDelta(delta) => {
                self.tool_result_text(&delta.tool_call_id, &delta.delta, event)?;
            }
            EventKind::ReplyStart(start) => self.reply_start(start)?,
            EventKind::ReplyEnd(end) => self.reply_end(end, event)?,
            EventKind::ModelCallEnd(end) => self.model_call_end(end),
            EventKind::TextBlockStart(start) => self.text_start(start, event)?,
            EventKind::TextBlockEnd(end) => self.text_end(end, event)?,
            EventKind::ThinkingBlockStart(start) => self.thinking_start(start, event)?,
            EventKind::ThinkingBlockEnd(end) => self.thinking_end(end, event)?,
            EventKind::DataBlockStart(start) => self.data_start(start, event)?,
            EventKind::DataBlockDelta(delta) => self.data_delta(delta)?,
            EventKind::DataBlockEnd(end) => self.data_end(end, event)?,
            EventKind::Hint(hint) => self.hint(hint, event)?,
            EventKind::Block(block) => self.append_block(&block.block)?,
            EventKind::ToolCallStart(start) => self.tool_call_start(start, event)?,
            EventKind::ToolCallEnd(end) => self.tool_call_end(end, event)?,
            EventKind::ToolResultStart(start) => self.tool_result_start(start, event)?,
            EventKind::ToolResultDataDelta(delta) => self.tool_result_data(delta, event)?,
            EventKind::ToolResultEnd(end) => self.tool_result_end(end, event)?,
            EventKind::RequireUserConfirm(ask) => self.require_user_confirm(ask)?,
            EventKind::UserConfirmResult(answer) => self.user_confirm_result(answer)?,
            EventKind::RequireExternalExecution(ask) => self.require_external_execution(ask)?,
            EventKind::ExternalExecutionResult(answer) => {
                self.external_execution_result(answer, event)?;
            }
            // Notices are for subscribers only; events of the session do not get here.
            event_kinds!(ModelCallStart notice session) => {}
        }
        if self.msg.created_at.is_empty() {
            self.msg.created_at.push_str(&event.created_at);
        }
        Ok(())
    }

    #[cold]
    fn reply_ended_error(&self, event: &Event<'_>) -> Error {
        let message = format!(
            "{} after the end of the reply {}; a finished reply accepts no more events",
            event.kind.type_name(),
            self.msg.id
        );
        Error::new(ErrorKind::AlreadyEnded, message)
    }

    /// Only the first start counts; later ones mean that the reply was resumed.
    fn reply_start(&mut self, start: &ReplyStart) -> Result<()> {
        if *self.started {
            return Ok(());
        }
        self.check_roles(start.role)?;
        if !start.name.is_empty() {
            self.msg.name.clone_from(&start.name);
        }
        self.msg.role = start.role;
        *self.started = true;
        Ok(())
    }

    fn reply_end(&mut self, end: &ReplyEnd, event: &Event<'_>) -> Result<()> {
        let open_data = self.check_open_data(0..self.msg.content.len());
        self.tolerance.check(open_data)?;
        for block in &mut self.msg.content {
            if let ContentBlock::Data(block) = block {
                if block.finished_at.is_none() {
                    close_source(&mut block.source);
                }
            } else if let ContentBlock::ToolResult(result) = block
                && result.finished_at.is_none()
            {
                close_parts(&mut result.output);
            }
        }
        let msg = &mut *self.msg;
        msg.finished_at = Some(event.created_at.clone().into_owned());
        msg.finished_reason = Some(end.finished_reason.clone());
        msg.error.clone_from(&end.error);
        if end.structured_output.is_some() {
            msg.structured_output.clone_from(&end.structured_output);
        }
        msg.metadata.extend(&end.message_metadata);
        Ok(())
    }

    fn model_call_end(&mut self, end: &ModelCallEnd) {
        self.msg.usage.get_or_insert_with(Usage::default).add(end.usage);
        self.discard(&end.discard);
    }

    /// Removes blocks. The cost grows with the blocks after the first removed one; those of the model call
    /// that has just ended are the last ones.
    fn discard(&mut self, ids: &[String]) {
        let positions = ids.iter().filter_map(|id| self.index.find_first(&self.msg.content, id));
        let Some(first) = positions.min() else { return };
        let ids: HashSet<&str> = ids.iter().map(String::as_str).collect();
        self.index.forget_from(&self.msg.content, first);
        let later = self.msg.content.split_off(first);
        work::count(later.len());
        for block in later {
            if !ids.contains(block.id()) {
                self.push_block(block);
            }
        }
    }

    /// Whether the role may contain every block. Starts with the block that failed the last time, so that an
    /// event that is refused repeatedly does not cost the whole message each time.
    fn check_roles(&mut self, role: Role) -> Result<()> {
        let check = |block: &ContentBlock| check_role(role, block.block_type(), block.id());
        let content = &self.msg.content;
        self.index.refused_role.and_then(|at| content.get(at)).map_or(Ok(()), check)?;
        work::count(content.len());
        for (at, block) in content.iter().enumerate() {
            check(block).inspect_err(|_| self.index.refused_role = Some(at))?;
        }
        Ok(())
    }

    /// Whether the open data of these blocks is complete. Starts with the data that failed the last time.
    fn check_open_data(&mut self, blocks: Range<usize>) -> Result<()> {
        let content = &self.msg.content;
        if let Some((at, place)) = self.index.refused_end
            && blocks.contains(&at)
        {
            let source = content.get(at).and_then(|block| open_source(block, place));
            source.map_or(Ok(()), check_source_end)?;
        }
        for (at, block) in content.iter().enumerate().take(blocks.end).skip(blocks.start) {
            work::count(1);
            for place in 0..source_count(block) {
                work::count(1);
                let checked = open_source(block, place).map_or(Ok(()), check_source_end);
                checked.inspect_err(|_| self.index.refused_end = Some((at, place)))?;
            }
        }
        Ok(())
    }

    /// Appends a complete block. Blocks without an id may repeat.
    fn append_block(&mut self, block: &ContentBlock) -> Result<()> {
        if !block.id().is_empty() {
            return self.start_block(block.clone());
        }
        check_role(self.msg.role, block.block_type(), "")?;
        self.push_block(block.clone());
        Ok(())
    }

    /// Appends a new block.
    fn start_block(&mut self, block: ContentBlock) -> Result<()> {
        check_role(self.msg.role, block.block_type(), block.id())?;
        if self.index.find(&self.msg.content, (&block).into(), block.id()).is_some() {
            let (word, id) = (block.block_type().as_str(), block.id());
            let message = format!("the {word} block {id} exists already");
            return Err(Error::new(ErrorKind::DuplicateBlock, message));
        }
        self.push_block(block);
        Ok(())
    }

    fn push_block(&mut self, block: ContentBlock) {
        self.msg.content.push(block);
        self.index.note_pushed(&self.msg.content);
    }
}

fn check_source_end(source: &Source) -> Result<()> {
    match source {
        Source::Base64(source) => base64::check_end(&source.data),
        Source::Url(_) | Source::Other(_) => Ok(()),
    }
}

fn close_source(source: &mut Source) {
    match source {
        Source::Base64(source) => base64::close(&mut source.data),
        Source::Url(_) | Source::Other(_) => {}
    }
}

/// The open data of a block: that of a data block, or that of the part `place` of a tool result.
fn open_source(block: &ContentBlock, place: usize) -> Option<&Source> {
    match block {
        ContentBlock::Data(block) if block.finished_at.is_none() => Some(&block.source),
        ContentBlock::ToolResult(result) if result.finished_at.is_none() => match &result.output {
            Payload::Parts(parts) => match parts.get(place)? {
                Part::Data(block) => Some(&block.source),
                Part::Text(_) | Part::Other(_) => None,
            },
            Payload::Text(_) => None,
        },
        content_blocks!(Data ToolResult Text Thinking Hint ToolCall Other) => None,
    }
}

/// The number of values of `place` for [`open_source`].
fn source_count(block: &ContentBlock) -> usize {
    if let ContentBlock::ToolResult(ToolResult { output: Payload::Parts(parts), .. }) = block {
        parts.len()
    } else {
        1
    }
}

fn close_parts(output: &mut Payload) {
    let Payload::Parts(parts) = output else { return };
    for part in parts {
        match part {
            Part::Data(block) => close_source(&mut block.source),
            Part::Text(_) | Part::Other(_) => {}
        }
    }
}
