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
