//! Every kind of event, in one table.
//!
//! The order of the fields is their order in the JSON. A field is
//!
//! - `needed`: an event without it is no event;
//! - `default`: it may be missing or null, and is always written, as AgentScope writes it;
//! - `ours`: an addition of ours (or of Java's), written only where there is something to say;
//! - `lead`: as `default`, but written before `reply_id`.

use super::field::Field;
use super::read::RawEvent;
use super::{Text, owned};
use crate::block::{ContentBlock, HintBlock, Payload, PermissionRule, ToolCall, ToolResult};
use crate::error::{Error, ErrorKind, Result};
use crate::json::{Fields, Json};
use crate::msg::{Msg, ReplyError, Usage};
use crate::names::{FinishedReason, Role, ToolResultState};
use crate::object::object;
use crate::shape::{self, Shape};
use serde::ser::SerializeMap;

macro_rules! events {
    ($life:lifetime; $(
        $(#[$doc:meta])*
        $word:literal $name:ident $(<$lt:lifetime>)? $([$boxed:ident])? {
            $($(#[$field_doc:meta])* $field:ident: $type:ty, $need:ident;)*
        }
    )+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $name $(<$lt>)? {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            impl<$life> From<$name $(<$lt>)?> for EventKind<$life> {
                fn from(event: $name $(<$lt>)?) -> Self {
                    Self::$name(event.into())
                }
            }
        )+

        /// What happened.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum EventKind<$life> {
            $($(#[$doc])* $name(events!(@hold $($boxed)? $name $(<$lt>)?)),)+
            /// An event of a type that this version does not know; its fields are in the event's
            /// `rest`.
            Unknown(Text<$life>),
        }

        impl<$life> EventKind<$life> {
            /// The types that this version knows.
            pub const TYPES: &'static [&'static str] = &[$($word,)+];

            #[doc(hidden)]
            pub const SHAPES: &'static [Shape] = &[$(Shape {
                name: stringify!($name),
                word: $word,
                doc: concat!($(stringify!($doc),)* ""),
                fields: &[$(shape::Field {
                    name: stringify!($field),
                    kind: stringify!($type),
                    need: stringify!($need),
                    doc: concat!($(stringify!($field_doc),)* ""),
                },)*],
            },)+];

            /// The `type` in the JSON.
            pub fn type_name(&self) -> &str {
                match self {
                    $(Self::$name(_) => $word,)+
                    Self::Unknown(word) => word,
                }
            }

            #[inline]
            pub(super) fn read(word: Text<$life>, raw: &mut RawEvent<$life>) -> Result<Self> {
                Ok(match &*word {
                    $($word => {
                        $(let $field: $type = events!(@read $need raw $word $field);)*
                        Self::$name($name { $($field,)* }.into())
                    })+
                    _ => Self::Unknown(word),
                })
            }

            pub(super) fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                match self {
                    $(Self::$name(event) => {
                        let _ = event;
                        $(events!(@write $need map event $field);)*
                    })+
                    Self::Unknown(_) => {}
                }
                Ok(())
            }

            /// The same, borrowing nothing.
            pub(super) fn into_owned(self) -> EventKind<'static> {
                match self {
                    $(Self::$name(event) => {
                        let event = events!(@unhold $($boxed)? event);
                        let _ = &event;
                        EventKind::$name($name { $($field: event.$field.into_owned_field(),)* }.into())
                    })+
                    Self::Unknown(word) => EventKind::Unknown(owned(word)),
                }
            }
        }
    };
    (@hold boxed $type:ty) => { Box<$type> };
    (@hold $type:ty) => { $type };
    (@unhold boxed $event:ident) => { *$event };
    (@unhold $event:ident) => { $event };
    (@read needed $raw:ident $word:literal $field:ident) => {
        match Field::read($raw, stringify!($field))? {
            Some(value) => value,
            None => return Err(missing($word, stringify!($field))),
        }
    };
    (@read $need:ident $raw:ident $word:literal $field:ident) => {
        Field::read($raw, stringify!($field))?.unwrap_or_default()
    };
    (@write lead $map:ident $event:ident $field:ident) => {};
    (@write ours $map:ident $event:ident $field:ident) => {
        if !$event.$field.is_absent() {
            $event.$field.write($map, stringify!($field))?;
        }
    };
    (@write $need:ident $map:ident $event:ident $field:ident) => {
        $event.$field.write($map, stringify!($field))?;
    };
}

