//! Fields by dotted paths, such as `generationConfig.topP`.

use turnwire_core::{Fields, Json};

/// The value at a path; `None` if it is missing or null.
pub(super) fn get(fields: &Fields, path: &str) -> Option<Json> {
    match path.split_once('.') {
        None => fields.raw(path).filter(|value| !value.is_null()).cloned(),
        Some((key, rest)) => get(&fields.raw(key)?.parse_as().ok()?, rest),
    }
}

/// Sets the value at a path, and creates the objects on the way.
pub(super) fn set(fields: &mut Fields, path: &str, value: impl Into<Json>) {
    match path.split_once('.') {
        None => fields.insert(path, value),
        Some((key, rest)) => {
            let mut inner: Fields =
                fields.raw(key).and_then(|inner| inner.parse_as().ok()).unwrap_or_default();
            set(&mut inner, rest, value);
            fields.insert(key, inner);
        }
    }
}

/// Removes the value at a path, and an object that is empty then.
pub(super) fn remove(fields: &mut Fields, path: &str) {
    let Some((key, rest)) = path.split_once('.') else {
        fields.remove(path);
        return;
    };
    let Some(Ok(mut inner)) = fields.raw(key).map(Json::parse_as::<Fields>) else { return };
    remove(&mut inner, rest);
    if inner.is_empty() {
        fields.remove(key);
    } else {
        fields.insert(key, inner);
    }
}
