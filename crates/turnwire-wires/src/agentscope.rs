//! Exactly what the AgentScope 2.x packages accept.
//!
//! Most of what we have they have too. Where they do not, a reader of theirs gets the nearest thing
//! that it accepts, and one of ours finds the original beside it:
//!
//! - an event of a type that they do not know becomes a `CUSTOM` event with that type in lower case
//!   as its name, and the whole event as its value;
//! - an event or a message with something in it that they refuse (a role `tool`, an unknown block,
//!   an unknown word, a URL without a scheme) is written without it, and the original is in the
//!   field `turnwire`, which they pass over;
//! - base64 that is cut inside a group of four goes out in whole groups ([`Encode`] only: it takes
//!   more than one event to see it). What is left at the end is a delta of its own, whose field
//!   `turnwire` is null: it is nothing of ours.
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
use crate::turnwire::{legacy_names, read_messages};
use base64_groups::{Base64Groups, Regrouped};
use turnwire_core::event::{Chunk, Custom, CustomValue};
use turnwire_core::{Event, EventKind, Json, Msg, Result};

pub(crate) static WIRE: Wire = Wire {
    name: "agentscope",
    about: "exactly what the AgentScope 2.x packages accept",
    interleaves_replies: true,
    decode: Some(|_| Box::new(EventDecoder)),
    encode: Some(|_| Box::new(EventEncoder::default())),
    messages: Some(MessageCodec {
        decode: |text| read_messages(text, decode_message),
        encode: |messages| {
            messages.iter().filter_map(|msg| Json::parse(&encode_message(msg)).ok()).collect()
        },
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
        let now = match &event.kind {
            EventKind::DataBlockDelta(delta) => {
                self.groups.regroup_block_delta(&event.reply_id, delta)
            }
            EventKind::ToolResultDataDelta(delta) => {
                self.groups.regroup_result_delta(&event.reply_id, delta)
            }
            _ => Regrouped::Unchanged,
        };
        match now {
            Regrouped::Unchanged if is_accepted(event) => out.push("", event),
            Regrouped::Unchanged => out.push("", &to_accepted(event, None)),
            Regrouped::Changed(data) => out.push("", &to_accepted(event, Some(data))),
        }
    }
}

/// The field in which the original of something that was changed travels.
const ORIGINAL_FIELD: &str = "turnwire";

/// Writes an event as AgentScope accepts it. Its fold takes data deltas only if none is cut inside a
/// group of base64; a stream's encoder sees to that.
pub fn encode_event(event: &Event<'_>) -> String {
    if is_accepted(event) { event.to_json() } else { to_accepted(event, None).to_json() }
}

/// Reads an event that AgentScope, or [`encode_event`], has written.
pub fn decode_event(text: &str) -> Result<Event<'_>> {
    legacy_names::read_event(text).map(restore_original)
}

/// Whether the event can go out as it is, as far as its kind tells: nearly every event of a stream
/// can.
fn is_accepted(event: &Event<'_>) -> bool {
    event.rest.raw(ORIGINAL_FIELD).is_none()
        && match &event.kind {
            EventKind::ModelCallStart(_)
            | EventKind::TextBlockStart(_)
            | EventKind::TextBlockDelta(_)
            | EventKind::TextBlockEnd(_)
            | EventKind::ThinkingBlockStart(_)
            | EventKind::ThinkingBlockDelta(_)
            | EventKind::ThinkingBlockEnd(_)
            | EventKind::DataBlockEnd(_)
            | EventKind::ToolCallStart(_)
            | EventKind::ToolCallDelta(_)
            | EventKind::ToolCallEnd(_)
            | EventKind::ToolResultStart(_)
            | EventKind::ToolResultTextDelta(_)
            | EventKind::ExceedMaxIters(_)
            | EventKind::UserInterrupt(_) => true,
            EventKind::DataBlockDelta(delta) => {
                delta.media_type.is_some() && matches!(delta.chunk, Chunk::Data(_))
            }
            EventKind::ToolResultDataDelta(delta) => {
                delta.media_type.is_some() && matches!(delta.chunk, Chunk::Data(_))
            }
            _ => false,
        }
}