#[cold]
pub(super) fn missing(word: &str, field: &str) -> Error {
    let field = if field == "chunk" { "data` or `url" } else { field };
    Error::new(ErrorKind::NotAnEvent, format!("{word} has no `{field}`"))
}

events! { 'a;
    /// A block's text goes on.
    "TEXT_BLOCK_DELTA" TextBlockDelta<'a> {
        /// Which block.
        block_id: Text<'a>, needed;
        /// The text to append.
        delta: Text<'a>, needed;
    }

    /// A thinking block goes on.
    "THINKING_BLOCK_DELTA" ThinkingBlockDelta<'a> {
        /// Which block.
        block_id: Text<'a>, needed;
        /// The reasoning to append.
        delta: Text<'a>, needed;
    }

    /// A tool call's input goes on.
    "TOOL_CALL_DELTA" ToolCallDelta<'a> {
        /// Which call.
        tool_call_id: Text<'a>, needed;
        /// The JSON fragment to append.
        delta: Text<'a>, needed;
    }

    /// A tool's output goes on with text.
    "TOOL_RESULT_TEXT_DELTA" ToolResultTextDelta<'a> {
        /// Which call's result.
        tool_call_id: Text<'a>, needed;
        /// The text to append.
        delta: Text<'a>, needed;
    }

    /// A reply begins, or goes on after a pause: then it changes nothing.
    "REPLY_START" ReplyStart {
        /// The session.
        session_id: String, lead;
        /// Who replies.
        name: String, default;
        /// In which role.
        role: Role, default;
    }

    /// A reply ends. Nothing comes after it.
    "REPLY_END" ReplyEnd [boxed] {
        /// The session.
        session_id: String, lead;
        /// Why.
        finished_reason: FinishedReason, default;
        /// What went wrong, if it failed.
        error: Option<ReplyError>, default;
        /// Its structured output.
        structured_output: Option<Json>, ours;
        /// What becomes the message's metadata.
        message_metadata: Fields, ours;
    }

    /// A model is called.
    "MODEL_CALL_START" ModelCallStart {
        /// Which model.
        model_name: String, default;
    }

    /// A model has answered, or failed to.
    "MODEL_CALL_END" ModelCallEnd [boxed] {
        /// The tokens it took.
        usage: TokenCounts, default;
        /// Why it ended.
        finished_reason: FinishedReason, default;
        /// What went wrong, if it failed.
        error: Option<ReplyError>, ours;
        /// Blocks to take out again, when the call is repeated after a crash.
        discard: Vec<String>, ours;
    }

    /// A text block begins.
    "TEXT_BLOCK_START" TextBlockStart<'a> {
        /// Its id.
        block_id: Text<'a>, needed;
    }

    /// A text block ends.
    "TEXT_BLOCK_END" TextBlockEnd<'a> {
        /// Which block.
        block_id: Text<'a>, needed;
        /// The whole text, where it is not what the deltas gave: a voice reply cut short.
        text: Option<Text<'a>>, default;
        /// Fields for the block.
        extra: Fields, ours;
    }

    /// A thinking block begins.
    "THINKING_BLOCK_START" ThinkingBlockStart<'a> {
        /// Its id.
        block_id: Text<'a>, needed;
    }

    /// A thinking block ends.
    "THINKING_BLOCK_END" ThinkingBlockEnd<'a> {
        /// Which block.
        block_id: Text<'a>, needed;
        /// Fields for the block, such as its signature.
        extra: Fields, ours;
    }

    /// A data block begins.
    "DATA_BLOCK_START" DataBlockStart<'a> [boxed] {
        /// Its id.
        block_id: Text<'a>, needed;
        /// What the bytes are.
        media_type: Option<String>, ours;
        /// A file's name.
        name: Option<String>, default;
    }

    /// A data block goes on with bytes, or is elsewhere.
    "DATA_BLOCK_DELTA" DataBlockDelta<'a> [boxed] {
        /// Which block.
        block_id: Text<'a>, needed;
        /// What the bytes are.
        media_type: Option<String>, ours;
        /// The bytes, or where they are.
        chunk: Chunk<'a>, needed;
    }

    /// A data block ends.
    "DATA_BLOCK_END" DataBlockEnd<'a> {
        /// Which block.
        block_id: Text<'a>, needed;
        /// Fields for the block.
        extra: Fields, ours;
    }

    /// A hint, whole.
    "HINT_BLOCK" Hint [boxed] {
        /// The block's id.
        block_id: String, needed;
        /// Where it comes from.
        source: Option<String>, default;
        /// What it says.
        hint: Payload, needed;
    }

    /// A tool call begins.
    "TOOL_CALL_START" ToolCallStart<'a> {
        /// The call's id.
        tool_call_id: Text<'a>, needed;
        /// Which tool.
        tool_call_name: Text<'a>, default;
    }

    /// A tool call's input is complete.
    "TOOL_CALL_END" ToolCallEnd<'a> {
        /// Which call.
        tool_call_id: Text<'a>, needed;
        /// Fields for the block.
        extra: Fields, ours;
    }

    /// A tool starts.
    "TOOL_RESULT_START" ToolResultStart<'a> {
        /// For which call.
        tool_call_id: Text<'a>, needed;
        /// Which tool.
        tool_call_name: Text<'a>, default;
    }

    /// A tool's output goes on with bytes, or with a URL.
    "TOOL_RESULT_DATA_DELTA" ToolResultDataDelta<'a> [boxed] {
        /// Which call's result.
        tool_call_id: Text<'a>, needed;
        /// Which data block of the output. Empty: a new one.
        block_id: Text<'a>, default;
        /// What the bytes are.
        media_type: Option<String>, ours;
        /// The bytes, or where they are.
        chunk: Chunk<'a>, needed;
    }

    /// A tool is done. The event's metadata becomes the result's.
    "TOOL_RESULT_END" ToolResultEnd<'a> {
        /// For which call.
        tool_call_id: Text<'a>, needed;
        /// How it went.
        state: ToolResultState, needed;
    }

    /// The agent has gone round as often as it may. Deprecated, still sent.
    "EXCEED_MAX_ITERS" ExceedMaxIters {
        /// Which agent.
        name: String, default;
    }

    /// Calls that wait for a person.
    "REQUIRE_USER_CONFIRM" RequireUserConfirm {
        /// Which calls.
        tool_calls: Vec<ToolCall>, needed;
    }

    /// Calls that someone outside executes.
    "REQUIRE_EXTERNAL_EXECUTION" RequireExternalExecution {
        /// Which calls.
        tool_calls: Vec<ToolCall>, needed;
    }

    /// What a person answered.
    "USER_CONFIRM_RESULT" UserConfirmResult {
        /// One answer per call.
        confirm_results: Vec<ConfirmResult>, needed;
    }

    /// What came of the calls executed outside.
    "EXTERNAL_EXECUTION_RESULT" ExternalExecutionResult {
        /// The results.
        execution_results: Vec<ToolResult>, needed;
    }

    /// A person stops the reply.
    "USER_INTERRUPT" UserInterrupt {}

    /// Anything else that an application wants to tell its front end.
    "CUSTOM" Custom {
        /// What it is about.
        name: String, needed;
        /// The rest of it.
        value: CustomValue, default;
    }

    /// A block that no other event can build, whole.
    "BLOCK" Block {
        /// The block.
        block: Box<ContentBlock>, needed;
    }

    /// A whole message that is no reply: a user's, or one whose events are gone.
    "MESSAGE" Message {
        /// The message.
        message: Box<Msg>, needed;
    }

    /// Messages that no longer count as history; the log keeps them.
    "SUPERSEDE" Supersede {
        /// Their ids.
        message_ids: Vec<String>, needed;
    }

    /// The client's token leads nowhere: empty everything, it all comes again.
    "RESET" Reset {
        /// The session's epoch.
        epoch: String, default;
        /// Why.
        reason: String, default;
    }

    /// Java: a middleware or a tool wants the reply to stop early.
    "REQUEST_STOP" RequestStop {
        /// Why, for a person.
        reason: Option<String>, ours;
        /// Why, as Java names it.
        generate_reason: Option<String>, ours;
    }

    /// Java: every call of a round was denied.
    "ALL_TOOLS_DENIED" AllToolsDenied {
        /// The calls.
        denied_tool_calls: Vec<ToolCall>, default;
    }

    /// Java: a sub-agent can be talked to.
    "SUBAGENT_EXPOSED" SubagentExposed [boxed] {
        /// The session that it has.
        session_id: String, lead;
        /// The sub-agent.
        subagent_id: String, default;
        /// The agent it is.
        agent_id: String, default;
        /// Its name for people.
        label: Option<String>, ours;
    }
}

