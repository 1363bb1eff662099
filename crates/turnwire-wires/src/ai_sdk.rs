//! The AI SDK: its UI messages, its UI message stream v1, its chat requests.
//!
//! ```
//! use turnwire_core::Event;
//! use turnwire_wires::{Encoding, Frames, Wire, sse};
//!
//! let wire = Wire::named("ai-sdk").unwrap();
//! let mut encoder = wire.encoder(&Encoding::default())?;
//! let (mut frames, mut body) = (Frames::default(), String::new());
//! for line in [
//!     r#"{"type":"REPLY_START","reply_id":"r1"}"#,
//!     r#"{"type":"TEXT_BLOCK_START","reply_id":"r1","block_id":"b"}"#,
//!     r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r1","block_id":"b","delta":"Hi"}"#,
//! ] {
//!     encoder.event(&Event::from_json(line)?, &mut frames);
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
//! What becomes what:
//!
//! | ours | theirs |
//! |---|---|
//! | a reply | a message; its id is the reply's. `metadata.turnwire` has name, times, usage, error, structured output by our names |
//! | a model call and what follows it | a step |
//! | text, thinking | `text`, `reasoning`; what a provider added is in `providerMetadata.turnwire` |
//! | data | `file`, as a URL or a `data:` URL, once it is complete |
//! | a tool call and its result | a `dynamic-tool` part. `providerExecuted` is true but for calls that the client is to execute |
//! | a result's deltas | cumulative previews, at the first delta and then at each doubling |
//! | `REQUIRE_USER_CONFIRM`, the answer | an approval whose id is the call's |
//! | hints, unknown blocks | `data-hint`, `data-block` |
//! | `CUSTOM` | `data-custom` of `name` and `value`, transient |
//! | a sub-agent's reply | `data-subagent` of `agentPath`, `parentToolCallId` and `message`; calls of its that ask, or that the client executes, are tool parts of the main message too |
//! | blocks that are taken back (`discard`), text that is replaced | `reset-step`, and the rest of the step again; beside a text of more than 256 KiB that stays, nothing can be taken back, and a text that is replaced says so in `replaced_by` |
//!
//! A response ends where the reply does, or where it waits for the client: whoever serves it calls
//! [`Encode::end`](crate::Encode::end) then. The next events begin another response for the same
//! message. A client that comes back gets everything from the start, as one response.

mod calls;
mod chunk;
mod client_request;
mod encode;
mod message;
mod part;
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
        Loss::SuggestedRules,
        // The client gets the value.
        Loss::InputText,
        // Those of a result that failed.
        Loss::ResultParts,
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
