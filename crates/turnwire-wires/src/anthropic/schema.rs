//! Adapts JSON Schemas to those that Anthropic enforces.

use serde_json::{Map, Value, json};
use turnwire_core::Json;

/// Keywords that Anthropic refuses. They are moved to the description, where the model reads them.
const UNSUPPORTED_KEYWORDS: [&str; 12] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "patternProperties",
];

/// The schema with every object closed, as Anthropic requires, and without the keywords that it refuses.
pub(super) fn close_schema(schema: &Json) -> Json {
    match schema.parse_as::<Value>() {
        Ok(mut tree) => {
            close_objects(&mut tree);
            tree.into()
        }
        Err(_) => schema.clone(),
    }
}

fn close_objects(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    for (key, value) in map.iter_mut() {
        match (key.as_str(), value) {
            // A property may have any name.
            ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                named.values_mut().for_each(close_objects);
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(list)) => {
                list.iter_mut().for_each(close_objects);
            }
            ("items", value) => close_objects(value),
            _ => {}
        }
    }
    if map.get("type").is_some_and(|word| word == "object") {
        map.entry("additionalProperties").or_insert(false.into());
    }
    if let Some(list) = map.shift_remove("oneOf") {
        map.entry("anyOf").or_insert(list);
    }
    move_to_description(map);
}

/// Moves the refused keywords into the description.
fn move_to_description(map: &mut Map<String, Value>) {
    let is_refused = |key: &str, value: &Value| match key {
        "minItems" => *value != json!(0) && *value != json!(1),
        key => UNSUPPORTED_KEYWORDS.contains(&key),
    };
    let refused = map.iter().filter(|(key, value)| is_refused(key, value));
    let moved: Vec<(String, String)> =
        refused.map(|(key, value)| (key.clone(), format!("{key}: {value}"))).collect();
    if moved.is_empty() {
        return;
    }
    let mut lines = Vec::new();
    if let Some(Value::String(text)) = map.get("description") {
        lines.push(text.clone());
    }
    for (key, line) in moved {
        map.shift_remove(&key);
        lines.push(line);
    }
    map.insert("description".to_owned(), lines.join("\n").into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_closed_and_refused_keywords_move_to_the_description() {
        let schema = json!({
            "type": "object",
            "properties": {
                "minimum": {"type": "integer", "description": "How many.", "minimum": 1},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "list": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {}}},
                "either": {"oneOf": [{"type": "object"}, {"type": "null"}]},
            },
            "$defs": {"a": {"type": "object"}},
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "minimum": {"type": "integer", "description": "How many.\nminimum: 1"},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "list": {"type": "array", "minItems": 1, "items":
                    {"type": "object", "properties": {}, "additionalProperties": false}},
                "either": {"anyOf": [
                    {"type": "object", "additionalProperties": false}, {"type": "null"}]},
            },
            "$defs": {"a": {"type": "object", "additionalProperties": false}},
            "additionalProperties": false,
        });
        assert_eq!(close_schema(&schema.into()).parse_as::<Value>().unwrap(), expected);
    }
}
