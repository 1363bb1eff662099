//! Reads and writes the JSON of a message: the fields of AgentScope 2.x, in its order.

use super::{Msg, check_content};
use crate::error::{Error, ErrorKind, Result};
use crate::fold::FoldMemory;
use crate::json::{Fields, entries_of, entry_known};
use crate::object::{FromFields, deserialize_from_fields, take_list};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

impl Msg {
    /// Reads a message and checks the role rules.
    ///
    /// ```
    /// use turnwire_core::Msg;
    ///
    /// let error = Msg::from_json(
    ///     r#"{"role":"user","name":"a","content":[{"type":"thinking","thinking":"hm","id":"t1"}]}"#,
    /// ).unwrap_err();
    /// assert_eq!(error.to_string(), "WrongRole: content[0]: a user message cannot contain \
    ///     the thinking block t1; it can contain text and data (image, audio and video in the older form)");
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        let fields: Fields = serde_json::from_str(text).map_err(|error| {
            let kind = if error.is_data() { ErrorKind::NotAMessage } else { ErrorKind::NotJson };
            Error::from_json(kind, &error)
        })?;
        Self::from_fields(fields)
    }

    /// The message as one line of JSON.
    pub fn to_json(&self) -> String {
        // Cannot fail: every key is a string and every value is plain.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn read(mut fields: Fields) -> Result<Self> {
        let role = fields.need("role")?;
        let content = match fields.raw("content") {
            // The short form of chat APIs.
            Some(json) if json.text().starts_with('"') => {
                vec![fields.need::<String>("content")?.into()]
            }
            Some(_) => take_list(&mut fields, "content")?,
            None => return Err(Error::new(ErrorKind::NotAMessage, "`content` is missing")),
        };
        check_content(role, &content)?;
        Ok(Self {
            role,
            content,
            name: fields.take("name")?.unwrap_or_default(),
            id: fields.take("id")?.unwrap_or_default(),
            metadata: fields.take("metadata")?.unwrap_or_default(),
            created_at: fields.take("created_at")?.unwrap_or_default(),
            usage: fields.take("usage")?,
            finished_at: fields.take("finished_at")?,
            finished_reason: fields.take("finished_reason")?,
            structured_output: fields.remove("structured_output").filter(|json| !json.is_null()),
            error: fields.take("error")?,
            rest: fields,
            memory: FoldMemory::default(),
        })
    }
}

impl Serialize for Msg {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("content", &self.content)?;
        map.serialize_entry("role", &self.role)?;
        entry_known(&mut map, "id", &self.id)?;
        map.serialize_entry("metadata", &self.metadata)?;
        entry_known(&mut map, "created_at", &self.created_at)?;
        map.serialize_entry("usage", &self.usage)?;
        map.serialize_entry("finished_at", &self.finished_at)?;
        map.serialize_entry("finished_reason", &self.finished_reason)?;
        map.serialize_entry("structured_output", &self.structured_output)?;
        map.serialize_entry("error", &self.error)?;
        entries_of(&mut map, &self.rest)?;
        map.end()
    }
}

impl FromFields for Msg {
    fn from_fields(fields: Fields) -> Result<Self> {
        Self::read(fields).map_err(|error| error.with_kind(ErrorKind::NotAMessage))
    }
}

deserialize_from_fields!(Msg);
