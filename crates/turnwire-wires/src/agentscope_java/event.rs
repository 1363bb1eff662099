//! Converts any event in both directions without loss: Java's with a patch of what we have no field
//! for, ours with a patch of what Java has no field for.

use super::decode::from_java;
use super::encode::{as_custom, native_to_java, to_java};
use super::open_replies::OpenReplies;
use super::{KEPT_FIELD, carried_patch, patch};
use crate::json::string_field;
use turnwire_core::{Event, EventKind, Fields, Json, Result, event_kinds};

/// Reads an event of Java's.
pub(super) fn decode(mut java: Fields, track: &OpenReplies) -> Result<Event<'static>> {
    let carried = carried_patch::take_patch(&mut java);
    without_empty_metadata(&mut java);
    let event = decode_plain(&java, track)?;
    let patched = carried.and_then(|carried| {
        let patched = patch::apply(&carried_patch::to_fields(&event)?, &carried)?;
        let patched = Json::from_value(&patched).ok()?;
        Event::from_json(patched.text()).ok().map(Event::into_owned)
    });
    Ok(patched.unwrap_or(event))
}

/// Writes an event for Java.
pub(super) fn encode(event: &Event<'_>, track: &OpenReplies) -> Fields {
    let bare = to_java(event, track);
    let kept = event.rest.raw(KEPT_FIELD);
    let restored = kept.and_then(|kept| patch::apply(&bare, kept));
    restored
        .and_then(|java| add_patch(java, event, track, true))
        .or_else(|| add_patch(bare, event, track, false))
        // No event of Java's can express it.
        .or_else(|| add_patch(as_custom(event), event, track, false))
        .unwrap_or_else(|| as_custom(event))
}

/// Adds the patch for what Java has no field for. What we kept from Java counts only if reading
/// finds it again.
fn add_patch(
    mut java: Fields,
    event: &Event<'_>,
    track: &OpenReplies,
    restored: bool,
) -> Option<Fields> {
    let mut base = decode_plain(&java, track).ok()?;
    if base == *event && !carried_patch::has_patch(&java) {
        return Some(java);
    }
    if carried_patch::remove_patch_key(&mut java) {
        without_empty_metadata(&mut java);
        base = decode_plain(&java, track).ok()?;
    }
    if restored && base.rest.raw(KEPT_FIELD) != event.rest.raw(KEPT_FIELD) {
        return None;
    }
    let carried =
        patch::diff(&carried_patch::to_fields(&base)?, &carried_patch::to_fields(event)?)?;
    carried_patch::insert_patch(&mut java, carried).then_some(java)
}

/// Java leaves empty metadata out.
fn without_empty_metadata(java: &mut Fields) {
    if java.raw("metadata").is_some_and(|json| json.text() == "{}") {
        java.remove("metadata");
    }
}

/// Reads an event without a patch of ours.
fn decode_plain(java: &Fields, track: &OpenReplies) -> Result<Event<'static>> {
    let mut event = from_java(java, track)?;
    if let EventKind::Custom(custom) = &event.kind
        && let Ok(inner) = Event::from_json(custom.value.0.text())
        && !is_java_event(&inner)
        && inner.kind.type_name().to_lowercase() == custom.name
    {
        return Ok(inner.into_owned());
    }
    let native = matches!(event.kind, EventKind::Unknown(_));
    let again = if native { native_to_java(&event) } else { to_java(&event, track) };
    let mut kept = patch::diff(&again, java);
    if native {
        // Marks an unknown event as Java's own.
        kept = Some(with_type(kept, event.kind.type_name()));
    }
    event.rest.insert_some(KEPT_FIELD, kept);
    Ok(event)
}

fn with_type(kept: Option<Json>, word: &str) -> Json {
    let mut kept: Fields = kept.and_then(|kept| kept.parse_as().ok()).unwrap_or_default();
    let mut set: Fields = kept.get("set").ok().flatten().unwrap_or_default();
    set.insert("type", word);
    kept.insert("set", set);
    kept.into()
}

/// Whether Java has such events.
pub(super) fn is_java_event(event: &Event<'_>) -> bool {
    match &event.kind {
        event_kinds!(Block UserInterrupt Message Supersede Reset) => false,
        EventKind::Unknown(word) => {
            let kept: Option<Fields> = event.rest.get(KEPT_FIELD).ok().flatten();
            let set = kept.and_then(|kept| kept.get::<Fields>("set").ok().flatten());
            set.and_then(|set| string_field(&set, "type")).is_some_and(|java| java == *word)
        }
        event_kinds!(
            Hint ExceedMaxIters Custom reply model_call text thinking data tool pending_call java
        ) => true,
    }
}
