//! The wire `ollama`: Ollama's `/api/chat`. Decodes its streams (NDJSON), writes its requests, and converts its messages.
//!
//! ```
//! use turnwire_wires::{DecoderOptions, Wire};
//!
//! let body = br#"{"model":"m","message":{"role":"assistant","content":"Hi!"},"done":false}
//! {"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}
//! "#;
//! let events = Wire::named("ollama").unwrap().decoder(&DecoderOptions::default())?.decode_all(body)?;
//! let types: Vec<&str> = events.iter().map(|event| event.kind.type_name()).collect();
//! assert_eq!(types[2..5], ["TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A message has one text, one thinking text, images and calls, without an order. Images are base64 without a media type;
//! there is no other media, and there are no URLs.

mod decode;
mod message;
mod model_request;

use crate::loss::{PROVIDER_MESSAGES, loss_list};
use crate::provider::ProviderStream;
use crate::registry::{MessageCodec, Wire};

const NAME: &str = "ollama";

pub(crate) static WIRE: Wire = Wire {
    name: NAME,
    about: "Ollama's /api/chat",
    message_losses: loss_list! {
        PROVIDER_MESSAGES;
        Names, EmptyBlocks, JoinedText, BlockOrder, ThinkingExtras, ImagesOnly, DataNames,
        MediaTypes, InputText, AllResultStates, ResultData, ResultParts,
    },
    decode: Some(|decoding| Box::new(ProviderStream(decode::OllamaDecoder::new(decoding)))),
    messages: Some(MessageCodec { decode: message::decode, encode: message::encode }),
    model_request: Some(|request| Ok(model_request::build_body(request))),
    accepts_data: Some(model_request::accepts_data),
    ..Wire::EMPTY
};
