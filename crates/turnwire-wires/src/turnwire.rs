//! The canonical form: AgentScope 2.x plus our own events and fields.
//!
//! ```
//! use turnwire_wires::{DecoderOptions, Wire};
//!
//! let wire = Wire::named("turnwire").unwrap();
//! // Recordings of AgentScope's older TypeScript are read too.
//! let line = br#"{"type":"RUN_STARTED","replyId":"r","createdAt":"2026-01-01","name":"friday"}"#;
//! let events = wire.decoder(&DecoderOptions::default())?.decode_all(line)?;
//! assert_eq!(events[0].kind.type_name(), "REPLY_START");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod legacy_names;

use crate::registry::{MessageCodec, Wire};
use crate::stream::{Decode, Encode, EventSink, Frames};
use turnwire_core::{Event, Json, Msg, Result};

pub(crate) static WIRE: Wire = Wire {
    name: "turnwire",
    about: "the canonical form; also reads everything that AgentScope 2.x writes",
    interleaves_replies: true,
    has_event_ids: true,
    has_websocket: true,
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
        // Some streams end with this marker.
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

/// The messages of wires that write each one as text.
pub(crate) fn write_messages(messages: &[Msg], write: fn(&Msg) -> String) -> Vec<Json> {
    messages.iter().filter_map(|msg| Json::parse(&write(msg)).ok()).collect()
}

/// Reads a list of messages, or a single one, for protocols in which one message is one of ours.
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
