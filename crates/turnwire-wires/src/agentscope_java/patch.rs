//! A patch turns one JSON object into another, so that each side keeps only what the other cannot
//! hold.
//!
//! `{"set": {…}, "drop": […], "in": {…}}`: fields to set, fields to remove, and patches inside
//! fields; an item of a list is named by its index.

use turnwire_core::{Fields, Json};

/// How deep it compares. Deeper differences are set as a whole.
const MAX_DEPTH: u8 = 6;

/// The patch from `from` to `to`; `None` if they are equal.
pub(super) fn diff(from: &Fields, to: &Fields) -> Option<Json> {
    let patch = diff_fields(from, to, MAX_DEPTH);
    if patch.is_empty() { None } else { Json::from_value(&patch).ok() }
}

/// Applies a patch; `None` if it is not a patch. Parts that do not fit, because the object was
/// changed, are ignored.
pub(super) fn apply(to: &Fields, patch: &Json) -> Option<Fields> {
    let patch: Fields = patch.parse_as().ok()?;
    apply_fields(to, &patch, MAX_DEPTH)
}

/// Whether this is a patch.
pub(super) fn is_patch(json: &Json) -> bool {
    apply(&Fields::default(), json).is_some()
}

fn diff_fields(from: &Fields, to: &Fields, depth: u8) -> Fields {
    let (mut set, mut inside) = (Fields::default(), Fields::default());
    for (key, new) in to {
        match from.raw(key) {
            Some(old) if old == new => {}
            Some(old) => match diff_values(old, new, depth) {
                Some(patch) => inside.insert(key, patch),
                None => set.insert(key, new.clone()),
            },
            None => set.insert(key, new.clone()),
        }
    }
    let mut drop: Vec<&str> =
        from.iter().map(|(key, _)| key).filter(|key| to.raw(key).is_none()).collect();
    let mut patch = Fields::default();
    for (name, part) in [("set", &set), ("in", &inside)] {
        if let (false, Ok(part)) = (part.is_empty(), Json::from_value(&sorted(part))) {
            patch.insert(name, part);
        }
    }
    drop.sort_unstable();
    if !drop.is_empty() {
        patch.insert("drop", drop);
    }
    patch
}

/// Sorted, so that the same difference is always the same text.
fn sorted(fields: &Fields) -> Fields {
    let mut sorted: Vec<(&str, &Json)> = fields.iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    sorted.into_iter().map(|(key, value)| (key, value.clone())).collect()
}

/// The patch between two objects, or two lists of the same length.
fn diff_values(old: &Json, new: &Json, depth: u8) -> Option<Json> {
    let depth = depth.checked_sub(1)?;
    let (old, new) = match (first_byte(old), first_byte(new)) {
        (Some(b'{'), Some(b'{')) => (old.parse_as().ok()?, new.parse_as().ok()?),
        (Some(b'['), Some(b'[')) => {
            let (old, new) = (list_to_fields(old)?, list_to_fields(new)?);
            if old.len() != new.len() {
                return None;
            }
            (old, new)
        }
        _ => return None,
    };
    Json::from_value(&diff_fields(&old, &new, depth)).ok()
}

fn first_byte(json: &Json) -> Option<u8> {
    json.text().bytes().next()
}

/// A list as an object whose keys are the indexes.
fn list_to_fields(json: &Json) -> Option<Fields> {
    let items: Vec<Json> = json.parse_as().ok()?;
    Some(items.into_iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect())
}

fn apply_fields(to: &Fields, patch: &Fields, depth: u8) -> Option<Fields> {
    let known = patch.iter().all(|(key, _)| matches!(key, "set" | "drop" | "in"));
    if !known || patch.is_empty() {
        return None;
    }
    let set: Fields = patch.get("set").ok()?.unwrap_or_default();
    let drop: Vec<String> = patch.get("drop").ok()?.unwrap_or_default();
    let inside: Fields = patch.get("in").ok()?.unwrap_or_default();
    let mut to = to.clone();
    for key in &drop {
        to.remove(key);
    }
    for (key, patch) in &inside {
        let patched = to.raw(key).and_then(|old| apply_values(old, patch, depth));
        to.insert_some(key, patched);
    }
    to.extend(&set);
    Some(to)
}

fn apply_values(old: &Json, patch: &Json, depth: u8) -> Option<Json> {
    let depth = depth.checked_sub(1)?;
    let patch: Fields = patch.parse_as().ok()?;
    match first_byte(old)? {
        b'{' => Json::from_value(&apply_fields(&old.parse_as().ok()?, &patch, depth)?).ok(),
        b'[' => {
            let list = list_to_fields(old)?;
            let patched = apply_fields(&list, &patch, depth)?;
            let items: Vec<&Json> = patched.iter().map(|(_, item)| item).collect();
            (items.len() == list.len()).then(|| Json::from_value(&items).ok())?
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_patch_turns_one_object_into_the_other() {
        for (from, to, patch) in [
            ("{}", "{}", None),
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, None),
            (r#"{"a":1}"#, r#"{"a":null}"#, Some(r#"{"set":{"a":null}}"#)),
            (r#"{"a":1}"#, r#"{"b":1}"#, Some(r#"{"set":{"b":1},"drop":["a"]}"#)),
            (r#"{"a":{"b":1,"c":2}}"#, r#"{"a":{"b":1}}"#, Some(r#"{"in":{"a":{"drop":["c"]}}}"#)),
            (
                r#"{"l":[{"t":"x"},{"t":"y"}]}"#,
                r#"{"l":[{"t":"x"},{"t":"y","id":"i"}]}"#,
                Some(r#"{"in":{"l":{"in":{"1":{"set":{"id":"i"}}}}}}"#),
            ),
            (r#"{"l":[1]}"#, r#"{"l":[1,2]}"#, Some(r#"{"set":{"l":[1,2]}}"#)),
        ] {
            let (from, to) = (fields(from), fields(to));
            let made = diff(&from, &to);
            assert_eq!(made.as_ref().map(Json::text), patch);
            if let Some(made) = made {
                assert_eq!(apply(&from, &made), Some(to));
            }
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_ignored() {
        let patch = Json::parse(r#"{"in":{"l":{"in":{"5":{"set":{"a":1}}}},"x":{"set":{"a":1}}}}"#);
        let object = fields(r#"{"l":[1],"x":"text"}"#);
        assert_eq!(apply(&object, &patch.unwrap()), Some(object));
        for no_patch in ["1", "{}", r#"{"sets":{}}"#, r#"{"set":1}"#, r#"{"drop":{}}"#] {
            assert!(!is_patch(&Json::parse(no_patch).unwrap()), "{no_patch}");
        }
    }
}
