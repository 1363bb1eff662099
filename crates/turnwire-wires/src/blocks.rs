//! The content-block protocol over WebSocket: turns of numbered blocks, commands, history.
//!
//! ```
//! use turnwire_core::Event;
//! use turnwire_wires::{EncoderOptions, Frames, Wire};
//!
//! let mut encoder = Wire::named("blocks").unwrap().encoder(&EncoderOptions::default())?;
//! let mut frames = Frames::default();
//! for line in [
//!     r#"{"type":"REPLY_START","reply_id":"m1","session_id":"s"}"#,
//!     r#"{"type":"TEXT_BLOCK_START","reply_id":"m1","block_id":"b"}"#,
//!     r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"m1","block_id":"b","delta":"Hi"}"#,
//! ] {
//!     frames.clear();
//!     encoder.encode(&Event::from_json(line)?, &mut frames);
//! }
//! let (_, frame) = frames.iter().next().unwrap();
//! assert_eq!(frame, concat!(
//!     r#"{"type":"content_block_delta","index":0,"#,
//!     r#""delta":{"type":"text_delta","text":"Hi"},"message_id":"m1"}"#
//! ));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A turn
//!
//! A turn is a reply of the session's own agent: `message_start`, blocks, `message_delta`,
//! `message_stop`. Every frame carries its `message_id`, the reply's id. A reply that continues after
//! a pause has a second `REPLY_START` but no second `message_start`. `index` counts the blocks of the
//! turn, including sub-agents', in the order of their starts.
//!
//! - Text and thinking stream. Thinking and hints are written only if the display mode is `agent`:
//!   that of the last user `MESSAGE` (`display_mode` in its metadata), or the encoder's.
//! - `is_final` is known only after the text, so the stop of a text waits for it: a tool call makes it
//!   false; the end of the model call or of the reply without one makes it true. A turn that is
//!   stopped or fails has no final text. Later stops wait too, because clients order blocks by stops.
//! - If the end of a text replaces it, the text starts again (`replaces` has the old index), and the
//!   old one never ends. Blocks that a model call discards are named in a frame
//!   `content_block_discard`; clients that do not know it never see them end. If one had ended, the
//!   turn is written again, from `message_start` on, each frame with `again`: clients have no other
//!   way to remove a block.
//! - `tool_use` is written when its input is complete, `tool_result` when the tool is done; each is
//!   complete in its start. An input that is not a JSON object is `{"raw_input": "its text"}`. A
//!   tool's title is `title` in the metadata of its call's events or in the call's `extra`; the
//!   default is its name. The artifact is the entry `artifact` of the result's metadata. A result that
//!   has not ended when its reply ends is an error.
//! - `approval_request` follows its calls; its key is `SESSION_COUNT`, where the count is the
//!   request's seq ([`ApprovalKey`]). `approval_result` has the decisions in its start: an input that
//!   differs from the call's is an `edit`.
//! - A sub-agent's blocks carry `subagent` (the last name of its path) and `parent_tool_use_id`. Its
//!   starts and ends are not written, its texts are never final, and outside of a turn it is ignored.
//! - A stopped or failed turn ends with a text block whose delta has `extras`. The code is the error's
//!   type in capitals, `LLM_ERROR` for `upstream`; `can_retry` is true for `rate_limit`, `upstream`
//!   and `connection`. `stop_reason` is `end_turn`, `user_stopped`, or our finish reason.
//! - A `CUSTOM` event `file_processing` with `{status, files, message}` starts the block of that name,
//!   updates it, and ends it when the status is not `processing`. One before its turn waits for it.
//!
//! Our additions, which clients ignore: `id` in text and thinking blocks, `reply_id` in an
//! `approval_request`, `sender` and `role` in `message_start`, `usage`, `metadata` and
//! `structured_output` in `message_delta`, `suggested_rules` in `review_configs`.
//!
//! # What the protocol has no frame for
//!
//! | Turnwire | blocks |
//! |---|---|
//! | data | block `attachment`, as in the history; bytes are a `data:` URL |
//! | hint | block `hint` |
//! | unknown block | that block; wrapped in a `block` if the protocol uses its type |
//! | `REQUIRE_EXTERNAL_EXECUTION` | block `external_execution_request` with its `tool_calls` |
//! | `CUSTOM` | frame `custom`; if its name is `blocks:` and the `type` of its value, that value unchanged |
//! | `MESSAGE` | frame `message`, one for each entry that it has in the history |
//! | `SUPERSEDE`, `RESET`, unknown events | frame `event` with the whole event |
//!
//! Decoding, an unknown frame becomes a `CUSTOM` event named `blocks:` and its type, and a truncated
//! stream ends its reply as `truncated`. The server's frames outside of turns (`connected`, `auth_ok`,
//! `subscribed`, `accepted`, `pong`) are ignored.

