//! The wire `gemini`: `generateContent` of the Gemini API and of Vertex. Decodes its streams (`alt=sse`), writes its requests,
//! and converts `Content` objects.
//!
//! ```
//! use turnwire_wires::{DecoderOptions, Wire};
//!
//! let body = br#"data: {"candidates":[{"content":{"parts":[{"text":"Hi!"}],"role":"model"},"finishReason":"STOP"}]}
//!
//! "#;
//! let events = Wire::named("gemini").unwrap().decoder(&DecoderOptions::default())?.decode_all(body)?;
//! let types: Vec<&str> = events.iter().map(|event| event.kind.type_name()).collect();
//! assert_eq!(types[2..5], ["TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The thought signature of a part is the field `thought_signature` of its block, and is sent back with the part. Parts that
//! only Gemini knows (code that it ran, calls of its own tools) are blocks of the type `gemini_part`, and are sent back
//! unchanged. The name of the model is in the URL of a request, not in its body. A system message is a `Content` with the role
//! `system`; in a request it is `systemInstruction`.

mod decode;
mod message;
mod model_request;
mod part;
mod partial_args;

use crate::loss::{PROVIDER_MESSAGES, loss_list};
use crate::provider::ProviderStream;
use crate::registry::{MessageCodec, Wire};

const NAME: &str = "gemini";

pub(crate) static WIRE: Wire = Wire {
    name: NAME,
    about: "Gemini's generateContent, also on Vertex",
    message_losses: loss_list! {
        PROVIDER_MESSAGES;
        Names, ThinkingExtras, DataNames, OtherSources, InputText, ResultStates,
        ResultParts,
    },
    decode: Some(|decoding| Box::new(ProviderStream(decode::GeminiDecoder::new(decoding)))),
    messages: Some(MessageCodec { decode: message::decode, encode: message::encode }),
    model_request: Some(|request| Ok(model_request::build_body(request))),
    accepts_data: Some(model_request::accepts_data),
    ..Wire::EMPTY
};
