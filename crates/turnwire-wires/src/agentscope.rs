//! Exactly what the AgentScope 2.x packages accept.
//!
//! Most events and messages are the same. For the others, AgentScope gets the nearest valid form, and
//! we find the original beside it:
//!
//! - an event of a type that AgentScope does not have becomes a `CUSTOM` event: its name is the type
//!   in lower case, its value the whole event;
//! - an event or a message with something that AgentScope rejects (the role `tool`, an unknown block,
//!   an unknown word, a URL without a scheme) is written without it; the field `turnwire`, which
//!   AgentScope ignores, holds the original;
//! - base64 that is split inside a group of four is written in complete groups ([`Encode`] only: it
//!   takes more than one event). What is left at the end is a delta of its own whose field `turnwire`
//!   is null, and which we ignore.
//!
//! ```
//! use turnwire_core::event::{Event, Supersede};
//! use turnwire_wires::agentscope;
//!
//! let event = Event::new("", Supersede { message_ids: vec!["m1".into()] });
//! let line = agentscope::encode_event(&event);
//! assert!(line.contains(r#""type":"CUSTOM","name":"supersede""#));
//! assert_eq!(agentscope::decode_event(&line)?, event);
//! # Ok::<(), turnwire_core::Error>(())
//! ```

mod base64_groups;
mod strict;

use crate::registry::{MessageCodec, Wire};
use crate::stream::{Decode, Encode, EventSink, Frames};
use crate::turnwire::{legacy_names, read_messages, write_messages};
use base64_groups::{Base64Groups, Regrouped};
use turnwire_core::event::{Chunk, Custom, CustomValue};
use turnwire_core::{Event, EventKind, Json, Msg, Result, event_kinds};

pub(crate) static WIRE: Wire = Wire {
    name: "agentscope",
    about: "exactly what the AgentScope 2.x packages accept",
    has_event_ids: true,
    has_websocket: true,
    interleaves_replies: true,
    decode: Some(|_| Box::new(EventDecoder)),
    encode: Some(|_| Box::new(EventEncoder::default())),
    messages: Some(MessageCodec {
        decode: |text| read_messages(text, decode_message),
        encode: |messages| write_messages(messages, encode_message),
    }),
    ..Wire::EMPTY
};

struct EventDecoder;

impl Decode for EventDecoder {
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        if text == "[DONE]" {
            return Ok(());
        }
        let event = legacy_names::read_event(text)?;
        if !is_flushed_delta(&event) {
            out(restore_original(event));
        }
        Ok(())
    }

    fn find_reply_id(&self, text: &str) -> Option<String> {
        legacy_names::find_reply_id(text)
    }
}

#[derive(Default)]
struct EventEncoder {
    groups: Base64Groups,
}

impl Encode for EventEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        for mut rest in self.groups.flush_before(event) {
            strict::restrict_event(&mut rest);
            rest.rest.insert(ORIGINAL_FIELD, serde_json::Value::Null);
            out.push("", &rest);
        }
        let now = if let EventKind::DataBlockDelta(delta) = &event.kind {
            self.groups.regroup_block_delta(&event.reply_id, delta)
        } else if let EventKind::ToolResultDataDelta(delta) = &event.kind {
            self.groups.regroup_result_delta(&event.reply_id, delta)
        } else {
            Regrouped::Unchanged
        };
        match now {
            Regrouped::Unchanged if is_accepted(event) => out.push("", event),
            Regrouped::Unchanged => out.push("", &to_accepted(event, None)),
            Regrouped::Changed(data) => out.push("", &to_accepted(event, Some(data))),
        }
    }
}

/// The field that holds the original of a changed event or message.
const ORIGINAL_FIELD: &str = "turnwire";

/// Writes an event as AgentScope accepts it. Its fold rejects data deltas that are split inside a
/// base64 group; only the stream encoder regroups them.
pub fn encode_event(event: &Event<'_>) -> String {
    if is_accepted(event) { event.to_json() } else { to_accepted(event, None).to_json() }
}

/// Reads an event that AgentScope or [`encode_event`] wrote.
pub fn decode_event(text: &str) -> Result<Event<'_>> {
    legacy_names::read_event(text).map(restore_original)
}

/// Whether the event's kind can be written unchanged; nearly all can.
fn is_accepted(event: &Event<'_>) -> bool {
    event.rest.raw(ORIGINAL_FIELD).is_none()
        && match &event.kind {
            event_kinds!(
                ModelCallStart DataBlockEnd ToolResultStart ToolResultTextDelta ExceedMaxIters
                UserInterrupt text thinking tool_call
            ) => true,
            EventKind::DataBlockDelta(delta) => {
                delta.media_type.is_some() && matches!(delta.chunk, Chunk::Data(_))
            }
            EventKind::ToolResultDataDelta(delta) => {
                delta.media_type.is_some() && matches!(delta.chunk, Chunk::Data(_))
            }
            event_kinds!(
                ModelCallEnd DataBlockStart Hint Block ToolResultEnd reply pending_call java session
            ) => false,
        }
}

