//! Text, thinking, hints.

use super::{BlockType, Payload, take_type};
use crate::error::Result;
use crate::json::{Fields, entries_of, entry_known};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Plain text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextBlock {
    /// The text.
    pub text: String,
    /// The block's id; empty where it has none.
    pub id: String,
    /// When it began; empty where that is not known.
    pub created_at: String,
    /// When it ended.
    pub finished_at: Option<String>,
    /// Fields that this version does not know.
    pub rest: Fields,
}

impl TextBlock {
    /// A block with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub(super) fn from_fields(mut fields: Fields) -> Result<Self> {
        take_type(&mut fields, BlockType::Text)?;
        Ok(Self {
            text: fields.need("text")?,
            id: fields.take("id")?.unwrap_or_default(),
            created_at: fields.take("created_at")?.unwrap_or_default(),
            finished_at: fields.take("finished_at")?,
            rest: fields,
        })
    }
}

impl<T: Into<String>> From<T> for TextBlock {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

impl Serialize for TextBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "text")?;
        map.serialize_entry("text", &self.text)?;
        entry_known(&mut map, "id", &self.id)?;
        entry_known(&mut map, "created_at", &self.created_at)?;
        map.serialize_entry("finished_at", &self.finished_at)?;
        entries_of(&mut map, &self.rest)?;
        map.end()
    }
}

/// The model's reasoning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThinkingBlock {
    /// The reasoning.
    pub thinking: String,
    /// The block's id; empty where it has none.
    pub id: String,
    /// When it began; empty where that is not known.
    pub created_at: String,
    /// When it ended.
    pub finished_at: Option<String>,
    /// What the provider adds (`signature`, `redacted_thinking_data`, …).
    pub rest: Fields,
}

impl ThinkingBlock {
    /// A block with this reasoning.
    pub fn new(thinking: impl Into<String>) -> Self {
        Self { thinking: thinking.into(), ..Self::default() }
    }

    pub(super) fn from_fields(mut fields: Fields) -> Result<Self> {
        take_type(&mut fields, BlockType::Thinking)?;
        Ok(Self {
            thinking: fields.need("thinking")?,
            id: fields.take("id")?.unwrap_or_default(),
            created_at: fields.take("created_at")?.unwrap_or_default(),
            finished_at: fields.take("finished_at")?,
            rest: fields,
        })
    }
}

impl Serialize for ThinkingBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "thinking")?;
        map.serialize_entry("thinking", &self.thinking)?;
        entry_known(&mut map, "id", &self.id)?;
        entry_known(&mut map, "created_at", &self.created_at)?;
        map.serialize_entry("finished_at", &self.finished_at)?;
        entries_of(&mut map, &self.rest)?;
        map.end()
    }
}

/// Something put into the loop from outside: a trigger, a team message, a background result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HintBlock {
    /// What it says.
    pub hint: Payload,
    /// The block's id; empty where it has none.
    pub id: String,
    /// Where it comes from, often a small JSON text for the front end.
    pub source: Option<String>,
    /// When it came; empty where that is not known.
    pub created_at: String,
    /// When it ended.
    pub finished_at: Option<String>,
    /// Fields that this version does not know.
    pub rest: Fields,
}

impl HintBlock {
    /// A hint without a source.
    pub fn new(hint: impl Into<Payload>) -> Self {
        Self { hint: hint.into(), ..Self::default() }
    }

    pub(super) fn from_fields(mut fields: Fields) -> Result<Self> {
        take_type(&mut fields, BlockType::Hint)?;
        Ok(Self {
            hint: fields.need("hint")?,
            id: fields.take("id")?.unwrap_or_default(),
            source: fields.take("source")?,
            created_at: fields.take("created_at")?.unwrap_or_default(),
            finished_at: fields.take("finished_at")?,
            rest: fields,
        })
    }
}

impl Serialize for HintBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "hint")?;
        map.serialize_entry("hint", &self.hint)?;
        entry_known(&mut map, "id", &self.id)?;
        map.serialize_entry("source", &self.source)?;
        entry_known(&mut map, "created_at", &self.created_at)?;
        map.serialize_entry("finished_at", &self.finished_at)?;
        entries_of(&mut map, &self.rest)?;
        map.end()
    }
}
