//! Types of event fields: how each is read, written, and converted to owned data. The table in
//! `kinds.rs` uses them.

use super::read::RawEvent;
use super::{Chunk, ConfirmResult, CustomValue, Text, TokenCounts, owned};
use crate::block::{ContentBlock, Payload, ToolCall, ToolResult};
use crate::error::{Error, ErrorKind, Result};
use crate::json::{Fields, Json};
use crate::msg::{Msg, ReplyError};
use crate::names::{FinishedReason, Role, ToolResultState};
use crate::object::{FromFields, read_list};
use serde::ser::SerializeMap;

/// A field of an event.
pub(super) trait Field<'a>: Sized {
    type Owned;
    /// `None` if the field is missing or null.
    fn read(raw: &mut RawEvent<'a>, key: &'static str) -> Result<Option<Self>>;
    fn write<M: SerializeMap>(&self, map: &mut M, key: &'static str) -> Result<(), M::Error>;
    fn is_absent(&self) -> bool {
        false
    }
    fn into_owned_field(self) -> Self::Owned;
}

impl<'a> Field<'a> for Text<'a> {
    type Owned = Text<'static>;
    #[inline]
    fn read(raw: &mut RawEvent<'a>, key: &'static str) -> Result<Option<Self>> {
        raw.text(key)
    }
    fn write<M: SerializeMap>(&self, map: &mut M, key: &'static str) -> Result<(), M::Error> {
        map.serialize_entry(key, self)
    }
    fn into_owned_field(self) -> Text<'static> {
        owned(self)
    }
}

impl<'a> Field<'a> for Option<Text<'a>> {
    type Owned = Option<Text<'static>>;
    fn read(raw: &mut RawEvent<'a>, key: &'static str) -> Result<Option<Self>> {
        raw.text(key).map(Some)
    }
    fn write<M: SerializeMap>(&self, map: &mut M, key: &'static str) -> Result<(), M::Error> {
        map.serialize_entry(key, self)
    }
    fn into_owned_field(self) -> Self::Owned {
        self.map(owned)
    }
}

impl<'a> Field<'a> for Chunk<'a> {
    type Owned = Chunk<'static>;
    fn read(raw: &mut RawEvent<'a>, _: &'static str) -> Result<Option<Self>> {
        match (raw.text("data")?, raw.text("url")?) {
            (Some(data), None) => Ok(Some(Self::Data(data))),
            (None, Some(url)) => Ok(Some(Self::Url(url))),
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(Error::new(
                ErrorKind::NotAnEvent,
                "both `data` and `url`; only one of them is allowed",
            )),
        }
    }
    fn write<M: SerializeMap>(&self, map: &mut M, _: &'static str) -> Result<(), M::Error> {
        let (data, url) = match self {
            Self::Data(data) => (Some(data), None),
            Self::Url(url) => (None, Some(url)),
        };
        map.serialize_entry("data", &data)?;
        map.serialize_entry("url", &url)
    }
    fn into_owned_field(self) -> Chunk<'static> {
        match self {
            Self::Data(data) => Chunk::Data(owned(data)),
            Self::Url(url) => Chunk::Url(owned(url)),
        }
    }
}

impl<'a> Field<'a> for TokenCounts {
    type Owned = Self;
    fn read(raw: &mut RawEvent<'a>, _: &'static str) -> Result<Option<Self>> {
        Ok(Some(Self {
            input_tokens: raw.value("input_tokens")?.unwrap_or_default(),
            output_tokens: raw.value("output_tokens")?.unwrap_or_default(),
            cache_input_tokens: raw.value("cache_input_tokens")?.unwrap_or_default(),
            cache_creation_input_tokens: raw
                .value("cache_creation_input_tokens")?
                .unwrap_or_default(),
        }))
    }
    fn write<M: SerializeMap>(&self, map: &mut M, _: &'static str) -> Result<(), M::Error> {
        map.serialize_entry("input_tokens", &self.input_tokens)?;
        map.serialize_entry("output_tokens", &self.output_tokens)?;
        map.serialize_entry("cache_input_tokens", &self.cache_input_tokens)?;
        map.serialize_entry("cache_creation_input_tokens", &self.cache_creation_input_tokens)
    }
    fn into_owned_field(self) -> Self {
        self
    }
}

impl<'a> Field<'a> for CustomValue {
    type Owned = Self;
    fn read(raw: &mut RawEvent<'a>, key: &'static str) -> Result<Option<Self>> {
        Ok(raw.value(key)?.map(Self))
    }
    fn write<M: SerializeMap>(&self, map: &mut M, key: &'static str) -> Result<(), M::Error> {
        map.serialize_entry(key, &self.0)
    }
    fn into_owned_field(self) -> Self {
        self
    }
}

/// Objects and lists of objects. Their errors keep the kind and contain the path.
macro_rules! object_fields {
    ($($type:ty: $read:expr;)+) => {$(
        impl<'a> Field<'a> for $type {
            type Owned = Self;
            fn read(raw: &mut RawEvent<'a>, key: &'static str) -> Result<Option<Self>> {
                let Some(json) = raw.value::<Json>(key)? else { return Ok(None) };
                let read: fn(&Json) -> Result<Self> = $read;
                read(&json).map(Some).map_err(|error| error.at(key))
            }
            fn write<M: SerializeMap>(&self, map: &mut M, key: &'static str) -> Result<(), M::Error> {
                map.serialize_entry(key, self)
            }
            fn into_owned_field(self) -> Self {
                self
            }
        }
    )+};
}

object_fields! {
    Box<ContentBlock>: |json| ContentBlock::from_fields(json.parse_as()?).map(Box::new);
    Box<Msg>: |json| Msg::from_fields(json.parse_as()?).map(Box::new);
    Vec<ToolCall>: read_list;
    Vec<ToolResult>: read_list;
    Vec<ConfirmResult>: read_list;
}

/// Owned values that serde reads and writes.
macro_rules! plain_fields {
    ($($type:ty $(, absent if $absent:expr)?;)+) => {$(
        impl<'a> Field<'a> for $type {
            type Owned = Self;
            fn read(raw: &mut RawEvent<'a>, key: &'static str) -> Result<Option<Self>> {
                raw.value(key)
            }
            fn write<M: SerializeMap>(&self, map: &mut M, key: &'static str) -> Result<(), M::Error> {
                map.serialize_entry(key, self)
            }
            $(fn is_absent(&self) -> bool {
                let absent: fn(&Self) -> bool = $absent;
                absent(self)
            })?
            fn into_owned_field(self) -> Self {
                self
            }
        }
    )+};
}

impl<'a> Field<'a> for String {
    type Owned = Self;
    fn read(raw: &mut RawEvent<'a>, key: &'static str) -> Result<Option<Self>> {
        Ok(raw.text(key)?.map(Text::into_owned))
    }
    fn write<M: SerializeMap>(&self, map: &mut M, key: &'static str) -> Result<(), M::Error> {
        map.serialize_entry(key, self)
    }
    fn into_owned_field(self) -> Self {
        self
    }
}

plain_fields! {
    Role;
    FinishedReason;
    ToolResultState;
    Payload;
    Vec<String>, absent if Vec::is_empty;
    Fields, absent if Fields::is_empty;
    Option<String>, absent if Option::is_none;
    Option<ReplyError>, absent if Option::is_none;
    Option<Json>, absent if Option::is_none;
}
