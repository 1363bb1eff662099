//! JSON that is kept as text: one value ([`Json`]) or an ordered object ([`Fields`]).
//!
//! Metadata, structured output and unknown fields are kept as text. So they are written back unchanged
//! (large numbers, order of keys), and cost no parsing unless somebody reads them.
//!
//! ```
//! use turnwire_core::{Fields, Json};
//!
//! let mut fields = Fields::default();
//! fields.insert("priority", 3);
//! fields.insert("tags", vec!["important", "urgent"]);
//! assert_eq!(fields.get::<Vec<String>>("tags")?.unwrap()[1], "urgent");
//!
//! let big = Json::parse("{ \"n\": 12345678901234567890123 }")?;
//! assert_eq!(big.text(), r#"{"n":12345678901234567890123}"#);
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use crate::error::{Error, ErrorKind, Result};
use indexmap::IndexMap;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;

/// One JSON value, kept as compact text.
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Parses one JSON value; removes the white space between its tokens.
    pub fn parse(text: &str) -> Result<Self> {
        let raw: &RawValue = serde_json::from_str(text)
            .map_err(|error| Error::from_json(ErrorKind::NotJson, &error))?;
        Ok(Self::from_raw(raw))
    }

    /// Converts any serializable value.
    pub fn from_value<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let raw = serde_json::value::to_raw_value(value)
            .map_err(|error| Error::from_json(ErrorKind::WrongShape, &error))?;
        Ok(Self::from_boxed(raw))
    }

    fn from_boxed(raw: Box<RawValue>) -> Self {
        match remove_white_space(raw.get()) {
            Some(_) => Self::from_raw(&raw),
            None => Self(raw),
        }
    }

    pub(crate) fn from_raw(raw: &RawValue) -> Self {
        match remove_white_space(raw.get()) {
            // Text without white space between its tokens is still JSON; if not, keep the original.
            Some(text) => Self(RawValue::from_string(text).unwrap_or_else(|_| raw.to_owned())),
            None => Self(raw.to_owned()),
        }
    }

    /// The JSON text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Parses the value as `T`.
    pub fn parse_as<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.text())
            .map_err(|error| Error::from_json(ErrorKind::WrongShape, &error))
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        self.text() == "null"
    }
}

/// The text without white space between tokens, or `None` if there is none.
fn remove_white_space(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out: Option<String> = None;
    let (mut at, mut kept) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b'"' => string_end(bytes, at + 1),
            b' ' | b'\n' | b'\r' | b'\t' => {
                out.get_or_insert_with(|| String::with_capacity(text.len()))
                    .push_str(text.get(kept..at).unwrap_or_default());
                kept = at + 1;
                kept
            }
            _ => at + 1,
        };
    }
    let mut out = out?;
    out.push_str(text.get(kept..).unwrap_or_default());
    Some(out)
}

/// The position behind the string of which this is the first position.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if bytes.get(at - 1) == Some(&b'"') {
            return at;
        }
        // The character behind a backslash.
        at += 1;
    }
    bytes.len()
}

impl<T: Into<Value>> From<T> for Json {
    fn from(value: T) -> Self {
        // A `Value` is always written as JSON without white space between its tokens.
        let raw = serde_json::value::to_raw_value(&value.into());
        Self(raw.unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }
}

impl From<&Fields> for Json {
    fn from(fields: &Fields) -> Self {
        // Text keys with JSON values always serialize.
        Self::from_value(fields).unwrap_or_else(|_| Self(RawValue::NULL.to_owned()))
    }
}

impl From<Fields> for Json {
    fn from(fields: Fields) -> Self {
        Self::from(&fields)
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from_boxed)
    }
}

/// A JSON object. It keeps the order of its keys, and its values as text.
///
/// If a key occurs twice, the last value counts, as in most JSON readers.
#[derive(Clone, Default)]
// One machine word, so that the many messages, blocks and events without such fields stay small.
pub struct Fields(Option<Box<IndexMap<String, Json>>>);

