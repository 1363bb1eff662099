//! AG-UI 1.0: what its clients send, and the runs that they get.
//!
//! ```
//! use turnwire_core::Event;
//! use turnwire_wires::{Encoding, Frames, Wire, ag_ui::RunInput};
//!
//! let input = RunInput::parse(
//!     r#"{"threadId":"t","runId":"run","messages":[{"id":"u","role":"user","content":"hi"}]}"#,
//! )?;
//! assert_eq!(input.new_messages(|_| false)?[0].text("").as_deref(), Some("hi"));
//!
//! let encoding = Encoding { run_id: Some(input.run_id), ..Encoding::default() };
//! let mut encoder = Wire::named("ag-ui").unwrap().encoder(&encoding)?;
//! let mut frames = Frames::default();
//! let start = Event::from_json(r#"{"type":"REPLY_START","reply_id":"r","session_id":"t"}"#)?;
//! encoder.event(&start, &mut frames);
//! assert_eq!(
//!     frames.iter().next().unwrap().1,
//!     r#"{"type":"RUN_STARTED","threadId":"t","runId":"run","protocolVersion":"1.0"}"#
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | of ours | of theirs |
//! |---|---|
//! | a reply | a run; several, where it waits for somebody in between |
//! | a text, thinking, a tool call, a result | a message each, with the block's id (`CALL-result` for a result) |
//! | data, a hint, a block of another type | an activity with the block as content |
//! | a model call | a step |
//! | a call that asks a person | an interrupt; the answer is `{approved, editedArgs?}` |
//! | a call that the client executes | a run that went well with `pendingToolCallIds`; the answer is a tool's message |
//! | a stop | the outcome `cancelled` |
//! | a sub-agent's events | messages with its reply's id as `subagentRunId` |
//! | a text that its end replaces, an edited input, a discarded block | an activity `discarded` in the old one's place, and a new message |
//!
//! The messages that a client ends with have our ids, and say in their metadata which reply they
//! are a part of.

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

pub(crate) static WIRE: Wire = Wire {
    name: "ag-ui",
    about: "AG-UI 1.0: requests of its clients, and runs as server-sent events",
    client_request: Some("RunAgentInput"),
    // What no client can read from the stream. Messages by themselves lose nothing.
    stream_losses: &[
        Loss::Times,
        Loss::Metadata,
        Loss::UnknownFields,
        Loss::ThinkingExtras,
        Loss::CallStates,
        Loss::ResultNames,
        Loss::ResultParts,
    ],
    resume: ResumeMode::Snapshot,
    encode: Some(|encoding| Box::new(encode::Encoder::new(encoding))),
    messages: Some(MessageCodec {
        decode: read_messages::read_messages,
        encode: write_messages::write_messages,
    }),
    ..Wire::EMPTY
};
