//! Bytes: base64 or a URL.

use super::BlockType;
use crate::base64;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Chunk;
use crate::json::{Fields, entries_of, entry_if, entry_known};
use crate::object::{FromFields, deserialize_from_fields, object};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Bytes (an image, sound, any file), or a URL to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataBlock {
    /// The form: `data`, or one of the older media blocks. It is written as it was read.
    pub kind: DataKind,
    /// The block's id; empty if it has none.
    pub id: String,
    /// Base64, or a URL.
    pub source: Source,
    /// File name.
    pub name: Option<String>,
    /// When it started; empty if not known.
    pub created_at: String,
    /// When it ended.
    pub finished_at: Option<String>,
    /// Unknown fields.
    pub rest: Fields,
}

/// The form of a data block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum DataKind {
    /// The current form.
    #[default]
    Data,
    /// The older image block.
    Image,
    /// The older audio block.
    Audio,
    /// The older video block.
    Video,
}

impl DataKind {
    pub(super) fn from_word(word: &str) -> Option<Self> {
        [Self::Data, Self::Image, Self::Audio, Self::Video]
            .into_iter()
            .find(|kind| kind.block_type().as_str() == word)
    }

    pub(super) fn block_type(self) -> BlockType {
        match self {
            Self::Data => BlockType::Data,
            Self::Image => BlockType::Image,
            Self::Audio => BlockType::Audio,
            Self::Video => BlockType::Video,
        }
    }
}

/// Content of a data block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Bytes as base64.
    Base64(Base64Source),
    /// A URL.
    Url(UrlSource),
    /// A source of an unknown type, with all its fields.
    Other(Fields),
}

object! {
    /// Bytes as base64.
    Base64Source {
        /// The base64 text. While the block is open, its last one to three characters may be an
        /// incomplete group.
        data: String, needed;
        /// Media type, such as `image/png`.
        media_type: Option<String>, optional;
    }

    /// A URL to the bytes.
    UrlSource {
        /// The URL, unchanged.
        url: String, needed;
        /// Media type.
        media_type: Option<String>, optional;
    }
}

impl Source {
    /// Bytes that are base64 already.
    pub fn base64(data: impl Into<String>, media_type: Option<String>) -> Self {
        Self::Base64(Base64Source { data: data.into(), media_type, rest: Fields::default() })
    }

    /// A URL to the bytes.
    pub fn url(url: impl Into<String>, media_type: Option<String>) -> Self {
        Self::Url(UrlSource { url: url.into(), media_type, rest: Fields::default() })
    }

    /// Media type, such as `image/png`, if known.
    pub fn media_type(&self) -> Option<&str> {
        match self {
            Self::Base64(source) => source.media_type.as_deref(),
            Self::Url(source) => source.media_type.as_deref(),
            Self::Other(_) => None,
        }
    }

    /// The media type and the content as events have them; `None` for a source of an unknown type.
    pub fn into_chunk(self) -> Option<(Option<String>, Chunk<'static>)> {
        match self {
            Self::Base64(source) => Some((source.media_type, Chunk::Data(source.data.into()))),
            Self::Url(source) => Some((source.media_type, Chunk::Url(source.url.into()))),
            Self::Other(_) => None,
        }
    }
}

impl DataBlock {
    /// A block with these bytes.
    pub fn bytes(bytes: impl AsRef<[u8]>, media_type: impl Into<String>) -> Self {
        let data = base64::encode(bytes.as_ref());
        Self::from_source(Source::base64(data, Some(media_type.into())))
    }

    /// A block with this URL.
    pub fn url(url: impl Into<String>, media_type: impl Into<String>) -> Self {
        Self::from_source(Source::url(url, Some(media_type.into())))
    }

    /// A block with this source.
    pub fn from_source(source: Source) -> Self {
        Self {
            kind: DataKind::default(),
            id: String::new(),
            source,
            name: None,
            created_at: String::new(),
            finished_at: None,
            rest: Fields::default(),
        }
    }

    /// Decodes the bytes; `None` if the block does not contain them. For an open block: the bytes so far.
    pub fn decoded(&self) -> Option<Result<Vec<u8>>> {
        match &self.source {
            Source::Base64(source) => Some(base64::decode(&source.data).and_then(|bytes| {
                if self.finished_at.is_some() {
                    base64::check_end(&source.data)?;
                }
                Ok(bytes)
            })),
            Source::Url(_) | Source::Other(_) => None,
        }
    }

    /// Media type, such as `image/png`, if known.
    pub fn media_type(&self) -> Option<&str> {
        self.source.media_type()
    }

    pub(super) fn from_kind(kind: DataKind, mut fields: Fields) -> Result<Self> {
        let source = fields.need("source").and_then(Source::from_fields);
        Ok(Self {
            kind,
            id: fields.take("id")?.unwrap_or_default(),
            source: source.map_err(|error| error.at("source"))?,
            name: fields.take("name")?,
            created_at: fields.take("created_at")?.unwrap_or_default(),
            finished_at: fields.take("finished_at")?,
            rest: fields,
        })
    }
}

impl FromFields for DataBlock {
    fn from_fields(mut fields: Fields) -> Result<Self> {
        let word = fields.take::<String>("type")?.unwrap_or_else(|| "data".to_owned());
        let kind = DataKind::from_word(&word).ok_or_else(|| {
            Error::new(ErrorKind::WrongShape, format!("expected a data block, found `{word}`"))
        })?;
        Self::from_kind(kind, fields)
    }
}

impl Serialize for DataBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.kind.block_type().as_str())?;
        entry_known(&mut map, "id", &self.id)?;
        map.serialize_entry("source", &self.source)?;
        // The older blocks never had these fields: write them only if they are set.
        if self.kind == DataKind::Data {
            map.serialize_entry("name", &self.name)?;
            entry_known(&mut map, "created_at", &self.created_at)?;
            map.serialize_entry("finished_at", &self.finished_at)?;
        } else {
            entry_if(&mut map, "name", self.name.as_ref())?;
            entry_known(&mut map, "created_at", &self.created_at)?;
            entry_if(&mut map, "finished_at", self.finished_at.as_ref())?;
        }
        entries_of(&mut map, &self.rest)?;
        map.end()
    }
}

impl FromFields for Source {
    fn from_fields(mut fields: Fields) -> Result<Self> {
        let word: String = fields.need("type")?;
        Ok(match word.as_str() {
            "base64" => Self::Base64(Base64Source::from_fields(fields)?),
            "url" => Self::Url(UrlSource::from_fields(fields)?),
            word => Self::Other(super::with_type(word, &fields)),
        })
    }
}

deserialize_from_fields!(Source);

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Base64(source) => {
                map.serialize_entry("type", "base64")?;
                source.write(&mut map)?;
            }
            Self::Url(source) => {
                map.serialize_entry("type", "url")?;
                source.write(&mut map)?;
            }
            Self::Other(fields) => entries_of(&mut map, fields)?,
        }
        map.end()
    }
}
