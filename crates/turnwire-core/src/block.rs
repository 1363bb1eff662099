//! Content blocks: the typed parts of a message.
//!
//! ```
//! use turnwire_core::{ContentBlock, DataBlock, TextBlock, ToolCall, ToolResult};
//!
//! let blocks: Vec<ContentBlock> = vec![
//!     TextBlock::new("Let me look.").into(),
//!     DataBlock::url("https://example.com/map.png", "image/png").into(),
//!     ToolCall::new("call_1", "get_weather", r#"{"city":"Paris"}"#).into(),
//!     ToolResult::error("call_1", "no such city").into(),
//! ];
//! assert_eq!(blocks[3].block_type().as_str(), "tool_result");
//! ```
//!
//! An unknown id or timestamp is empty, and is not written.

mod data;
mod text;
mod tool;

pub use data::{Base64Source, DataBlock, DataKind, Source, UrlSource};
pub use text::{HintBlock, TextBlock, ThinkingBlock};
pub use tool::{PermissionRule, ToolCall, ToolResult};

use crate::error::{Error, ErrorKind, Result};
use crate::json::{Fields, Json};
use crate::object::{FromFields, deserialize_from_fields, read_list};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A typed part of a message.
// Not `#[non_exhaustive]`: a new variant must be a compile error wherever the crates of this workspace match
// blocks. Blocks of an unknown type are `Other`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentBlock {
    /// Plain text.
    Text(TextBlock),
    /// The model's reasoning.
    Thinking(ThinkingBlock),
    /// Bytes, or a URL to them; also the older image, audio and video blocks.
    Data(DataBlock),
    /// A note for a running reply, which the model reads as a user's message.
    Hint(HintBlock),
    /// A call of a tool.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// A block of an unknown type, with all its fields.
    Other(Fields),
}

/// A pattern for [`ContentBlock`]s by the names of their variants. A `match` names with it the blocks that it ignores, so
/// that a new variant is a compile error there.
///
/// ```
/// use turnwire_core::{ContentBlock, content_blocks};
///
/// fn text_of(block: &ContentBlock) -> &str {
///     match block {
///         ContentBlock::Text(block) => &block.text,
///         ContentBlock::Thinking(block) => &block.thinking,
///         content_blocks!(Data Hint ToolCall ToolResult Other) => "",
///     }
/// }
/// ```
#[macro_export]
macro_rules! content_blocks {
    ($($variant:ident)+) => { $($crate::ContentBlock::$variant(_))|+ };
}

macro_rules! block_types {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)+) => {
        /// The `type` of a block. The older media blocks have their own types, although they are
        /// [`DataBlock`]s.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum BlockType {
            $($(#[$doc])* $variant,)+
            /// Any unknown type.
            Other,
        }

        impl BlockType {
            /// All known types.
            pub const KNOWN: &'static [Self] = &[$(Self::$variant,)+];

            /// The `type` in JSON; `other` for an unknown type.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other => "other",
                }
            }

            fn from_type(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    _ => Self::Other,
                }
            }
        }
    };
}

// To add a block type, add it here; the compiler then finds the places that must handle it.
block_types! {
    /// [`TextBlock`]
    Text = "text",
    /// [`ThinkingBlock`]
    Thinking = "thinking",
    /// [`DataBlock`]
    Data = "data",
    /// A [`DataBlock`] in the older form for images.
    Image = "image",
    /// A [`DataBlock`] in the older form for audio.
    Audio = "audio",
    /// A [`DataBlock`] in the older form for video.
    Video = "video",
    /// [`HintBlock`]
    Hint = "hint",
    /// [`ToolCall`]
    ToolCall = "tool_call",
    /// [`ToolResult`]
    ToolResult = "tool_result",
}

impl ContentBlock {
    /// The type of the block.
    pub fn block_type(&self) -> BlockType {
        match self {
            Self::Text(_) => BlockType::Text,
            Self::Thinking(_) => BlockType::Thinking,
            Self::Data(block) => block.kind.block_type(),
            Self::Hint(_) => BlockType::Hint,
            Self::ToolCall(_) => BlockType::ToolCall,
            Self::ToolResult(_) => BlockType::ToolResult,
            Self::Other(_) => BlockType::Other,
        }
    }

