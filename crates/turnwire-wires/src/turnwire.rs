//! The canonical form: the AgentScope 2.x shape plus our own events and fields.
//!
//! ```
//! use turnwire_wires::{Decoding, Wire};
//!
//! let wire = Wire::named("turnwire").unwrap();
//! // A recording of AgentScope's older TypeScript reads as what it means today.
//! let line = br#"{"type":"RUN_STARTED","replyId":"r","createdAt":"2026-01-01","name":"friday"}"#;
//! let events = wire.decoder(&Decoding::default())?.all(line)?;
//! assert_eq!(events[0].kind.type_name(), "REPLY_START");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod legacy_names;

use crate::registry::{MessageCodec, Wire};
use crate::stream::{Decode, Encode, EventSink, Frames};
use turnwire_core::{Event, Json, Msg, Result};

pub(crate) static WIRE: Wire = Wire {
    name: "turnwire",
    about: "the canonical form; reads all that AgentScope 2.x writes",
    interleaves_replies: true,
    decode: Some(|_| Box::new(CanonicalCodec)),
    encode: Some(|_| Box::new(CanonicalCodec)),
    messages: Some(MessageCodec {
        decode: |text| read_messages(text, Msg::from_json),
        encode: |messages| messages.iter().filter_map(|msg| Json::from_value(msg).ok()).collect(),
    }),
    ..Wire::EMPTY
};

struct CanonicalCodec;

impl Decode for CanonicalCodec {
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        // How a stream that is no stream of events says that it ends.
        if text != "[DONE]" {
            out(legacy_names::read_event(text)?);
        }
        Ok(())
    }

    fn find_reply_id(&self, text: &str) -> Option<String> {
        legacy_names::find_reply_id(text)
    }
}

impl Encode for CanonicalCodec {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        out.push("", event);
    }
}

/// Reads a list of messages, or a single one, where each of theirs is one of ours.
pub(crate) fn read_messages(text: &str, read: fn(&str) -> Result<Msg>) -> Result<Vec<Msg>> {
    if !text.trim_ascii_start().starts_with('[') {
        return Ok(vec![read(text)?]);
    }
    let list: Vec<Json> = Json::parse(text)?.parse_as()?;
    list.iter()
        .enumerate()
        .map(|(at, json)| read(json.text()).map_err(|error| error.at(format!("[{at}]"))))
        .collect()
}
