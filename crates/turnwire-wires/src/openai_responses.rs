//! The wire `openai-responses`: `OpenAI`'s Responses API, both as a client of a model and as a server of an agent.
//!
//! ```
//! use turnwire_core::Msg;
//! use turnwire_wires::{Request, Wire};
//!
//! let wire = Wire::named("openai-responses").unwrap();
//! let messages = [Msg::system("", "Be brief."), Msg::user("ann", "Hi!")];
//! let body = wire.model_request(&Request { model: "gpt-4o", messages: &messages, ..Request::default() })?;
//! assert_eq!(
//!     body.text(),
//!     concat!(
//!         r#"{"model":"gpt-4o","instructions":"Be brief.","input":[{"type":"message","role":"user","#,
//!         r#""content":[{"type":"input_text","text":"Hi!"}]}],"store":false}"#
//!     )
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | theirs | ours |
//! |---|---|
//! | a part `output_text` or `refusal` of a `message` item | a text block; `annotations`, `logprobs`, `phase` and `part_type` are extra fields |
//! | a `reasoning` item | a thinking block for each part of its summary, or of its content; the last one has all other fields of the item (`id` is `item_id`), the others only `item_id` |
//! | `function_call` | a tool call, its id is the `call_id`; `item_id`, `namespace`, `caller` are extra fields |
//! | `custom_tool_call` | the same, with the plain string as input and `item_type` as an extra field |
//! | `local_shell_call`, `shell_call`, `apply_patch_call`, `computer_call`, `tool_search_call`, `mcp_approval_request`, if the client executes them | the same, with the action as input; the item's other fields are kept for this wire only |
//! | `image_generation_call` with a result | a data block, with `item_type` and the item's other fields |
//! | any other item | a block of that type, verbatim; it is sent back on this wire only |
//! | any other event | a `CUSTOM` event with the wire's name; the encoder writes it back |
//!
//! Requests have `store: false`, because Turnwire keeps the history, and request `reasoning.encrypted_content` from models
//! that may reason, so that reasoning can be sent back: what is not stored cannot be referred to. `extra` of the request
//! and the client's options override both.
//!
//! # The stream to clients
//!
//! - One reply is one response. `sequence_number` counts its frames from 0. The same events always lead to the same state.
//!   The frame of merged deltas has the number of the last one: a client that joins late may see gaps, but never another
//!   number for the same text.
//! - Tool calls, and what follows them, are held back until it is known who executes them. The client does not see a call
//!   that gets a result in this reply. The others are written when the reply ends or pauses (`end`). After a pause the reply
//!   continues as another response with its own numbers.
//! - In a response of a session (`session_id` and `id` of the options are set) the id of an item says where it is stored:
//!   [`ItemId`]. Other items have the ids of their blocks.
//! - A stopped reply is a response with the status `cancelled` in a `response.incomplete`.
//! - A block that a repeated model call discards gets another `output_item.done` with `discarded: true`, and is missing from
//!   the final response.
//! - Structured output that is not already the text is a message with `structured_output: true`. For a client that
//!   requested JSON (`wants_json`) it is the only text: other texts wait, and are written only without structured output.

mod client_call;
mod client_request;
mod decode;
mod encode;
mod error;
mod item;
mod item_id;
mod media;
mod message;
mod model_request;

use crate::loss::{PROVIDER_MESSAGES, PROVIDER_STREAMS, loss_list};
use crate::provider::ProviderStream;
use crate::registry::{MessageCodec, ResumeMode, Wire};

pub use client_call::{answered_call_id, hosted_call_id, is_client_call, refer_by_call_id};
pub use client_request::{APPROVAL_CALL, read_tools};
pub use encode::ResponseBuilder;
#[cfg(feature = "schema")]
pub use encode::frame::Response;
pub use encode::settings::ResponseSettings;
pub use item_id::{ItemId, find_item};

/// The wire's name, in the registry and in kept items.
const NAME: &str = "openai-responses";

pub(crate) static WIRE: Wire = Wire {
    name: NAME,
    about: "OpenAI's Responses and compatible APIs",
    stream_losses: loss_list! {
        PROVIDER_STREAMS;
        ThinkingExtras, FinishedReasons, ImagesOnly, DataNames,
    },
    message_losses: loss_list! {
        PROVIDER_MESSAGES;
        Names, ThinkingExtras, EmptyMessages, ImagesOnly, DataNames, ResultNames,
        AllResultStates,
    },
    resume: ResumeMode::Tail,
    decode: Some(|decoding| Box::new(ProviderStream(decode::ResponsesDecoder::new(decoding)))),
    encode: Some(|encoding| Box::new(encode::ResponsesEncoder::new(encoding))),
    messages: Some(MessageCodec { decode: message::decode, encode: message::encode }),
    model_request: Some(model_request::build_body),
    accepts_data: Some(model_request::accepts_data),
    ..Wire::EMPTY
};
