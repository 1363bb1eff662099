//! `OpenAI`'s Responses: its requests, its stream in, its stream out, its items.
//!
//! ```
//! use turnwire_core::Msg;
//! use turnwire_wires::{Request, Wire};
//!
//! let wire = Wire::named("openai-responses").unwrap();
//! let messages = [Msg::system("", "Be brief."), Msg::user("ann", "Hi!")];
//! let body = wire.request(&Request { model: "gpt-4o", messages: &messages, ..Request::default() })??;
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
//! | a `message` item's part `output_text`, `refusal` | a text block; `annotations`, `logprobs`, `phase` and `part_type` are its extra fields |
//! | a `reasoning` item | a thinking block for each part of its summary, or of its content; the last one has all other fields of the item (`id` is `item_id`), those before it only `item_id` |
//! | `function_call` | a tool call, its id is the `call_id`; `item_id`, `namespace`, `caller` are extra fields |
//! | `custom_tool_call` | the same, with the bare string as input and `item_type` as an extra field |
//! | `image_generation_call` with a result | a data block, with `item_type` and the item's other fields |
//! | any other item | a block of that type, verbatim; it is sent back to this wire only |
//! | an event that is none of these | a `CUSTOM` event named after the wire; the encoder writes it back |
//!
//! Requests say `store: false`, since the history is ours, and ask a model that may reason for
//! `reasoning.encrypted_content`, so that its reasoning can be sent back: without being stored it
//! cannot be referred to. Both give way to `extra` of the request.
//!
//! # As a stream out
//!
//! One reply is one response. `sequence_number` counts its frames from 0, and the state behind any
//! event is reached again by the same events. Where deltas were merged, the frame has the number that
//! the last of them had: so a client that comes late may see gaps, but never another number for the
//! same text. Tool calls are held back, with what follows them, until it is known who executes them:
//! one that gets a result in this reply was the agent's own, and the client does not see it; the others
//! are written when the reply ends or pauses (`end`). What the reply says after such a pause is another
//! response, with numbers of its own. A reply that was stopped is a response with the status `cancelled`
//! in a `response.incomplete`. A block that a repeated model call takes back gets
//! another `output_item.done` with `discarded: true`, and is missing from the final response. Structured
//! output that no text has said is a message of its own, with `structured_output: true`. For a client
//! that asked for JSON (`wants_json`) it is the only text: others wait, and are written only if there
//! is no structured output.

mod decode;
mod encode;
mod error;
mod item;
mod media;
mod message;
mod model_request;
mod read;

use crate::loss::Loss;
use crate::registry::{MessageCodec, ResumeMode, Wire};

/// The wire's name, in the registry and in what is kept for it.
const NAME: &str = "openai-responses";

pub(crate) static WIRE: Wire = Wire {
    name: NAME,
    about: "OpenAI's Responses, and what imitates it",
    stream_losses: &[
        Loss::Times,
        Loss::Names,
        Loss::Metadata,
        Loss::UnknownFields,
        Loss::ThinkingExtras,
        Loss::Unfinished,
        Loss::FinishedReasons,
        Loss::NoUsage,
        Loss::Hints,
        Loss::ImagesOnly,
        Loss::DataNames,
        Loss::OtherBlocks,
        Loss::ServedCalls,
        Loss::CallStates,
        Loss::SuggestedRules,
        Loss::ToolResults,
        Loss::SubAgents,
    ],
    message_losses: &[
        Loss::MessageIds,
        Loss::Times,
        Loss::Names,
        Loss::Metadata,
        Loss::UnknownFields,
        Loss::ThinkingExtras,
        Loss::ToolMessages,
        Loss::EmptyMessages,
        Loss::AdjacentReplies,
        Loss::Endings,
        Loss::Errors,
        Loss::StructuredOutput,
        Loss::Usage,
        Loss::BlockIds,
        Loss::Hints,
        Loss::ImagesOnly,
        Loss::DataNames,
        Loss::OtherBlocks,
        Loss::CallStates,
        Loss::SuggestedRules,
        Loss::ResultNames,
        Loss::AllResultStates,
        Loss::ResultMetadata,
    ],
    resume: ResumeMode::Tail,
    decode: Some(|decoding| Box::new(decode::ResponsesDecoder::new(decoding))),
    encode: Some(|encoding| Box::new(encode::ResponsesEncoder::new(encoding))),
    messages: Some(MessageCodec { decode: message::decode, encode: message::encode }),
    model_request: Some(model_request::build_body),
    ..Wire::EMPTY
};
