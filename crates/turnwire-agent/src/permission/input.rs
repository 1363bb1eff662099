//! A tool's input for permission rules: keeps duplicate keys.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A JSON value that keeps duplicate keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum InputValue {
    String(String),
    /// A number, `true`, `false` or `null`, as JSON.
    Scalar(String),
    Array(Vec<InputValue>),
    Object(Vec<(String, InputValue)>),
}

impl InputValue {
    /// A key that occurs twice in some object.
    pub(crate) fn repeated_key(&self) -> Option<&str> {
        match self {
            Self::String(_) | Self::Scalar(_) => None,
            Self::Array(elements) => elements.iter().find_map(Self::repeated_key),
            Self::Object(entries) => {
                let mut keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
                keys.sort_unstable();
                let repeated = keys.windows(2).find_map(|pair| match pair {
                    [one, other] if one == other => Some(*one),
                    _ => None,
                });
                repeated.or_else(|| entries.iter().find_map(|(_, value)| value.repeated_key()))
            }
        }
    }

    /// The values of a field and of fields whose names differ only in case, and whether each name is exact.
    /// A name that begins with `/` is a JSON Pointer, which follows every element of an array.
    pub(super) fn find_fields(&self, name: &str) -> Vec<(&Self, bool)> {
        let Some(pointer) = name.strip_prefix('/') else { return self.members(name, true) };
        let mut found = vec![(self, true)];
        for step in pointer.split('/') {
            let step = step.replace("~1", "/").replace("~0", "~");
            let mut next = Vec::new();
            for (node, is_exact) in found {
                next.extend(node.members(&step, is_exact));
            }
            found = next;
        }
        found
    }

    fn members(&self, name: &str, is_exact: bool) -> Vec<(&Self, bool)> {
        match self {
            Self::String(_) | Self::Scalar(_) => Vec::new(),
            Self::Array(elements) => {
                elements.iter().flat_map(|element| element.members(name, is_exact)).collect()
            }
            Self::Object(entries) => entries
                .iter()
                .filter(|(key, _)| key == name || key.to_lowercase() == name.to_lowercase())
                .map(|(key, value)| (value, is_exact && key == name))
                .collect(),
        }
    }
}

impl<'de> Deserialize<'de> for InputValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct AnyNode;

        impl<'de> Visitor<'de> for AnyNode {
            type Value = InputValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_bool<E>(self, value: bool) -> Result<InputValue, E> {
                Ok(InputValue::Scalar(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<InputValue, E> {
                Ok(InputValue::Scalar(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<InputValue, E> {
                Ok(InputValue::Scalar(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<InputValue, E> {
                Ok(InputValue::Scalar(serde_json::Value::from(value).to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<InputValue, E> {
                Ok(InputValue::String(value.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<InputValue, E> {
                Ok(InputValue::Scalar("null".to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<InputValue, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    elements.push(element);
                }
                Ok(InputValue::Array(elements))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<InputValue, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(InputValue::Object(entries))
            }
        }

        from.deserialize_any(AnyNode)
    }
}

/// Checks the input of a tool: a JSON object without duplicate keys, or nothing. Programs do not agree on
/// which of two equal keys counts, so a rule and a tool could read different values.
///
/// ```
/// use turnwire_agent::permission::check_input;
///
/// assert!(check_input(r#"{"path": "/tmp/a"}"#).is_ok());
/// assert!(check_input(r#"{"path": "/tmp/a", "path": "/etc/passwd"}"#).is_err());
/// ```
pub fn check_input(input: &str) -> Result<(), String> {
    parse(input).map(drop)
}

pub(super) fn parse(input: &str) -> Result<InputValue, String> {
    if input.trim_ascii().is_empty() {
        return Ok(InputValue::Object(Vec::new()));
    }
    let node: InputValue =
        serde_json::from_str(input).map_err(|error| format!("not JSON: {error}"))?;
    if !matches!(node, InputValue::Object(_)) {
        return Err("no JSON object".to_owned());
    }
    match node.repeated_key() {
        Some(key) => Err(format!("ambiguous: it has the key {key:?} twice")),
        None => Ok(node),
    }
}
