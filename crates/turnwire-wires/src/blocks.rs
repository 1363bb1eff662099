//! The content-block stream over WebSocket: turns as envelopes of numbered blocks.
//!
//! ```
//! use turnwire_core::Event;
//! use turnwire_wires::{Encoding, Frames, Wire};
//!
//! let mut encoder = Wire::named("blocks").unwrap().encoder(&Encoding::default())?;
//! let mut frames = Frames::default();
//! for line in [
//!     r#"{"type":"REPLY_START","reply_id":"m1","session_id":"s"}"#,
//!     r#"{"type":"TEXT_BLOCK_START","reply_id":"m1","block_id":"b"}"#,
//!     r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"m1","block_id":"b","delta":"Hi"}"#,
//! ] {
//!     frames.clear();
//!     encoder.event(&Event::from_json(line)?, &mut frames);
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
//! `message_stop`. Its `message_id`, which every frame carries, is the reply's id. A reply that goes
//! on after a pause says `REPLY_START` again; there is no second `message_start`. `index` counts the
//! blocks of the turn, a sub-agent's included, in the order in which they begin on the wire.
//!
//! - Text and thinking stream. Thinking, and hints, are only there when `display_mode` is `agent`;
//!   the mode is that of the last user `MESSAGE` (its metadata `display_mode`), or the encoder's.
//! - `is_final` is known only when something else has happened, so the stop of a text waits for it:
//!   a tool call makes it false; the end of the model call, or of the reply, without one true. A turn
//!   that is stopped or fails has no final text. What stops behind such a text waits with it, because
//!   clients put blocks in the order of their stops.
//! - A text whose end says that it reads otherwise than its deltas is begun anew (`replaces` has the
//!   old index), and the old one never ends. Blocks that a model call takes back are named in a frame
//!   `content_block_discard`; clients that do not know it never see them end. If one had ended, the
//!   turn is written anew behind it, `message_start` and all, each frame with `again`: clients know no
//!   other way to take something out.
//! - `tool_use` is written when its input is complete, `tool_result` when the tool is done, each whole
//!   in its start. An input that is no JSON object is `{"raw_input": "its text"}`. A tool's friendly
//!   name is the `title` in the metadata of its call's events or in the call's `extra`; without one,
//!   its name. The artifact is the entry `artifact` of the result's metadata. A result that has not
//!   ended when its reply ends is an error.
//! - `approval_request` follows the calls that it is about; its key is `SESSION_COUNT`, where the
//!   count is the question's place in the log ([`ApprovalKey`]). `approval_result` has the decisions
//!   in its start: an input that differs from the call's is an `edit`.
//! - A sub-agent's blocks carry `subagent` (the last name of its path) and `parent_tool_use_id`. Its
//!   starts and ends are no frames, its texts are never final, and outside a turn it is left out.
//! - A turn that was stopped or failed ends with a text block whose delta has `extras`. The code is the
//!   error's type in capitals, `LLM_ERROR` for `upstream`; `can_retry` is true for `rate_limit`,
//!   `upstream` and `connection`. `stop_reason` is `end_turn`, `user_stopped`, or our word.
//! - A `CUSTOM` event `file_processing` with `{status, files, message}` begins the block of that name,
//!   changes it, and ends it when the status is another than `processing`. One that comes before its
//!   turn waits for it.
//!
//! Fields of ours, which clients pass over: `id` in text and thinking blocks, `reply_id` in an
//! `approval_request`, `sender` and `role` in `message_start`, `usage`, `metadata` and
//! `structured_output` in `message_delta`, `suggested_rules` in `review_configs`.
//!
//! # What the protocol has no frame for
//!
//! | ours | theirs |
//! |---|---|
//! | data | block `attachment`, as in the history; bytes are a `data:` URL |
//! | hint | block `hint` |
//! | a block of an unknown type | that block; one whose type is the protocol's own is inside a `block` |
//! | `REQUIRE_EXTERNAL_EXECUTION` | block `external_execution_request` with its `tool_calls` |
//! | `CUSTOM` | frame `custom`; named `blocks:` and the `type` of its value, it is that value as it stands |
//! | `MESSAGE` | frame `message`, one for each entry that it has in the history |
//! | `SUPERSEDE`, `RESET`, unknown events | frame `event` with the whole event |
//!
//! The other way, a frame that we do not know becomes a `CUSTOM` event named `blocks:` and its type,
//! and a stream that breaks off ends its reply as `truncated`. The server's frames beside the turns
//! (`connected`, `auth_ok`, `subscribed`, `accepted`, `pong`) are passed over.

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
    APPROVAL_SECONDS, FAILED, FAILED_FOR_NOW, RAW_INPUT, RESULT_CHARACTERS, USER_STOPPED,
};
pub use message::HistoryEncoder;

use crate::loss::Loss;
use crate::registry::{MessageCodec, Wire};

pub(crate) static WIRE: Wire = Wire {
    name: "blocks",
    about: "the content-block stream over WebSocket, its commands and its history",
    client_request: Some("commands"),
    stream_losses: &[
        Loss::Times,
        Loss::UnknownFields,
        Loss::UnfinishedUsage,
        Loss::Unfinished,
        Loss::Interleaving,
        Loss::ThinkingExtras,
        Loss::InputText,
        Loss::ResultStates,
        Loss::ResultMetadata,
        Loss::ResultParts,
        Loss::ResultData,
        Loss::LongResults,
        Loss::SubAgents,
    ],
    message_losses: &[
        Loss::Times,
        Loss::UnknownFields,
        Loss::SystemMessages,
        Loss::ThinkingExtras,
        Loss::InputText,
        Loss::ResultStates,
        Loss::ResultMetadata,
        Loss::ResultParts,
        Loss::ResultData,
    ],
    decode: Some(|decoding| Box::new(decode::Decoder::new(decoding))),
    encode: Some(|encoding| Box::new(encode::Encoder::new(encoding))),
    messages: Some(MessageCodec {
        decode: message::decode_messages,
        encode: message::encode_messages,
    }),
    ..Wire::EMPTY
};

/// The block, and the custom event, that tell how far a turn's files are.
const FILE_PROCESSING: &str = "file_processing";
/// Calls that the client executes.
const EXTERNAL_EXECUTION: &str = "external_execution_request";
/// A block of an unknown type that would be taken for one of the protocol's.
const WRAPPED_BLOCK: &str = "block";
/// What the name of a custom event begins with that is a frame as it came.
const VERBATIM_PREFIX: &str = "blocks:";

/// Types of blocks that mean something here.
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