impl EventKind<'_> {
    /// Whether this version knows the type.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }

    /// The session, for the events that name one before anything else.
    pub(super) fn session_id(&self) -> Option<&str> {
        match self {
            Self::ReplyStart(event) => Some(&event.session_id),
            Self::ReplyEnd(event) => Some(&event.session_id),
            Self::SubagentExposed(event) => Some(&event.session_id),
            _ => None,
        }
    }

    /// Whether an event of this kind belongs to a reply, so that it has to name one.
    pub(super) fn needs_reply(&self) -> bool {
        !matches!(self, Self::RequestStop(_) | Self::AllToolsDenied(_) | Self::SubagentExposed(_))
            && self.is_part_of_reply()
    }

    /// Whether its `reply_id` may be empty.
    pub(super) fn may_lack_reply(&self) -> bool {
        !self.needs_reply() || matches!(self, Self::ReplyEnd(_) | Self::UserInterrupt(_))
    }

    /// Whether an event of this kind is part of a reply, rather than something beside it that
    /// changes no message and never fails a stream.
    pub fn is_part_of_reply(&self) -> bool {
        !matches!(
            self,
            Self::Custom(_)
                | Self::Message(_)
                | Self::Supersede(_)
                | Self::Reset(_)
                | Self::Unknown(_)
        )
    }
}