/// The event as AgentScope accepts it, with its original where that is another; `data` replaces the
/// base64 of a delta.
fn to_accepted(event: &Event<'_>, data: Option<String>) -> Event<'static> {
    if !is_agentscope_kind(&event.kind) {
        return as_custom(event);
    }
    let mut strict = event.clone().into_owned();
    if let Some(data) = data {
        let data = Chunk::Data(data.into());
        match &mut strict.kind {
            EventKind::DataBlockDelta(delta) => delta.chunk = data,
            EventKind::ToolResultDataDelta(delta) => delta.chunk = data,
            _ => {}
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

/// What an event of a stream stands for.
fn restore_original(event: Event<'_>) -> Event<'_> {
    let original = match (event.rest.raw(ORIGINAL_FIELD), &event.kind) {
        (Some(original), _) => Some(original.text()),
        (None, EventKind::Custom(custom)) => from_custom(custom),
        (None, _) => None,
    };
    // A field of that name that holds no event is somebody else's.
    match original.and_then(|original| Event::from_json(original).ok()) {
        Some(original) => original.into_owned(),
        None => event,
    }
}

/// Whether this is the rest of a block's base64 that the encoder wrote: the deltas before it, as they
/// were, have it already.
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

/// Reads a message that AgentScope, or [`encode_message`], has written.
pub fn decode_message(text: &str) -> Result<Msg> {
    let msg = Msg::from_json(text)?;
    let original = msg.rest().raw(ORIGINAL_FIELD).and_then(|json| Msg::from_json(json.text()).ok());
    Ok(original.unwrap_or(msg))
}

/// Whether AgentScope has events of this kind.
fn is_agentscope_kind(kind: &EventKind<'_>) -> bool {
    matches!(
        kind,
        EventKind::ReplyStart(_)
            | EventKind::ReplyEnd(_)
            | EventKind::ModelCallStart(_)
            | EventKind::ModelCallEnd(_)
            | EventKind::TextBlockStart(_)
            | EventKind::TextBlockDelta(_)
            | EventKind::TextBlockEnd(_)
            | EventKind::ThinkingBlockStart(_)
            | EventKind::ThinkingBlockDelta(_)
            | EventKind::ThinkingBlockEnd(_)
            | EventKind::DataBlockStart(_)
            | EventKind::DataBlockDelta(_)
            | EventKind::DataBlockEnd(_)
            | EventKind::Hint(_)
            | EventKind::ToolCallStart(_)
            | EventKind::ToolCallDelta(_)
            | EventKind::ToolCallEnd(_)
            | EventKind::ToolResultStart(_)
            | EventKind::ToolResultTextDelta(_)
            | EventKind::ToolResultDataDelta(_)
            | EventKind::ToolResultEnd(_)
            | EventKind::ExceedMaxIters(_)
            | EventKind::RequireUserConfirm(_)
            | EventKind::RequireExternalExecution(_)
            | EventKind::UserConfirmResult(_)
            | EventKind::UserInterrupt(_)
            | EventKind::ExternalExecutionResult(_)
            | EventKind::Custom(_)
    )
}

/// Whether [`decode_event`] would take the event for something that it is not: its custom event, or
/// its field, looks like one of ours.
fn reads_as_another(event: &Event<'_>) -> bool {
    let is_like_ours = match &event.kind {
        EventKind::Custom(custom) => from_custom(custom).is_some(),
        _ => false,
    };
    is_like_ours || event.rest.raw(ORIGINAL_FIELD).is_some()
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

/// The event inside a custom event of ours: its value is an event whose type is the custom's name.
fn from_custom(custom: &Custom) -> Option<&str> {
    let text = custom.value.0.text();
    let inner = Event::from_json(text).ok()?;
    let word = inner.kind.type_name();
    (!is_agentscope_kind(&inner.kind) && word.to_lowercase() == custom.name).then_some(text)
}
