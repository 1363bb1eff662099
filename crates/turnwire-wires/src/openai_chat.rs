//! The wire `openai-chat`: OpenAI's chat completions, and compatible APIs such as DeepSeek, Groq, xAI, Mistral, Moonshot,
//! Alibaba, Perplexity, OpenRouter, vLLM and llama.cpp.
//!
//! ```
//! use turnwire_core::{Folder, TextBlock, ThinkingBlock};
//! use turnwire_wires::{DecoderOptions, Wire};
//!
//! let body = "data: {\"id\":\"c1\",\"choices\":[{\"delta\":{\"content\":\"<think>Two\"}}]}\n\n\
//!             data: {\"id\":\"c1\",\"choices\":[{\"delta\":{\"content\":\".</think>4\"}}]}\n\n\
//!             data: [DONE]\n\n";
//! let wire = Wire::named("openai-chat").unwrap();
//! let mut folder = Folder::default();
//! for event in wire.decoder(&DecoderOptions::default())?.decode_all(body.as_bytes())? {
//!     folder.push(&event)?;
//! }
//! let msg = folder.into_messages().next().unwrap();
//! assert_eq!(msg.id(), "c1");
//! assert_eq!(msg.first::<ThinkingBlock>().unwrap().thinking, "Two.");
//! assert_eq!(msg.first::<TextBlock>().unwrap().text, "4");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A finish reason of ours that the protocol does not have is in `native_finish_reason` (OpenRouter's name for a
//! provider's own reason) and in the `code` of an error.

mod audio;
mod chunk;
mod client_request;
mod collect;
mod decode;
mod encode;
mod error;
mod message;
mod model_request;
mod parts;
mod stream_blocks;

use crate::loss::{PROVIDER_MESSAGES, PROVIDER_STREAMS, loss_list};
use crate::provider::ProviderStream;
use crate::registry::{MessageCodec, ResumeMode, Wire};
use crate::structured_output;
use serde::Deserialize;
use serde_json::value::RawValue;
use turnwire_core::Json;

pub use client_request::read as read_request;
pub use collect::ChatCompletion;

const NAME: &str = "openai-chat";

/// Options of the encoder, for [`EncoderOptions::with`](crate::EncoderOptions::with).
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamOptions {
    /// Whether the stream ends with a usage chunk.
    pub include_usage: bool,
}

pub(crate) static WIRE: Wire = Wire {
    name: NAME,
    about: "OpenAI's chat completions and compatible APIs",
    stream_losses: loss_list! {
        PROVIDER_STREAMS;
        OtherReasons, StructuredText, StructuredOutput, BlockIds, EmptyBlocks,
        BlockBoundaries, Interleaving, Corrections, ThinkTags, ThinkingExtras, Data,
        EmptyInput, CallOrder, OpenCalls,
    },
    message_losses: loss_list! {
        PROVIDER_MESSAGES;
        EmptyBlocks, BlockBoundaries, BlockOrder, ThinkingExtras, Data, AllResultStates,
        ResultData,
    },
    // Clients of this protocol cannot resume.
    resume: ResumeMode::Replay,
    end_marker: Some("[DONE]"),
    decode: Some(|decoding| Box::new(ProviderStream(decode::ChatDecoder::new(decoding)))),
    encode: Some(|encoding| {
        structured_output::wrap_encoder(encoding, encode::ChatEncoder::new(encoding))
    }),
    messages: Some(MessageCodec { decode: message::decode, encode: message::encode }),
    model_request: Some(model_request::build_body),
    accepts_data: Some(model_request::accepts_data),
    ..Wire::EMPTY
};

/// The input of a call as clients expect it: an empty input is `{}`.
fn input_or_empty_object(input: &str) -> &str {
    if input.trim_ascii().is_empty() { "{}" } else { input }
}

/// The log probabilities of the text in a choice. Those of a refusal are left out.
fn parse_logprobs(raw: &RawValue) -> Vec<Json> {
    #[derive(Deserialize)]
    struct Logprobs {
        content: Option<Vec<Json>>,
    }
    let logprobs = serde_json::from_str(raw.get());
    logprobs.ok().and_then(|Logprobs { content }| content).unwrap_or_default()
}
