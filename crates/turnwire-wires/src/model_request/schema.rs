//! JSON Schemas in the form that providers require.

use super::ToolDefinition;
use serde_json::Value;
use turnwire_core::{Fields, Json};

/// The schema of a tool's input. Providers require the type `object`, and some require properties.
pub(crate) fn input_schema(tool: &ToolDefinition) -> Json {
    let Ok(mut schema) = tool.input_schema.parse_as::<Fields>() else {
        return complete_input_schema(Fields::default());
    };
    if schema.raw("type").is_some() && schema.raw("properties").is_some() {
        return tool.input_schema.clone();
    }
    // The type comes first, where readers expect it.
    if schema.raw("type").is_none() {
        let mut typed: Fields = [("type", "object")].into_iter().collect();
        typed.extend(&schema);
        schema = typed;
    }
    complete_input_schema(schema)
}

fn complete_input_schema(mut schema: Fields) -> Json {
    if schema.raw("type").is_none() {
        schema.insert("type", "object");
    }
    let elsewhere = ["$ref", "allOf", "anyOf", "oneOf"];
    let has_others = elsewhere.iter().any(|key| schema.raw(key).is_some());
    let is_object = schema.raw("type").is_some_and(|word| *word == Json::from("object"));
    if schema.raw("properties").is_none() && is_object && !has_others {
        schema.insert("properties", Fields::default());
    }
    schema.into()
}

/// Whether every object in the schema is closed and requires all of its fields. `OpenAI` enforces only such schemas, and
/// refuses others in strict mode.
pub(crate) fn is_strict_schema(schema: &Value) -> bool {
    const REFUSED: [&str; 8] = [
        "allOf",
        "oneOf",
        "not",
        "if",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "propertyNames",
    ];
    match schema {
        Value::Array(list) => list.iter().all(is_strict_schema),
        Value::Object(map) => {
            let properties = map.get("properties").and_then(Value::as_object);
            let is_object = map.get("type").is_some_and(|kind| kind == "object");
            if let Some(properties) = properties {
                let needed = map.get("required").and_then(Value::as_array);
                let needs =
                    |name: &String| needed.is_some_and(|list| list.iter().any(|it| it == name));
                if map.get("additionalProperties") != Some(&Value::Bool(false))
                    || !properties.keys().all(needs)
                {
                    return false;
                }
            } else if is_object {
                return false;
            }
            // A property may have any name.
            map.iter().all(|(key, value)| match (key.as_str(), value) {
                ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                    named.values().all(is_strict_schema)
                }
                ("enum" | "const" | "default" | "examples", _) => true,
                (key, value) => !REFUSED.contains(&key) && is_strict_schema(value),
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_input_of_a_tool_is_an_object_with_properties() {
        for (given, expected) in [
            (json!({}), json!({"type": "object", "properties": {}})),
            (json!(null), json!({"type": "object", "properties": {}})),
            (json!({"type": "object"}), json!({"type": "object", "properties": {}})),
            (
                json!({"anyOf": [{"type": "object"}]}),
                json!({"type": "object", "anyOf": [{"type": "object"}]}),
            ),
            (json!({"type": "object", "properties": {"a": {}}}), {
                json!({"type": "object", "properties": {"a": {}}})
            }),
        ] {
            let tool = ToolDefinition {
                name: String::new(),
                description: String::new(),
                input_schema: given.into(),
                ..ToolDefinition::default()
            };
            assert_eq!(input_schema(&tool).parse_as::<Value>().unwrap(), expected);
        }
    }

    #[test]
    fn a_schema_is_strict_when_nothing_is_left_open() {
        let of = |inner: Value| {
            json!({"type": "object", "properties": {"not": inner}, "required": ["not"],
                "additionalProperties": false})
        };
        for (schema, expected) in [
            (of(json!({"type": "string"})), true),
            (of(json!({"type": "string", "enum": [{"type": "object"}]})), true),
            (of(json!({"anyOf": [{"type": "string"}, {"type": "null"}]})), true),
            (of(json!({"oneOf": [{"type": "string"}]})), false),
            (of(json!({"type": "object"})), false),
            (of(of(json!({"type": "array", "items": {"type": "object"}}))), false),
            (json!({"type": "object"}), false),
        ] {
            assert_eq!(is_strict_schema(&schema), expected, "{schema}");
        }
    }
}
