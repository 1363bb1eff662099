//! Ollama's `/api/chat`: streams in (a JSON text per line), requests out, and messages.
//!
//! ```
//! use turnwire_wires::{Decoding, Wire};
//!
//! let body = br#"{"model":"m","message":{"role":"assistant","content":"Hi!"},"done":false}
//! {"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}
//! "#;
//! let events = Wire::named("ollama").unwrap().decoder(&Decoding::default())?.all(body)?;
//! let types: Vec<&str> = events.iter().map(|event| event.kind.type_name()).collect();
//! assert_eq!(types[2..5], ["TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A message has one text, one thinking, images and calls, in no order. Images are base64 without a
//! type; there is no other media, and no address of one.

mod decode;
mod message;
mod model_request;

use crate::loss::Loss;
use crate::registry::{MessageCodec, Wire};

const NAME: &str = "ollama";

pub(crate) static WIRE: Wire = Wire {
    name: NAME,
    about: "Ollama's /api/chat",
    message_losses: &[
        Loss::MessageIds,
        Loss::Times,
        Loss::Names,
        Loss::Metadata,
        Loss::UnknownFields,
        Loss::ToolMessages,
        Loss::AdjacentReplies,
        Loss::Endings,
        Loss::Errors,
        Loss::StructuredOutput,
        Loss::Usage,
        Loss::BlockIds,
        Loss::EmptyBlocks,
        Loss::JoinedText,
        Loss::BlockOrder,
        Loss::ThinkingExtras,
        Loss::Hints,
        Loss::ImagesOnly,
        Loss::DataNames,
        Loss::MediaTypes,
        Loss::OtherBlocks,
        Loss::CallStates,
        Loss::SuggestedRules,
        Loss::InputText,
        Loss::AllResultStates,
        Loss::ResultMetadata,
        Loss::ResultData,
        Loss::ResultParts,
    ],
    decode: Some(|decoding| Box::new(decode::OllamaDecoder::new(decoding))),
    messages: Some(MessageCodec { decode: message::decode, encode: message::encode }),
    model_request: Some(|request| Ok(model_request::build_body(request))),
    ..Wire::EMPTY
};