impl Default for ReplyStart {
    fn default() -> Self {
        Self { session_id: String::new(), name: String::new(), role: Role::Assistant }
    }
}

impl Default for ReplyEnd {
    fn default() -> Self {
        Self {
            session_id: String::new(),
            finished_reason: FinishedReason::Completed,
            error: None,
            structured_output: None,
            message_metadata: Fields::default(),
        }
    }
}

impl Default for ModelCallEnd {
    fn default() -> Self {
        Self {
            usage: TokenCounts::default(),
            finished_reason: FinishedReason::Completed,
            error: None,
            discard: Vec::new(),
        }
    }
}

impl From<HintBlock> for Hint {
    fn from(block: HintBlock) -> Self {
        Self { block_id: block.id, source: block.source, hint: block.hint }
    }
}

/// Bytes as base64, cut anywhere, or a URL: exactly one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// Base64.
    Data(Text<'a>),
    /// A URL.
    Url(Text<'a>),
}

/// The tokens of one model call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Tokens read.
    pub input_tokens: i64,
    /// Tokens written.
    pub output_tokens: i64,
    /// Tokens read from the provider's cache.
    pub cache_input_tokens: i64,
    /// Tokens put into the provider's cache.
    pub cache_creation_input_tokens: i64,
}

impl Usage {
    /// Adds the tokens of a model call.
    pub(crate) fn add(&mut self, counts: TokenCounts) {
        let add = |sum: &mut i64, count: i64| *sum = sum.saturating_add(count);
        add(&mut self.input_tokens, counts.input_tokens);
        add(&mut self.output_tokens, counts.output_tokens);
        add(&mut self.cache_input_tokens, counts.cache_input_tokens);
        add(&mut self.cache_creation_input_tokens, counts.cache_creation_input_tokens);
    }
}

object! {
    /// One person's answer about one call.
    ConfirmResult {
        /// Yes or no.
        confirmed: bool, needed;
        /// The call, with its input as the person left it. An empty input leaves it as it was.
        tool_call: ToolCall, needed;
        /// Rules that the person accepted.
        rules: Option<Vec<PermissionRule>>, nullable;
    }
}

/// The payload of a custom event: any JSON, an empty object by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomValue(pub Json);

impl Default for CustomValue {
    fn default() -> Self {
        Self(serde_json::Map::new().into())
    }
}
