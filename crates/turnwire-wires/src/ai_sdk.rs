//! The AI SDK: UI messages, UI message stream v1, chat requests.
//!
//! ```
//! use turnwire_core::Event;
//! use turnwire_wires::{EncoderOptions, Frames, Wire, sse};
//!
//! let wire = Wire::named("ai-sdk").unwrap();
//! let mut encoder = wire.encoder(&EncoderOptions::default())?;
//! let (mut frames, mut body) = (Frames::default(), String::new());
//! for line in [
//!     r#"{"type":"REPLY_START","reply_id":"r1"}"#,
//!     r#"{"type":"TEXT_BLOCK_START","reply_id":"r1","block_id":"b"}"#,
//!     r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r1","block_id":"b","delta":"Hi"}"#,
//! ] {
//!     encoder.encode(&Event::from_json(line)?, &mut frames);
//! }
//! sse::write(&frames, None, &mut body);
//! assert_eq!(body, r#"data: {"type":"start","messageId":"r1"}
//!
//! data: {"type":"start-step"}
//!
//! data: {"type":"text-start","id":"b"}
//!
//! data: {"type":"text-delta","id":"b","delta":"Hi"}
//!
//! "#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | Turnwire | AI SDK |
//! |---|---|
//! | reply | a message with the reply's id. `metadata.turnwire` has name, times, usage, error, structured output by our names |
//! | model call and what follows it | a step |
//! | text, thinking | `text`, `reasoning`; provider fields are in `providerMetadata.turnwire` |
//! | data | `file`, as a URL or a `data:` URL, once it is complete |
//! | tool call and its result | a `dynamic-tool` part. `providerExecuted` is true except for calls that the client executes |
//! | deltas of a result | cumulative previews, at the first delta and then at each doubling |
//! | `REQUIRE_USER_CONFIRM` and its answer | an approval whose id is the call's |
//! | hint, unknown block | `data-hint`, `data-block` |
//! | `CUSTOM` | `data-custom` with `name` and `value`, transient |
//! | sub-agent's reply | `data-subagent` with `agentPath`, `parentToolCallId` and `message`; its calls that need an approval or that the client executes are also tool parts of the main message |
//! | discarded blocks, replaced text | `reset-step`, and the rest of the step again. Beside a text of more than 256 KiB that stays, nothing can be discarded, and a replaced text says so in `replaced_by` |
//!
//! A response ends where the reply ends, or where it waits for the client: the server then calls
//! [`Encode::end`](crate::Encode::end). Later events start another response for the same message. A
//! client that reconnects gets everything from the start, as one response.

mod blocks;
mod calls;
mod chunk;
mod client_request;
mod encode;
mod message;
mod part;
mod reply_writer;
mod step;
mod subagents;
mod tool;

pub use client_request::{ChatRequest, ContinuedMessage, PendingReply, Trigger};

use crate::loss::Loss;
use crate::registry::{MessageCodec, ResumeMode, Wire};

const NAME: &str = "ai-sdk";

pub(crate) static WIRE: Wire = Wire {
    name: NAME,
    about: "the AI SDK's UI messages and UI message stream v1",
    client_request: Some("chat request"),
    stream_losses: &[
        Loss::UnknownFields,
        Loss::Times,
        Loss::BlockIds,
        Loss::Interleaving,
        Loss::CallStates,
        Loss::SuggestedRules,
        // The client gets the value.
        Loss::InputText,
        Loss::InvalidInput,
        Loss::ResultsWithoutCalls,
        // Calls for which the client would wait.
        Loss::CallsWithoutResults,
        // The client knows the call's.
        Loss::ResultNames,
        Loss::ResultPositions,
        Loss::FailedOutput,
        Loss::DeniedOutput,
        Loss::SingleParts,
        Loss::ResultMetadata,
        // They are parts of the main message.
        Loss::SubAgents,
    ],
    resume: ResumeMode::Replay,
    end_marker: Some("[DONE]"),
    encode: Some(|_| Box::new(encode::Encoder::default())),
    messages: Some(MessageCodec {
        decode: message::decode_messages,
        encode: message::encode_messages,
    }),
    ..Wire::EMPTY
};
