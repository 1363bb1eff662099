//! The patch that Java's metadata carries for us. Java keeps metadata unchanged.

use super::patch;
use serde::Serialize;
use turnwire_core::{Fields, Json};

/// The key in Java's metadata.
pub(super) const PATCH_KEY: &str = "turnwire";

/// Removes and returns the patch, if there is one.
pub(super) fn take_patch(java: &mut Fields) -> Option<Json> {
    let mut metadata = metadata(java)?;
    let carried = metadata.raw(PATCH_KEY).filter(|carried| patch::is_patch(carried)).cloned()?;
    metadata.remove(PATCH_KEY);
    java.insert("metadata", Json::from_value(&metadata).ok()?);
    Some(carried)
}

/// Removes the entry in whose place the patch goes. Returns whether there was one.
pub(super) fn remove_patch_key(java: &mut Fields) -> bool {
    let Some(mut metadata) = metadata(java) else { return false };
    if metadata.remove(PATCH_KEY).is_some()
        && let Ok(metadata) = Json::from_value(&metadata)
    {
        java.insert("metadata", metadata);
        return true;
    }
    false
}

/// Whether there is a patch.
pub(super) fn has_patch(java: &Fields) -> bool {
    metadata(java).is_some_and(|metadata| metadata.raw(PATCH_KEY).is_some_and(patch::is_patch))
}

/// Inserts the patch. Returns false if the metadata is not an object.
pub(super) fn insert_patch(java: &mut Fields, carried: Json) -> bool {
    let metadata = match java.raw("metadata") {
        Some(json) if json.text().starts_with('{') => json.parse_as().ok(),
        Some(json) if !json.is_null() => None,
        _ => Some(Fields::default()),
    };
    let Some(mut metadata) = metadata else { return false };
    metadata.insert(PATCH_KEY, carried);
    let Ok(metadata) = Json::from_value(&metadata) else { return false };
    java.insert("metadata", metadata);
    true
}

fn metadata(java: &Fields) -> Option<Fields> {
    java.raw("metadata").filter(|json| json.text().starts_with('{'))?.parse_as().ok()
}

/// The fields of a message or an event.
pub(super) fn to_fields<T: Serialize>(ours: &T) -> Option<Fields> {
    Json::from_value(ours).ok()?.parse_as().ok()
}
