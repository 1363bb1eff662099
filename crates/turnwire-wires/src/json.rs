//! Helpers of the wires to read and write JSON.

use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use turnwire_core::{Fields, Json};

/// A string that is borrowed if it has no escapes, also inside an `Option`.
pub(crate) struct CowStr<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for CowStr<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CowVisitor;
        impl<'de> Visitor<'de> for CowVisitor {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        deserializer.deserialize_str(CowVisitor).map(CowStr)
    }
}

/// An object: `fields! { "type": "text", "text": text }`. Values are anything that converts into [`Json`].
macro_rules! fields {
    ($($key:tt: $value:expr),* $(,)?) => {{
        let mut fields = turnwire_core::Fields::default();
        $(fields.insert($key, $value);)*
        fields
    }};
}
pub(crate) use fields;

/// The fields of a value that serializes as an object; otherwise none.
pub(crate) fn to_fields<T: Serialize + ?Sized>(value: &T) -> Fields {
    Json::from_value(value).and_then(|json| json.parse_as()).unwrap_or_default()
}

/// A value as JSON; null if it cannot be serialized.
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Json {
    Json::from_value(value).unwrap_or_else(|_| Json::from(serde_json::Value::Null))
}

/// A string field; `None` if it is missing, null or of another type.
pub(crate) fn string_field(fields: &Fields, key: &str) -> Option<String> {
    fields.get(key).ok().flatten()
}

/// Declares a field that the server adds to a response: the options that had no effect.
#[cfg(feature = "schema")]
pub(crate) fn declare_ignored_options(schema: &mut schemars::Schema) {
    let about = "Turnwire: the options and tools of the request that had no effect.";
    let list = serde_json::json!({
        "description": about, "type": "array", "items": {"type": "string"},
    });
    let properties = schema.ensure_object().get_mut("properties");
    if let Some(properties) = properties.and_then(serde_json::Value::as_object_mut) {
        properties.insert("ignored_options".to_owned(), list);
    }
}

/// Escapes text for a JSON string.
pub(crate) fn escape(text: &str, out: &mut String) {
    let mut kept = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(text.get(kept..at).unwrap_or_default());
        kept = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            control => {
                let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0');
                out.push_str("\\u00");
                out.push(digit(control >> 4));
                out.push(digit(control & 15));
            }
        }
    }
    out.push_str(text.get(kept..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_escaped_as_json() {
        let text: String =
            (0..0x300).filter_map(char::from_u32).chain("\u{2028}🙂".chars()).collect();
        let mut written = "\"".to_owned();
        escape(&text, &mut written);
        written.push('"');
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
    }
}