/// The event as AgentScope accepts it, with its original if it was changed; `data` replaces the
/// base64 of a delta.
fn to_accepted(event: &Event<'_>, data: Option<String>) -> Event<'static> {
    if !is_agentscope_kind(&event.kind) {
        return as_custom(event);
    }
    let mut strict = event.clone().into_owned();
    if let Some(data) = data {
        let data = Chunk::Data(data.into());
        if let EventKind::DataBlockDelta(delta) = &mut strict.kind {
            delta.chunk = data;
        } else if let EventKind::ToolResultDataDelta(delta) = &mut strict.kind {
            delta.chunk = data;
        }
    }
    strict::restrict_event(&mut strict);
    if (strict != *event || reads_as_another(event))
        && let Ok(original) = Json::from_value(event)
    {
        strict.rest.insert(ORIGINAL_FIELD, original);
    }
    strict
}

/// The original of an event.
fn restore_original(event: Event<'_>) -> Event<'_> {
    let original = if let Some(original) = event.rest.raw(ORIGINAL_FIELD) {
        Some(original.text())
    } else if let EventKind::Custom(custom) = &event.kind {
        from_custom(custom)
    } else {
        None
    };
    // A field of that name without an event belongs to somebody else.
    match original.and_then(|original| Event::from_json(original).ok()) {
        Some(original) => original.into_owned(),
        None => event,
    }
}

/// Whether this is a delta that the encoder added for the rest of a base64 group: the deltas before
/// it have it already.
fn is_flushed_delta(event: &Event<'_>) -> bool {
    matches!(event.kind, EventKind::DataBlockDelta(_) | EventKind::ToolResultDataDelta(_))
        && event.rest.raw(ORIGINAL_FIELD).is_some_and(Json::is_null)
}

/// Writes a message as AgentScope accepts it.
pub fn encode_message(msg: &Msg) -> String {
    let Ok(strict) = strict::restrict_message(msg) else { return msg.to_json() };
    if strict == *msg && msg.rest().raw(ORIGINAL_FIELD).is_none() {
        return msg.to_json();
    }
    let mut rest = strict.rest().clone();
    if let Ok(original) = Json::from_value(msg) {
        rest.insert(ORIGINAL_FIELD, original);
    }
    // The role rules were checked with the same content.
    strict.to_builder().rest(rest).build().unwrap_or(strict).to_json()
}

/// Reads a message that AgentScope or [`encode_message`] wrote.
pub fn decode_message(text: &str) -> Result<Msg> {
    let msg = Msg::from_json(text)?;
    let original = msg.rest().raw(ORIGINAL_FIELD).and_then(|json| Msg::from_json(json.text()).ok());
    Ok(original.unwrap_or(msg))
}

/// Whether AgentScope has events of this kind.
fn is_agentscope_kind(kind: &EventKind<'_>) -> bool {
    match kind {
        event_kinds!(
            Hint ExceedMaxIters UserInterrupt Custom
            reply model_call text thinking data tool pending_call
        ) => true,
        event_kinds!(Block Message Supersede Reset Unknown java) => false,
    }
}

/// Whether [`decode_event`] would misread the event, because its custom event or its field looks
/// like one of ours.
fn reads_as_another(event: &Event<'_>) -> bool {
    matches!(&event.kind, EventKind::Custom(custom) if from_custom(custom).is_some())
        || event.rest.raw(ORIGINAL_FIELD).is_some()
}

fn as_custom(event: &Event<'_>) -> Event<'static> {
    let custom = Custom {
        name: event.kind.type_name().to_lowercase(),
        value: Json::from_value(event).map(CustomValue).unwrap_or_default(),
    };
    let mut outer = Event::new(String::new(), custom);
    outer.id = event.id.to_string().into();
    outer.created_at = event.created_at.to_string().into();
    outer.reply_id = event.reply_id.to_string().into();
    outer.seq = event.seq;
    outer
}

/// The event inside a custom event of ours: its value is an event whose type is the custom event's
/// name.
fn from_custom(custom: &Custom) -> Option<&str> {
    let text = custom.value.0.text();
    let inner = Event::from_json(text).ok()?;
    let word = inner.kind.type_name();
    (!is_agentscope_kind(&inner.kind) && word.to_lowercase() == custom.name).then_some(text)
}