    /// The block's id; empty if it has none. A tool result has the id of its call.
    pub fn id(&self) -> &str {
        match self {
            Self::Text(block) => &block.id,
            Self::Thinking(block) => &block.id,
            Self::Data(block) => &block.id,
            Self::Hint(block) => &block.id,
            Self::ToolCall(block) => &block.id,
            Self::ToolResult(block) => &block.id,
            Self::Other(fields) => other_id(fields),
        }
    }
}

impl Default for ContentBlock {
    /// An empty text block.
    fn default() -> Self {
        Self::Text(TextBlock::default())
    }
}

impl FromFields for ContentBlock {
    fn from_fields(mut fields: Fields) -> Result<Self> {
        let word: String = fields.need("type")?;
        Ok(match BlockType::from_type(&word) {
            BlockType::Text => Self::Text(TextBlock::from_fields(fields)?),
            BlockType::Thinking => Self::Thinking(ThinkingBlock::from_fields(fields)?),
            BlockType::Data => Self::Data(DataBlock::from_kind(DataKind::Data, fields)?),
            BlockType::Image => Self::Data(DataBlock::from_kind(DataKind::Image, fields)?),
            BlockType::Audio => Self::Data(DataBlock::from_kind(DataKind::Audio, fields)?),
            BlockType::Video => Self::Data(DataBlock::from_kind(DataKind::Video, fields)?),
            BlockType::Hint => Self::Hint(HintBlock::from_fields(fields)?),
            BlockType::ToolCall => Self::ToolCall(ToolCall::from_fields(fields)?),
            BlockType::ToolResult => Self::ToolResult(ToolResult::from_fields(fields)?),
            BlockType::Other => Self::Other(with_type(&word, &fields)),
        })
    }
}

/// Puts `type` back in front of the other fields.
fn with_type(word: &str, fields: &Fields) -> Fields {
    let mut whole = Fields::default();
    whole.insert("type", word);
    whole.extend(fields);
    whole
}

/// The id of a block of an unknown type, if it is a string without escapes.
fn other_id(fields: &Fields) -> &str {
    let text = fields.raw("id").map_or("", Json::text);
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .filter(|text| !text.contains('\\'))
        .unwrap_or_default()
}

impl Serialize for ContentBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(block) => block.serialize(serializer),
            Self::Thinking(block) => block.serialize(serializer),
            Self::Data(block) => block.serialize(serializer),
            Self::Hint(block) => block.serialize(serializer),
            Self::ToolCall(block) => block.serialize(serializer),
            Self::ToolResult(block) => block.serialize(serializer),
            Self::Other(fields) => fields.serialize(serializer),
        }
    }
}

/// A block inside a hint or a tool result. It cannot contain further blocks.
// Not `#[non_exhaustive]`, for the same reason as `ContentBlock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Plain text.
    Text(TextBlock),
    /// Bytes, or a URL to them.
    Data(DataBlock),
    /// Any other block, with all its fields.
    Other(Fields),
}

impl Part {
    /// The block as a part; `None` for a block that cannot be inside of others.
    pub fn from_block(block: ContentBlock) -> Option<Self> {
        match block {
            ContentBlock::Text(block) => Some(Self::Text(block)),
            ContentBlock::Data(block) => Some(Self::Data(block)),
            ContentBlock::Other(fields) => Some(Self::Other(fields)),
            content_blocks!(Thinking Hint ToolCall ToolResult) => None,
        }
    }

    /// The part's id; empty if it has none.
    pub fn id(&self) -> &str {
        match self {
            Self::Text(block) => &block.id,
            Self::Data(block) => &block.id,
            Self::Other(fields) => other_id(fields),
        }
    }
}