impl Fields {
    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |map| map.len())
    }

    /// The value as JSON.
    pub fn raw(&self, key: &str) -> Option<&Json> {
        self.0.as_ref()?.get(key)
    }

    /// Parses one value as `T`; `None` if it is missing or null.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        match self.raw(key) {
            Some(json) if !json.is_null() => {
                json.parse_as().map(Some).map_err(|error| error.at(key))
            }
            _ => Ok(None),
        }
    }

    /// Parses the whole object as `T`.
    pub fn parse_as<T: DeserializeOwned>(&self) -> Result<T> {
        Json::from_value(self)?.parse_as()
    }

    /// Sets a field; an existing key keeps its position.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Json>) {
        self.0.get_or_insert_default().insert(key.into(), value.into());
    }

    /// Sets a field if there is a value for it.
    pub fn insert_some(&mut self, key: impl Into<String>, value: Option<impl Into<Json>>) {
        if let Some(value) = value {
            self.insert(key, value);
        }
    }

    /// Sets a field unless its text is empty.
    pub fn insert_unless_empty(&mut self, key: impl Into<String>, text: &str) {
        self.insert_some(key, (!text.is_empty()).then_some(text));
    }

    /// Sets a field to an object, unless that is empty.
    pub fn insert_fields(&mut self, key: impl Into<String>, fields: &Self) {
        self.insert_some(key, (!fields.is_empty()).then_some(fields));
    }

    /// Removes a field; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Json> {
        let map = self.0.as_mut()?;
        let value = map.shift_remove(key);
        if map.is_empty() {
            self.0 = None;
        }
        value
    }

    /// Sets all fields of `other`.
    pub fn extend(&mut self, other: &Self) {
        for (key, value) in other {
            self.insert(key, value.clone());
        }
    }

    /// The fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.into_iter()
    }

    /// Removes a field and parses it as `T`; `None` if it is missing or null.
    pub fn take<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>> {
        match self.remove(key) {
            Some(json) if !json.is_null() => {
                json.parse_as().map(Some).map_err(|error| error.at(key))
            }
            _ => Ok(None),
        }
    }

    /// Removes a required field and parses it.
    pub fn need<T: DeserializeOwned>(&mut self, key: &str) -> Result<T> {
        self.take(key)?
            .ok_or_else(|| Error::new(ErrorKind::WrongShape, format!("`{key}` is missing")))
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = (&'a str, &'a Json);
    type IntoIter = std::iter::Map<
        indexmap::map::Iter<'a, String, Json>,
        fn((&'a String, &'a Json)) -> (&'a str, &'a Json),
    >;

    fn into_iter(self) -> Self::IntoIter {
        let entries = match &self.0 {
            Some(map) => map.iter(),
            None => indexmap::map::Iter::default(),
        };
        entries.map(|(key, value)| (key.as_str(), value))
    }
}

impl<K: Into<String>, V: Into<Json>> FromIterator<(K, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut fields = Self::default();
        for (key, value) in entries {
            fields.insert(key, value);
        }
        fields
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(key, value)| other.raw(key) == Some(value))
    }
}

impl Eq for Fields {}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Fields::default();
                while let Some((key, value)) = map.next_entry::<String, Json>()? {
                    fields.insert(key, value);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Writes a field only if it has a value.
pub(crate) fn entry_if<M: SerializeMap, T: Serialize>(
    map: &mut M,
    key: &str,
    value: Option<&T>,
) -> Result<(), M::Error> {
    match value {
        Some(value) => map.serialize_entry(key, value),
        None => Ok(()),
    }
}

/// Writes an id or a timestamp, unless it is empty: not known.
pub(crate) fn entry_known<M: SerializeMap>(
    map: &mut M,
    key: &str,
    value: &str,
) -> Result<(), M::Error> {
    if value.is_empty() { Ok(()) } else { map.serialize_entry(key, value) }
}

/// Writes the unknown fields, after the known ones.
pub(crate) fn entries_of<M: SerializeMap>(map: &mut M, rest: &Fields) -> Result<(), M::Error> {
    rest.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_between_tokens_goes_and_inside_strings_stays() {
        for (from, to) in [
            ("{ \"a b\" : [ 1 ,\n2 ] }", r#"{"a b":[1,2]}"#),
            (r#"" \" x ""#, r#"" \" x ""#),
            (r#"{"a\\":  "b c"}"#, r#"{"a\\":"b c"}"#),
            ("[\t]", "[]"),
        ] {
            assert_eq!(Json::parse(from).unwrap().text(), to);
        }
    }

    #[test]
    fn numbers_and_order_come_back_as_they_came() {
        let text = r#"{"z":1.10,"a":1e400,"m":-0,"b":[12345678901234567890123]}"#;
        let fields: Fields = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&fields).unwrap(), text);
    }

    #[test]
    fn a_key_that_comes_twice_has_its_last_value_in_its_first_place() {
        let fields: Fields = serde_json::from_str(r#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!(serde_json::to_string(&fields).unwrap(), r#"{"a":3,"b":2}"#);
    }

    #[test]
    fn fields_are_read_from_a_tree_too() {
        let tree = serde_json::json!({"a": {"b": [1, null]}});
        let fields: Fields = serde_json::from_value(tree.clone()).unwrap();
        assert_eq!(serde_json::to_value(&fields).unwrap(), tree);
    }
}
