//! The JSON of Java's events: its fields in order, and the patch.

use super::super::block::UNKNOWN_BYTES;
use super::super::carried_patch;
use super::super::message::Usage;
use serde::ser::{Serialize, SerializeMap, Serializer};
use turnwire_core::event::{Chunk, ToolResultDataDelta};
use turnwire_core::{Event, Fields, Json, Payload, PermissionRule, ReplyError, Seq};

/// The value of a field.
#[derive(serde::Serialize)]
#[serde(untagged)]
pub(super) enum Value<'e> {
    Null,
    Text(&'e str),
    Word(String),
    Int(i64),
    Seq(Seq),
    Json(&'e Json),
    Fields(&'e Fields),
    Nothing {},
    Usage(Usage<'e>),
    Data(Data<'e>),
    List(Vec<Fields>),
    Texts(&'e [String]),
    Failure(&'e ReplyError),
    Payload(&'e Payload),
    Rules(&'e [PermissionRule]),
    Event(&'e Event<'e>),
}

/// The block of a result's data.
pub(super) struct Data<'e> {
    pub(super) delta: &'e ToolResultDataDelta<'e>,
    pub(super) name: Option<String>,
}

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "data")?;
        map.serialize_entry("source", &DataSource(self.delta))?;
        if !self.delta.block_id.is_empty() {
            map.serialize_entry("id", &self.delta.block_id)?;
        }
        if let Some(name) = &self.name {
            map.serialize_entry("name", name)?;
        }
        map.end()
    }
}

struct DataSource<'e>(&'e ToolResultDataDelta<'e>);

impl Serialize for DataSource<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let media_type = self.0.media_type.as_deref();
        match &self.0.chunk {
            Chunk::Data(data) => {
                map.serialize_entry("type", "base64")?;
                map.serialize_entry("media_type", media_type.unwrap_or(UNKNOWN_BYTES))?;
                map.serialize_entry("data", data)?;
            }
            Chunk::Url(url) => {
                map.serialize_entry("type", "url")?;
                map.serialize_entry("url", url)?;
                if let Some(media_type) = media_type {
                    map.serialize_entry("mime_type", media_type)?;
                }
            }
        }
        map.end()
    }
}

/// A patch, as [`patch`](super::super::patch) makes it.
#[derive(Default)]
pub(super) struct Patch<'e> {
    pub(super) set: Vec<(&'e str, Value<'e>)>,
    inside: Vec<(String, Patch<'e>)>,
    pub(super) drop: Option<&'e str>,
}

impl<'e> Patch<'e> {
    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.inside.is_empty() && self.drop.is_none()
    }

    pub(super) fn set(&mut self, key: &'e str, value: Value<'e>) {
        self.set.push((key, value));
    }

    /// Only if there is a value.
    pub(super) fn set_some(&mut self, key: &'e str, text: Option<&'e str>) {
        self.set.extend(text.map(|text| (key, Value::Text(text))));
    }

    pub(super) fn set_known(&mut self, key: &'e str, text: &'e str) {
        self.set_some(key, Some(text).filter(|text| !text.is_empty()));
    }

    pub(super) fn set_fields(&mut self, key: &'e str, fields: &'e Fields) {
        if !fields.is_empty() {
            self.set(key, Value::Fields(fields));
        }
    }

    pub(super) fn set_all(&mut self, rest: &'e Fields) {
        self.set.extend(rest.iter().map(|(key, value)| (key, Value::Json(value))));
    }

    pub(super) fn patch(&mut self, key: impl Into<String>, patch: Patch<'e>) {
        if !patch.is_empty() {
            self.inside.push((key.into(), patch));
        }
    }

    /// Patches for the items of a list.
    pub(super) fn patch_list(
        &mut self,
        key: &str,
        patches: impl Iterator<Item = Option<Patch<'e>>>,
    ) -> Option<()> {
        let mut list = Patch::default();
        for (at, patch) in patches.enumerate() {
            list.patch(at.to_string(), patch?);
        }
        self.patch(key, list);
        Some(())
    }

    pub(super) fn sort(&mut self) {
        self.set.sort_by_key(|(key, _)| *key);
        self.inside.sort_by(|(left, _), (right, _)| left.cmp(right));
        for (_, inside) in &mut self.inside {
            inside.sort();
        }
    }
}

/// An object from its entries.
struct Object<'a, K, V>(&'a [(K, V)]);

impl<K: Serialize, V: Serialize> Serialize for Object<'_, K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl Serialize for Patch<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.set.is_empty() {
            map.serialize_entry("set", &Object(&self.set))?;
        }
        if !self.inside.is_empty() {
            map.serialize_entry("in", &Object(&self.inside))?;
        }
        if let Some(key) = self.drop {
            map.serialize_entry("drop", &[key])?;
        }
        map.end()
    }
}

/// An event of Java's.
pub(super) struct JavaEvent<'e> {
    pub(super) java: Vec<(&'e str, Value<'e>)>,
    pub(super) metadata: Option<&'e Fields>,
    pub(super) carried: Patch<'e>,
    /// Whether Java's fields and the patch together say everything.
    pub(super) is_complete: bool,
}

impl Serialize for JavaEvent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in &self.java {
            map.serialize_entry(key, value)?;
        }
        if self.metadata.is_some_and(|fields| !fields.is_empty()) || !self.carried.is_empty() {
            map.serialize_entry("metadata", &Metadata(self))?;
        }
        map.end()
    }
}

struct Metadata<'a>(&'a JavaEvent<'a>);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in self.0.metadata.into_iter().flatten() {
            map.serialize_entry(key, value)?;
        }
        if !self.0.carried.is_empty() {
            map.serialize_entry(carried_patch::PATCH_KEY, &self.0.carried)?;
        }
        map.end()
    }
}

impl<'e> JavaEvent<'e> {
    /// Its fields, without the patch.
    pub(super) fn into_fields(self) -> Fields {
        let mut fields = Fields::default();
        for (key, value) in &self.java {
            fields.insert_some(*key, Json::from_value(value).ok());
        }
        self.metadata.into_iter().for_each(|metadata| fields.insert_fields("metadata", metadata));
        fields
    }

    pub(super) fn insert(&mut self, key: &'e str, value: Value<'e>) {
        self.java.push((key, value));
    }

    pub(super) fn insert_text(&mut self, key: &'e str, text: &'e str) {
        self.insert(key, Value::Text(text));
    }

    pub(super) fn insert_some(&mut self, key: &'e str, text: Option<&'e str>) {
        self.java.extend(text.map(|text| (key, Value::Text(text))));
    }

    pub(super) fn insert_known(&mut self, key: &'e str, text: &'e str) {
        self.insert_some(key, Some(text).filter(|text| !text.is_empty()));
    }
}
