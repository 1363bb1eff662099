//! Exactly what the AgentScope 2.x packages accept.
//!
//! Most of what we have they have too. Where they do not, a reader of theirs gets the nearest thing
//! that it accepts, and one of ours finds the original beside it:
//!
//! - an event of a type that they do not know becomes a `CUSTOM` event with that type in lower case
//!   as its name, and the whole event as its value;
//! - an event or a message with something in it that they refuse (a role `tool`, an unknown block,
//!   an unknown word, a URL without a scheme) is written without it, and the original is in the
//!   field `turnwire`, which they pass over.
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

mod strict;

use turnwire_core::event::{Custom, CustomValue};
use turnwire_core::{Event, EventKind, Json, Msg, Result};

/// The field in which the original of something that was changed travels.
const ORIGINAL: &str = "turnwire";

/// Writes an event as AgentScope accepts it.
pub fn encode_event(event: &Event<'_>) -> String {
    if !is_theirs(&event.kind) {
        return as_custom(event).to_json();
    }
    let mut strict = event.clone().into_owned();
    strict::event(&mut strict);
    if (strict != *event || reads_as_another(event))
        && let Ok(original) = Json::of(event)
    {
        strict.rest.insert(ORIGINAL, original);
    }
    strict.to_json()
}

/// Reads an event that AgentScope, or [`encode_event`], has written.
pub fn decode_event(text: &str) -> Result<Event<'_>> {
    let event = Event::from_json(text)?;
    let original = match (event.rest.raw(ORIGINAL), &event.kind) {
        (Some(original), _) => Some(original.text()),
        (None, EventKind::Custom(custom)) => from_custom(custom),
        (None, _) => None,
    };
    // A field of that name that holds no event is somebody else's.
    match original.and_then(|original| Event::from_json(original).ok()) {
        Some(original) => Ok(original.into_owned()),
        None => Ok(event),
    }
}

/// Writes a message as AgentScope accepts it.
pub fn encode_message(msg: &Msg) -> String {
    let Ok(strict) = strict::message(msg) else { return msg.to_json() };
    if strict == *msg && msg.rest().raw(ORIGINAL).is_none() {
        return msg.to_json();
    }
    let mut rest = strict.rest().clone();
    if let Ok(original) = Json::of(msg) {
        rest.insert(ORIGINAL, original);
    }
    // The role rules were checked with the same content.
    strict.to_builder().rest(rest).build().unwrap_or(strict).to_json()
}

/// Reads a message that AgentScope, or [`encode_message`], has written.
pub fn decode_message(text: &str) -> Result<Msg> {
    let msg = Msg::from_json(text)?;
    let original = msg.rest().raw(ORIGINAL).and_then(|json| Msg::from_json(json.text()).ok());
    Ok(original.unwrap_or(msg))
}

/// Whether AgentScope has events of this kind.
fn is_theirs(kind: &EventKind<'_>) -> bool {
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
    is_like_ours || event.rest.raw(ORIGINAL).is_some()
}

fn as_custom(event: &Event<'_>) -> Event<'static> {
    let custom = Custom {
        name: event.kind.type_name().to_lowercase(),
        value: Json::of(event).map(CustomValue).unwrap_or_default(),
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
    (!is_theirs(&inner.kind) && word.to_lowercase() == custom.name).then_some(text)
}