mod approval;
mod block_decoder;
mod client_request;
mod conversions;
mod decode;
mod encode;
mod message;
mod reply_encoder;
mod turn_writer;

pub use approval::{
    ActionRequest, Approval, ApprovalDetails, ApprovalKey, Decision, ReviewConfig, Verdict,
};
pub use client_request::{
    AnswerFrame, Chat, Command, ContentUrl, History, IncomingCommand, PendingApproval,
    ServerAnswer, Status, SubscriptionStatus,
};
pub use conversions::{
    APPROVAL_SECONDS, DisplayMode, FAILED, FAILED_FOR_NOW, RAW_INPUT, RESULT_CHARACTERS,
    USER_STOPPED,
};
pub use message::HistoryEncoder;

use crate::loss::loss_list;
use crate::registry::{MessageCodec, Wire};

pub(crate) static WIRE: Wire = Wire {
    name: "blocks",
    about: "the content-block stream over WebSocket, its commands and its history",
    client_request: Some("commands"),
    has_websocket: true,
    stream_losses: loss_list! {
        Times, UnknownFields, UnfinishedUsage, Unfinished, Interleaving, ThinkingExtras,
        InputText, ResultStates, ResultMetadata, ResultParts, ResultData, LongResults,
        SubAgents,
    },
    message_losses: loss_list! {
        Times, UnknownFields, SystemMessages, ThinkingExtras, InputText, ResultStates,
        ResultMetadata, ResultParts, ResultData,
    },
    decode: Some(|decoding| Box::new(decode::Decoder::new(decoding))),
    encode: Some(|encoding| Box::new(encode::Encoder::new(encoding))),
    messages: Some(MessageCodec {
        decode: message::decode_messages,
        encode: message::encode_messages,
    }),
    ..Wire::EMPTY
};

/// The block and the custom event with the status of a turn's files.
const FILE_PROCESSING: &str = "file_processing";
/// The block of calls that the client executes.
const EXTERNAL_EXECUTION: &str = "external_execution_request";
/// Wraps an unknown block whose type the protocol uses itself.
const WRAPPED_BLOCK: &str = "block";
/// The name prefix of custom events that hold an unchanged frame.
const VERBATIM_PREFIX: &str = "blocks:";

/// Block types with a meaning in this protocol.
const RESERVED_BLOCK_TYPES: &[&str] = &[
    "text",
    "thinking",
    "tool_use",
    "tool_result",
    "approval_request",
    "approval_result",
    "attachment",
    "hint",
    "terminal_user_stopped",
    "terminal_error",
    FILE_PROCESSING,
    EXTERNAL_EXECUTION,
    WRAPPED_BLOCK,
];

/// Writes a frame with the token of the event that it was made from, which the last of an event's
/// frames carries: who drops between two of them gets both again.
///
/// ```
/// let mut out = String::new();
/// turnwire_wires::blocks::with_event_id(r#"{"type":"message_stop"}"#, "e1.7", &mut out);
/// assert_eq!(out, r#"{"type":"message_stop","event_id":"e1.7"}"#);
/// ```
pub fn with_event_id(frame: &str, token: &str, out: &mut String) {
    let Some(open) = frame.strip_suffix('}') else { return out.push_str(frame) };
    out.push_str(open);
    if !open.ends_with('{') {
        out.push(',');
    }
    out.push_str("\"event_id\":");
    out.push_str(turnwire_core::Json::from(token).text());
    out.push('}');
}