impl FromFields for Part {
    fn from_fields(mut fields: Fields) -> Result<Self> {
        let word: String = fields.need("type")?;
        Ok(match word.as_str() {
            "text" => Self::Text(TextBlock::from_fields(fields)?),
            word => match DataKind::from_word(word) {
                Some(kind) => Self::Data(DataBlock::from_kind(kind, fields)?),
                None => Self::Other(with_type(word, &fields)),
            },
        })
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(block) => block.serialize(serializer),
            Self::Data(block) => block.serialize(serializer),
            Self::Other(fields) => fields.serialize(serializer),
        }
    }
}

impl From<Part> for ContentBlock {
    fn from(part: Part) -> Self {
        match part {
            Part::Text(block) => Self::Text(block),
            Part::Data(block) => Self::Data(block),
            Part::Other(fields) => Self::Other(fields),
        }
    }
}

/// Content of a hint or a tool result: plain text, or text and data blocks in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// A string.
    Text(String),
    /// Blocks.
    Parts(Vec<Part>),
}

impl Payload {
    /// Whether there is no content but white space.
    pub fn is_blank(&self) -> bool {
        let is_blank =
            |part: &Part| matches!(part, Part::Text(block) if block.text.trim().is_empty());
        match self {
            Self::Text(text) => text.trim().is_empty(),
            Self::Parts(parts) => parts.iter().all(is_blank),
        }
    }

    /// Whether it has neither text nor parts.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
        }
    }

    /// The text of all text parts, joined by the separator.
    pub fn text(&self, separator: &str) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts = parts.iter().filter_map(|part| match part {
                    Part::Text(block) => Some(block.text.as_str()),
                    Part::Data(_) | Part::Other(_) => None,
                });
                texts.collect::<Vec<_>>().join(separator)
            }
        }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::Parts(Vec::new())
    }
}

impl From<&str> for Payload {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Payload {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<P: Into<Part>> From<Vec<P>> for Payload {
    fn from(parts: Vec<P>) -> Self {
        Self::Parts(parts.into_iter().map(P::into).collect())
    }
}

impl<P: Into<Part>, const N: usize> From<[P; N]> for Payload {
    fn from(parts: [P; N]) -> Self {
        Self::Parts(parts.map(P::into).into())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Parts(parts) => serializer.collect_seq(parts),
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        let read = || match json.text().as_bytes().first() {
            Some(b'"') => json.parse_as().map(Self::Text),
            Some(b'[') => read_list(&json).map(Self::Parts),
            _ => Err(Error::new(ErrorKind::WrongShape, "expected a string or a list of blocks")),
        };
        read().map_err(|error| serde::de::Error::custom(error.plain()))
    }
}

deserialize_from_fields!(ContentBlock Part DataBlock);

/// A Rust type of block, for access by type: `msg.blocks::<TextBlock>()`.
pub trait BlockKind: Into<ContentBlock> + 'static {
    /// The block as this type, if it is one.
    fn from_block(block: &ContentBlock) -> Option<&Self>;
}

macro_rules! kinds {
    ($($name:ident => $variant:ident)+) => {$(
        impl From<$name> for ContentBlock {
            fn from(block: $name) -> Self {
                Self::$variant(block)
            }
        }

        impl BlockKind for $name {
            fn from_block(block: &ContentBlock) -> Option<&Self> {
                if let ContentBlock::$variant(block) = block { Some(block) } else { None }
            }
        }
    )+};
}

kinds! {
    TextBlock => Text
    ThinkingBlock => Thinking
    DataBlock => Data
    HintBlock => Hint
    ToolCall => ToolCall
    ToolResult => ToolResult
}

impl From<TextBlock> for Part {
    fn from(block: TextBlock) -> Self {
        Self::Text(block)
    }
}

impl From<DataBlock> for Part {
    fn from(block: DataBlock) -> Self {
        Self::Data(block)
    }
}

macro_rules! text_becomes_a_block {
    ($($target:ident)+) => {$(
        impl From<&str> for $target {
            fn from(text: &str) -> Self {
                TextBlock::new(text).into()
            }
        }

        impl From<String> for $target {
            fn from(text: String) -> Self {
                TextBlock::new(text).into()
            }
        }
    )+};
}

text_becomes_a_block!(ContentBlock Part);
