//! Every kind of event, in one table. To add an event type, add it here and to a group in `groups.rs`; the
//! compiler then finds the places that must handle it.
//!
//! The order of the fields is their order in the JSON. A field is
//!
//! - `needed`: an event without it is refused;
//! - `default`: it may be missing or null, and is always written, as AgentScope writes it;
//! - `ours`: not in AgentScope 2.x for Python; written only if it has a value;
//! - `lead`: like `default`, but written before `reply_id`.

use super::field::Field;
use super::read::RawEvent;
use super::{Chunk, ConfirmResult, CustomValue, Text, TokenCounts, owned};
use crate::block::{ContentBlock, HintBlock, Payload, ToolCall, ToolResult};
use crate::error::{Error, ErrorKind, Result};
use crate::event_kinds;
use crate::json::{Fields, Json};
use crate::msg::{Msg, ReplyError};
use crate::names::{FinishedReason, Role, ToolResultState};
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
            #[derive(Debug, Clone, Default, PartialEq, Eq)]
            pub struct $name $(<$lt>)? {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            #[cfg(feature = "schema")]
            impl $(<$lt>)? schemars::JsonSchema for $name $(<$lt>)? {
                fn schema_name() -> std::borrow::Cow<'static, str> {
                    concat!(stringify!($name), "Event").into()
                }

                fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                    let fields: &[crate::schema::FieldSchema] =
                        &[$(|generator| generator.subschema_for::<$type>(),)*];
                    crate::schema::event(generator, $word, fields)
                }
            }

            impl<$life> From<$name $(<$lt>)?> for EventKind<$life> {
                fn from(event: $name $(<$lt>)?) -> Self {
                    Self::$name(event.into())
                }
            }
        )+

        /// What happened.
        // Not `#[non_exhaustive]`: a new kind must be a compile error wherever the crates of this workspace
        // match events. Events of an unknown type are `Unknown`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum EventKind<$life> {
            $($(#[$doc])* $name(events!(@hold $($boxed)? $name $(<$lt>)?)),)+
            /// An event of an unknown type; its fields are in the event's `rest`.
            Unknown(Text<$life>),
        }

        impl<$life> EventKind<$life> {
            /// All known types.
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

            /// The schema of each event.
            #[cfg(feature = "schema")]
            pub(crate) fn schemas(
                generator: &mut schemars::SchemaGenerator,
            ) -> Vec<schemars::Schema> {
                vec![$(generator.subschema_for::<$name $(<$lt>)?>(),)+]
            }

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

            /// Writes the fields that come before `reply_id`.
            pub(super) fn write_lead<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                match self {
                    $(Self::$name(event) => {
                        let _ = event;
                        $(events!(@write_lead $need map event $field);)*
                    })+
                    Self::Unknown(_) => {}
                }
                Ok(())
            }

            /// Writes the fields that come after `reply_id`.
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

            /// The same without borrowed text.
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
    (@write_lead lead $map:ident $event:ident $field:ident) => {
        $event.$field.write($map, stringify!($field))?;
    };
    (@write_lead $need:ident $map:ident $event:ident $field:ident) => {};
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
    /// Appends to the text of a text block.
    "TEXT_BLOCK_DELTA" TextBlockDelta<'a> {
        /// Id of the block.
        block_id: Text<'a>, needed;
        /// The text to append.
        delta: Text<'a>, needed;
    }

    /// Appends to the text of a thinking block.
    "THINKING_BLOCK_DELTA" ThinkingBlockDelta<'a> {
        /// Id of the block.
        block_id: Text<'a>, needed;
        /// The reasoning to append.
        delta: Text<'a>, needed;
    }

    /// Appends to the input of a tool call.
    "TOOL_CALL_DELTA" ToolCallDelta<'a> {
        /// Id of the call.
        tool_call_id: Text<'a>, needed;
        /// The JSON fragment to append.
        delta: Text<'a>, needed;
    }

    /// Appends text to the output of a tool result.
    "TOOL_RESULT_TEXT_DELTA" ToolResultTextDelta<'a> {
        /// Id of the call.
        tool_call_id: Text<'a>, needed;
        /// The text to append.
        delta: Text<'a>, needed;
    }

    /// A reply starts. Repeated when a reply is resumed; then it changes nothing.
    "REPLY_START" ReplyStart {
        /// The session.
        session_id: String, lead;
        /// Name of the agent.
        name: String, default;
        /// Role of the message.
        role: Role, default;
    }

    /// A reply ends. No event of it may follow.
    "REPLY_END" ReplyEnd [boxed] {
        /// The session.
        session_id: String, lead;
        /// Why it ended.
        finished_reason: FinishedReason, default;
        /// The error, if it failed.
        error: Option<ReplyError>, default;
        /// Structured output of the reply.
        structured_output: Option<Json>, ours;
        /// Added to the message's metadata.
        message_metadata: Fields, ours;
    }

    /// A model call starts.
    "MODEL_CALL_START" ModelCallStart {
        /// Name of the model.
        model_name: String, default;
    }

    /// A model call ends.
    "MODEL_CALL_END" ModelCallEnd [boxed] {
        /// Tokens used.
        usage: TokenCounts, default;
        /// Why it ended.
        finished_reason: FinishedReason, default;
        /// The error, if it failed.
        error: Option<ReplyError>, ours;
        /// Ids of blocks to remove, because the call is repeated after a crash.
        discard: Vec<String>, ours;
    }

    /// A text block starts.
    "TEXT_BLOCK_START" TextBlockStart<'a> {
        /// Id of the block.
        block_id: Text<'a>, needed;
    }

    /// A text block ends.
    "TEXT_BLOCK_END" TextBlockEnd<'a> {
        /// Id of the block.
        block_id: Text<'a>, needed;
        /// Replaces the text of the deltas, for example if a voice reply was cut short.
        text: Option<Text<'a>>, default;
        /// Further fields for the block.
        extra: Fields, ours;
    }

    /// A thinking block starts.
    "THINKING_BLOCK_START" ThinkingBlockStart<'a> {
        /// Id of the block.
        block_id: Text<'a>, needed;
    }

    /// A thinking block ends.
    "THINKING_BLOCK_END" ThinkingBlockEnd<'a> {
        /// Id of the block.
        block_id: Text<'a>, needed;
        /// Further fields for the block, such as `signature`.
        extra: Fields, ours;
    }

    /// A data block starts.
    "DATA_BLOCK_START" DataBlockStart<'a> [boxed] {
        /// Id of the block.
        block_id: Text<'a>, needed;
        /// Media type, such as `image/png`.
        media_type: Option<String>, ours;
        /// File name.
        name: Option<String>, default;
    }

    /// Appends bytes to a data block, or sets its URL.
    "DATA_BLOCK_DELTA" DataBlockDelta<'a> [boxed] {
        /// Id of the block.
        block_id: Text<'a>, needed;
        /// Media type, such as `image/png`.
        media_type: Option<String>, ours;
        /// Base64, or a URL.
        chunk: Chunk<'a>, needed;
    }

    /// A data block ends.
    "DATA_BLOCK_END" DataBlockEnd<'a> {
        /// Id of the block.
        block_id: Text<'a>, needed;
        /// Further fields for the block.
        extra: Fields, ours;
    }

    /// A complete hint.
    "HINT_BLOCK" Hint [boxed] {
        /// Id of the block.
        block_id: String, needed;
        /// Where the hint comes from.
        source: Option<String>, default;
        /// Content of the hint.
        hint: Payload, needed;
    }

    /// A tool call starts.
    "TOOL_CALL_START" ToolCallStart<'a> {
        /// Id of the call.
        tool_call_id: Text<'a>, needed;
        /// Name of the tool.
        tool_call_name: Text<'a>, default;
    }

    /// The input of a tool call is complete.
    "TOOL_CALL_END" ToolCallEnd<'a> {
        /// Id of the call.
        tool_call_id: Text<'a>, needed;
        /// Further fields for the block.
        extra: Fields, ours;
    }

    /// A tool starts to run.
    "TOOL_RESULT_START" ToolResultStart<'a> {
        /// Id of the call.
        tool_call_id: Text<'a>, needed;
        /// Name of the tool.
        tool_call_name: Text<'a>, default;
    }

    /// Appends bytes or a URL to the output of a tool result.
    "TOOL_RESULT_DATA_DELTA" ToolResultDataDelta<'a> [boxed] {
        /// Id of the call.
        tool_call_id: Text<'a>, needed;
        /// Id of the data block inside the output. Empty: a new one.
        block_id: Text<'a>, default;
        /// Media type, such as `image/png`.
        media_type: Option<String>, ours;
        /// Base64, or a URL.
        chunk: Chunk<'a>, needed;
    }

    /// A tool has ended. The event's metadata becomes that of the result.
    "TOOL_RESULT_END" ToolResultEnd<'a> {
        /// Id of the call.
        tool_call_id: Text<'a>, needed;
        /// State of the result.
        state: ToolResultState, needed;
    }

    /// The agent has reached its maximum number of iterations. Deprecated, still sent.
    "EXCEED_MAX_ITERS" ExceedMaxIters {
        /// Name of the agent.
        name: String, default;
    }

    /// Tool calls wait for a person's approval.
    "REQUIRE_USER_CONFIRM" RequireUserConfirm {
        /// The calls.
        tool_calls: Vec<ToolCall>, needed;
    }

    /// Tool calls wait for a result from outside.
    "REQUIRE_EXTERNAL_EXECUTION" RequireExternalExecution {
        /// The calls.
        tool_calls: Vec<ToolCall>, needed;
    }

    /// A person's answers to pending calls.
    "USER_CONFIRM_RESULT" UserConfirmResult {
        /// One answer per call.
        confirm_results: Vec<ConfirmResult>, needed;
    }

    /// Results of tool calls that were executed outside.
    "EXTERNAL_EXECUTION_RESULT" ExternalExecutionResult {
        /// The results.
        execution_results: Vec<ToolResult>, needed;
    }

    /// A person stops the reply.
    "USER_INTERRUPT" UserInterrupt {}

    /// Anything else that an application sends to its front end.
    "CUSTOM" Custom {
        /// Name of the custom event.
        name: String, needed;
        /// Payload.
        value: CustomValue, default;
    }

    /// A complete block that no other event can build.
    "BLOCK" Block {
        /// The block.
        block: Box<ContentBlock>, needed;
    }

    /// A complete message that is not a reply: a user's, or one whose events were deleted.
    "MESSAGE" Message {
        /// The message.
        message: Box<Msg>, needed;
    }

    /// These messages no longer count as history. The log keeps them.
    "SUPERSEDE" Supersede {
        /// Ids of the messages.
        message_ids: Vec<String>, needed;
    }

    /// The client's resume token is no longer valid: discard everything, all events follow again.
    "RESET" Reset {
        /// The session's epoch.
        epoch: String, default;
        /// Why the token is not valid.
        reason: String, default;
    }

    /// Java: a middleware or a tool requests that the reply stops early.
    "REQUEST_STOP" RequestStop {
        /// Reason for people.
        reason: Option<String>, ours;
        /// Java's `GenerateReason`.
        generate_reason: Option<String>, ours;
    }

    /// Java: all tool calls of a model call were denied.
    "ALL_TOOLS_DENIED" AllToolsDenied {
        /// The calls.
        denied_tool_calls: Vec<ToolCall>, default;
    }

    /// Java: a client can talk to a sub-agent directly.
    "SUBAGENT_EXPOSED" SubagentExposed [boxed] {
        /// Session of the sub-agent.
        session_id: String, lead;
        /// Id of the sub-agent.
        subagent_id: String, default;
        /// Id of its agent.
        agent_id: String, default;
        /// Display name.
        label: Option<String>, ours;
    }
}

