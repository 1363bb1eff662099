//! Measures a schema before it is compiled.

use super::{MAX_BYTES, MAX_DEPTH, SchemaError};
use serde_json::Value;
use turnwire_core::Json;

/// The most bytes of nested `$id`s.
const MAX_ID_BYTES: usize = 1024;

/// Parses a schema within the limits of size and depth.
pub(super) fn parse(schema: &Json) -> Result<Value, SchemaError> {
    let bytes = schema.text().len();
    if bytes > MAX_BYTES {
        let why = format!("it has {bytes} bytes, {MAX_BYTES} are allowed");
        return Err(SchemaError::TooLarge(why));
    }
    let value: Value = schema
        .parse_as()
        .map_err(|error| SchemaError::invalid(format_args!("it is not read: {error}")))?;
    if is_deeper(&value, MAX_DEPTH) {
        let why = format!("it is nested more than {MAX_DEPTH} levels deep");
        return Err(SchemaError::TooLarge(why));
    }
    if has_longer_id(&value, MAX_ID_BYTES) {
        let why = format!("its `$id`s are longer than {MAX_ID_BYTES} bytes");
        return Err(SchemaError::TooLarge(why));
    }
    Ok(value)
}

/// Whether nested `$id`s are longer than this together. Each is resolved against the one around it.
fn has_longer_id(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| has_longer_id(item, left)),
        Value::Object(fields) => {
            let ids = ["$id", "id"].iter().filter_map(|word| fields.get(*word)?.as_str());
            let bytes: usize = ids.map(str::len).sum();
            let left = left.checked_sub(bytes);
            left.is_none_or(|left| fields.values().any(|field| has_longer_id(field, left)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether arrays and objects are nested deeper than this.
pub(super) fn is_deeper(value: &Value, depth: usize) -> bool {
    let deeper = |child: &Value| match depth.checked_sub(1) {
        Some(depth) => is_deeper(child, depth),
        None => true,
    };
    match value {
        Value::Array(items) => depth == 0 || items.iter().any(deeper),
        Value::Object(fields) => depth == 0 || fields.values().any(deeper),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether the target of a reference depends on the path to it.
pub(super) fn has_dynamic_references(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_dynamic_references),
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            let is_dynamic = key.starts_with("$dynamic") || key.starts_with("$recursive");
            let is_meta = key == "$ref"
                && value.as_str().is_some_and(|target| target.contains("json-schema.org/"));
            is_dynamic || is_meta || has_dynamic_references(value)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
