//! The wire `anthropic`: Anthropic's Messages API, both as a client of a model and as a server of an agent.
//!
//! ```
//! use turnwire_core::Folder;
//! use turnwire_wires::{DecoderOptions, Wire};
//!
//! let body = r#"
//! data: {"type":"message_start","message":{"id":"msg_1","model":"m","usage":{"input_tokens":9}}}
//!
//! data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
//!
//! data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi!"}}
//!
//! data: {"type":"content_block_stop","index":0}
//!
//! data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}
//!
//! data: {"type":"message_stop"}
//! "#;
//! let wire = Wire::named("anthropic").unwrap();
//! let mut folder = Folder::default();
//! for event in wire.decoder(&DecoderOptions::default())?.decode_all(body.as_bytes())? {
//!     folder.push(&event)?;
//! }
//! let msg = folder.into_messages().next().unwrap();
//! assert_eq!((msg.id(), msg.text("").as_deref()), ("msg_1", Some("Hi!")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Blocks that only Anthropic knows (calls and results of its server tools, compaction, fallback) are kept verbatim in
//! their place, and sent back there. Redacted thinking is a thinking block without text whose field
//! `redacted_thinking_data` has the bytes.

mod client_request;
mod collect;
mod content;
mod decode;
mod encode;
mod frame;
mod message;
mod model_request;
mod schema;

use crate::loss::{PROVIDER_MESSAGES, PROVIDER_STREAMS, loss_list};
use crate::provider::ProviderStream;
use crate::registry::{MessageCodec, ResumeMode, Wire};
use crate::structured_output;

pub use client_request::read as read_request;
pub use collect::Message;

const NAME: &str = "anthropic";

pub(crate) static WIRE: Wire = Wire {
    name: NAME,
    about: "Anthropic's Messages API, for models and for clients",
    stream_losses: loss_list! {
        PROVIDER_STREAMS;
        FinishedReasons, ErrorTypes, StructuredOutput, BlockIds, Corrections, OtherMedia,
        DataNames, MediaTypes, EmptyInput,
    },
    message_losses: loss_list! {
        PROVIDER_MESSAGES;
        UnsignedThinking, Names, EmptyMessages, EmptyBlocks, OtherMedia, DataNames,
        MediaTypes, InputText, ResultNames, ResultStates,
    },
    // Clients of this protocol cannot resume.
    resume: ResumeMode::Replay,
    decode: Some(|decoding| Box::new(ProviderStream(decode::AnthropicDecoder::new(decoding)))),
    encode: Some(|encoding| {
        structured_output::wrap_encoder(encoding, encode::AnthropicEncoder::new(encoding))
    }),
    messages: Some(MessageCodec { decode: message::decode, encode: message::encode }),
    model_request: Some(|request| Ok(model_request::build_body(request))),
    accepts_data: Some(model_request::accepts_data),
    ..Wire::EMPTY
};