impl EventKind<'_> {
    /// Whether the type is known.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }

    /// Whether an event of this kind must have a `reply_id`.
    pub(super) fn needs_reply(&self) -> bool {
        !matches!(self, event_kinds!(java session))
    }

    /// Whether its `reply_id` may be empty.
    pub(super) fn may_lack_reply(&self) -> bool {
        !self.needs_reply() || matches!(self, Self::ReplyEnd(_) | Self::UserInterrupt(_))
    }

    /// The id of the block or tool call that the event adds to the message while a model answers.
    pub(crate) fn started_block_id(&self) -> Option<&str> {
        match self {
            Self::TextBlockStart(start) => Some(&start.block_id),
            Self::ThinkingBlockStart(start) => Some(&start.block_id),
            Self::DataBlockStart(start) => Some(&start.block_id),
            Self::ToolCallStart(start) => Some(&start.tool_call_id),
            Self::Block(block) => Some(block.block.id()),
            event_kinds!(
                TextBlockDelta TextBlockEnd ThinkingBlockDelta ThinkingBlockEnd DataBlockDelta
                DataBlockEnd Hint ToolCallDelta ToolCallEnd
                reply model_call tool_result pending_call notice session
            ) => None,
        }
    }

    /// Whether an event of this kind belongs to a reply. Others change no message of a reply and never fail
    /// a stream.
    pub fn is_part_of_reply(&self) -> bool {
        !matches!(self, event_kinds!(session))
    }
}

impl ReplyEnd {
    /// The end of a reply that failed.
    pub fn failed(error: ReplyError) -> Self {
        Self { finished_reason: FinishedReason::Error, error: Some(error), ..Self::default() }
    }
}

impl From<HintBlock> for Hint {
    fn from(block: HintBlock) -> Self {
        Self { block_id: block.id, source: block.source, hint: block.hint }
    }
}
