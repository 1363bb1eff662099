//! AG-UI 1.0: requests of its clients, and its runs.
//!
//! ```
//! use turnwire_core::Event;
//! use turnwire_wires::ag_ui::{RunInput, RunOptions};
//! use turnwire_wires::{EncoderOptions, Frames, Wire};
//!
//! let input = RunInput::parse(
//!     r#"{"threadId":"t","runId":"run","messages":[{"id":"u","role":"user","content":"hi"}]}"#,
//! )?;
//! assert_eq!(input.new_messages(|_| false)?[0].text("").as_deref(), Some("hi"));
//!
//! let run = RunOptions { run_id: Some(input.run_id), ..RunOptions::default() };
//! let mut encoder = Wire::named("ag-ui").unwrap().encoder(&EncoderOptions::default().with(run))?;
//! let mut frames = Frames::default();
//! let start = Event::from_json(r#"{"type":"REPLY_START","reply_id":"r","session_id":"t"}"#)?;
//! encoder.encode(&start, &mut frames);
//! assert_eq!(
//!     frames.iter().next().unwrap().1,
//!     r#"{"type":"RUN_STARTED","threadId":"t","runId":"run","protocolVersion":"1.0"}"#
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | Turnwire | AG-UI |
//! |---|---|
//! | reply | a run; several runs if the reply waits for the client in between |
//! | text, thinking, tool call, tool result | one message each, with the block's id (`CALL-result` for a result) |
//! | data, hint, block of another type | an activity with the block as content |
//! | model call | a step |
//! | call that needs an approval | an interrupt; the answer is `{approved, editedArgs?}` |
//! | call that the client executes | a successful run with `pendingToolCallIds`; the answer is a tool message |
//! | stopped reply | the outcome `cancelled` |
//! | sub-agent's events | messages with its reply id as `subagentRunId` |
//! | replaced text, edited input, discarded block | an activity `discarded` in place of the old message, and a new message |
//!
//! The client's messages have our ids, and their metadata names the reply that they are part of.

mod blocks;
mod calls;
mod client_messages;
mod client_request;
mod encode;
mod frame;
mod read_messages;
mod run;
mod turn_state;
mod write_messages;

pub use client_request::{
    Answer, Answers, Context, HistoryComparison, HistoryDifference, PendingReply, RunInput,
};

use crate::loss::Loss;
use crate::registry::{MessageCodec, ResumeMode, Wire};

/// Options of the AG-UI encoder, for [`EncoderOptions::with`](crate::EncoderOptions::with).
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// The run, as the client names it. Default: the reply's id.
    pub run_id: Option<String>,
    /// Whether a client that reconnects has messages in another order or with gaps: then the encoder
    /// first clears them.
    pub resets_client: bool,
    /// What the client understands.
    pub version: ClientVersion,
}

/// Which AG-UI a client understands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientVersion {
    /// 1.0.
    #[default]
    V1,
    /// An older one: it names no version in its requests, and fails on what only 1.0 has (sub-agents, the outcome
    /// `cancelled`, the list of pending calls).
    Before1,
}

pub(crate) static WIRE: Wire = Wire {
    name: "ag-ui",
    about: "AG-UI 1.0: requests of its clients, and runs as server-sent events",
    client_request: Some("RunAgentInput"),
    // What no client can read from the stream. Messages by themselves lose nothing.
    stream_losses: &[
        Loss::Times,
        Loss::Metadata,
        Loss::UnknownFields,
        // The name of a reply without text.
        Loss::Names,
        // The ends of runs say the rest, and there is no message to say it of.
        Loss::EmptyMessages,
        Loss::FailedStructuredOutput,
        Loss::InputTokens,
        Loss::RewrittenBlocks,
        Loss::CallStates,
        // An interrupt has those of a call that waits.
        Loss::SuggestedRules,
        Loss::ResultNames,
        Loss::ResultPositions,
        Loss::ResultParts,
        Loss::ResultPartDetails,
    ],
    resume: ResumeMode::Snapshot,
    encode: Some(|encoding| Box::new(encode::Encoder::new(encoding))),
    messages: Some(MessageCodec {
        decode: read_messages::read_messages,
        encode: write_messages::write_messages,
    }),
    ..Wire::EMPTY
};
