//! The wire `dashscope`: DashScope's own API for text and multimodal generation. Decodes its streams, writes its requests, and
//! converts its messages. (Its compatible mode is `openai-chat`.)
//!
//! ```
//! use turnwire_wires::{DecoderOptions, Wire};
//!
//! let body = br#"id:1
//! event:result
//! :HTTP_STATUS/200
//! data:{"output":{"choices":[{"message":{"content":"Hi!","role":"assistant"},"finish_reason":"stop"}]},"request_id":"r"}
//!
//! "#;
//! let events = Wire::named("dashscope").unwrap().decoder(&DecoderOptions::default())?.decode_all(body)?;
//! let types: Vec<&str> = events.iter().map(|event| event.kind.type_name()).collect();
//! assert_eq!(types[2..5], ["TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The header `X-DashScope-SSE: enable` requests a stream. A request in which any content is a list is for multimodal
//! generation.

mod cumulative;
mod decode;
mod message;
mod message_draft;
mod model_request;

use crate::loss::{PROVIDER_MESSAGES, loss_list};
use crate::provider::ProviderStream;
use crate::registry::{MessageCodec, Wire};

const NAME: &str = "dashscope";

pub(crate) static WIRE: Wire = Wire {
    name: NAME,
    about: "DashScope's own API, text and multimodal",
    message_losses: loss_list! {
        PROVIDER_MESSAGES;
        Names, EmptyBlocks, ThinkingExtras, OtherSources, NotMedia, DataNames, MediaTypes,
        AllResultStates, ResultData, ResultParts,
    },
    decode: Some(|decoding| Box::new(ProviderStream(decode::DashscopeDecoder::new(decoding)))),
    messages: Some(MessageCodec { decode: message::decode, encode: message::encode }),
    model_request: Some(|request| Ok(model_request::build_body(request))),
    accepts_data: Some(model_request::accepts_data),
    ..Wire::EMPTY
};
