//! Reads an event from JSON, in one pass over the text.
//!
//! The few fields that nearly every event has are stored directly; all others are kept as slices of the
//! text until the event's type is known. What is left then are unknown fields.

use super::kinds::missing;
use super::{Event, EventKind, SubAgent, Text};
use crate::error::{Error, ErrorKind, Result};
use crate::json::{Fields, Json};
use crate::seq::Seq;
use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

impl<'a> Event<'a> {
    /// Reads one event, which borrows from `text`.
    pub fn from_json(text: &'a str) -> Result<Self> {
        // The fast reader fails if a common field is not a string. That is allowed in an event of an
        // unknown type, so the slow reader decides.
        let mut raw = RawEvent::default();
        let mut json = serde_json::Deserializer::from_str(text);
        if CommonFieldsReader(&mut raw).deserialize(&mut json).and_then(|()| json.end()).is_err() {
            raw = RawEvent::read_all_fields(text)?;
        }
        raw.take_event().map_err(|error| error.with_kind(ErrorKind::NotAnEvent))
    }
}

impl<'de> Deserialize<'de> for Event<'static> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Event::from_json(raw.get())
            .map(Event::into_owned)
            .map_err(|error| serde::de::Error::custom(error.plain()))
    }
}

/// The fields of an event before its type is known.
#[derive(Default)]
pub(super) struct RawEvent<'a> {
    common: CommonFields<'a>,
    seq: Option<u64>,
    metadata: Option<&'a RawValue>,
    others: Vec<(Text<'a>, &'a RawValue)>,
}

macro_rules! common_fields {
    ($($name:ident $key:literal,)+) => {
        /// The string fields that nearly every event has.
        #[derive(Default)]
        struct CommonFields<'a> {
            $($name: Option<Text<'a>>,)+
        }

        impl<'a> CommonFields<'a> {
            #[inline]
            fn slot(&mut self, key: &str) -> Option<&mut Option<Text<'a>>> {
                match key {
                    $($key => Some(&mut self.$name),)+
                    _ => None,
                }
            }

            fn left_over(&mut self) -> impl Iterator<Item = (&'static str, Text<'a>)> {
                let all = [$(($key, self.$name.take()),)+];
                all.into_iter().filter_map(|(key, text)| Some((key, text?)))
            }

            #[inline]
            fn is_empty(&self) -> bool {
                $(self.$name.is_none())&&+
            }
        }
    };
}

common_fields! {
    id "id",
    created_at "created_at",
    kind "type",
    reply_id "reply_id",
    block_id "block_id",
    delta "delta",
    tool_call_id "tool_call_id",
    tool_call_name "tool_call_name",
    data "data",
}

impl<'a> RawEvent<'a> {
    /// Reads every field as a slice of the text; errors show when a field is used.
    fn read_all_fields(text: &'a str) -> Result<Self> {
        let AllFields(others) = serde_json::from_str(text).map_err(|error| {
            let kind = if error.is_data() { ErrorKind::NotAnEvent } else { ErrorKind::NotJson };
            Error::from_json(kind, &error)
        })?;
        Ok(Self { others, ..Self::default() })
    }

    /// Takes a string; `None` if it is missing or null.
    #[expect(clippy::inline_always, reason = "the key is a literal: inlined, it costs nothing")]
    #[inline(always)]
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<Text<'a>>> {
        if let Some(slot) = self.common.slot(key)
            && let Some(text) = slot.take()
        {
            return Ok(Some(text));
        }
        if self.others.is_empty() {
            return Ok(None);
        }
        self.take_other_text(key)
    }

    fn take_other_text(&mut self, key: &'static str) -> Result<Option<Text<'a>>> {
        let Some(raw) = self.take_other(key) else { return Ok(None) };
        let MaybeText(text) = serde_json::from_str(raw.get())
            .map_err(|error| Error::from_json(ErrorKind::NotAnEvent, &error).at(key))?;
        Ok(text)
    }

    /// Takes any other value; `None` if it is missing or null.
    pub(super) fn value<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>> {
        let Some(raw) = self.take_other(key).filter(|raw| raw.get() != "null") else {
            return Ok(None);
        };
        let value = serde_json::from_str(raw.get())
            .map_err(|error| Error::from_json(ErrorKind::NotAnEvent, &error).at(key))?;
        Ok(Some(value))
    }

    /// Takes a field; if the key occurs twice, the last one.
    fn take_other(&mut self, key: &str) -> Option<&'a RawValue> {
        let (_, raw) = self.others.iter().rfind(|(name, _)| name == key)?;
        let raw = *raw;
        self.others.retain(|(name, _)| name != key);
        Some(raw)
    }

    /// Moves everything into an event. Takes `&mut self` because moving this large struct is slow.
    #[inline]
    fn take_event(&mut self) -> Result<Event<'a>> {
        let Some(word) = self.text("type")? else { return Err(self.missing_type_error()) };
        let kind = EventKind::read(word, self)?;
        if !kind.is_known() {
            return Ok(self.take_unknown(kind));
        }
        let agent = if self.others.is_empty() { None } else { self.take_sub_agent()? };
        Ok(Event {
            id: self.text("id")?.unwrap_or_default(),
            created_at: self.text("created_at")?.unwrap_or_default(),
            reply_id: match self.text("reply_id")? {
                // AgentScope's service ends a reply that it cannot identify with an empty id.
                Some(reply_id) if !reply_id.is_empty() || kind.may_lack_reply() => reply_id,
                None if !kind.needs_reply() => Text::default(),
                _ => return Err(missing(kind.type_name(), "reply_id")),
            },
            seq: self.take_seq("seq")?,
            seq_from: self.take_seq("seq_from")?,
            metadata: self.take_metadata()?,
            agent,
            kind,
            rest: self.rest(),
        })
    }

    #[cold]
    fn missing_type_error(&self) -> Error {
        let has = |key| self.others.iter().any(|(name, _)| name == key);
        let message = if has("role") && has("content") {
            "this is a message, not an event"
        } else {
            "`type` is missing"
        };
        Error::new(ErrorKind::NotAnEvent, message)
    }

    fn take_seq(&mut self, key: &'static str) -> Result<Option<Seq>> {
        match self.seq.take_if(|_| key == "seq") {
            Some(seq) if seq > 0 => Ok(Seq::new(seq)),
            Some(_) => {
                let message = "a seq counts from 1, so it cannot be 0";
                Err(Error::new(ErrorKind::NotAnEvent, message).at(key))
            }
            None if self.others.is_empty() => Ok(None),
            None => self.value(key),
        }
    }

    fn take_metadata(&mut self) -> Result<Fields> {
        match self.metadata.take().or_else(|| self.take_other("metadata")).map(RawValue::get) {
            None | Some("{}" | "null") => Ok(Fields::default()),
            Some(text) => serde_json::from_str(text)
                .map_err(|error| Error::from_json(ErrorKind::NotAnEvent, &error).at("metadata")),
        }
    }

    /// An event of an unknown type: a common field with another JSON type stays among the unknown fields.
    fn take_unknown(&mut self, kind: EventKind<'a>) -> Event<'a> {
        let mut event = Event::new("", kind);
        event.id = self.take_if_fits("id", Self::text);
        event.created_at = self.take_if_fits("created_at", Self::text);
        event.reply_id = self.take_if_fits("reply_id", Self::text);
        event.seq = self.take_if_fits("seq", |raw, key| raw.take_seq(key).map(Some));
        event.seq_from = self.take_if_fits("seq_from", |raw, key| raw.take_seq(key).map(Some));
        event.metadata = self.take_if_fits("metadata", |raw, _| raw.take_metadata().map(Some));
        let agent = SubAgent {
            agent_path: self.take_if_fits("agent_path", |raw, key| raw.value(key).map(Some)),
            parent_tool_call_id: self
                .take_if_fits("parent_tool_call_id", |raw, key| raw.value(key).map(Some)),
        };
        event.agent = agent.boxed();
        event.rest = self.rest();
        event
    }

    /// Takes a field if it can be read; otherwise all fields of that name stay.
    fn take_if_fits<T: Default>(
        &mut self,
        key: &'static str,
        take: impl FnOnce(&mut Self, &'static str) -> Result<Option<T>>,
    ) -> T {
        let (others, metadata, seq) = (self.others.clone(), self.metadata, self.seq);
        let is_null = others.iter().any(|(name, raw)| name == key && raw.get() == "null");
        match take(self, key) {
            Ok(Some(value)) if !is_null => value,
            _ => {
                (self.others, self.metadata, self.seq) = (others, metadata, seq);
                T::default()
            }
        }
    }

    fn take_sub_agent(&mut self) -> Result<Option<Box<SubAgent>>> {
        let agent = SubAgent {
            agent_path: self.value("agent_path")?,
            parent_tool_call_id: self.value("parent_tool_call_id")?,
        };
        Ok(agent.boxed())
    }

    #[inline]
    fn rest(&mut self) -> Fields {
        let nothing = self.common.is_empty()
            && self.others.is_empty()
            && self.seq.is_none()
            && self.metadata.is_none();
        if nothing { Fields::default() } else { self.take_rest() }
    }

    fn take_rest(&mut self) -> Fields {
        let mut rest = Fields::default();
        for (key, text) in self.common.left_over() {
            rest.insert(key, &*text);
        }
        if let Some(seq) = self.seq {
            rest.insert("seq", seq);
        }
        let metadata = self.metadata.map(|raw| (Cow::Borrowed("metadata"), raw));
        for (key, raw) in metadata.into_iter().chain(self.others.drain(..)) {
            // A common field must be written the same way, whichever reader read it.
            let text =
                self.common.slot(&key).and_then(|_| serde_json::from_str::<String>(raw.get()).ok());
            rest.insert(key, text.map_or_else(|| Json::from_raw(raw), Json::from));
        }
        rest
    }
}

/// A string, borrowed if it has no escapes, or null.
struct MaybeText<'a>(Option<Text<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for MaybeText<'a> {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Option<Text<'de>>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            #[inline]
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Some(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Some(Cow::Owned(text.to_owned())))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(None)
            }
        }
        deserializer.deserialize_any(TextVisitor).map(MaybeText)
    }
}

/// Reads a key and finds where its value belongs.
struct Key<'s, 'a>(&'s mut CommonFields<'a>);

enum KeySlot<'s, 'a> {
    Common(&'s mut Option<Text<'a>>),
    Seq,
    Metadata,
    Other(Text<'a>),
}

impl<'s, 'de> DeserializeSeed<'de> for Key<'s, 'de> {
    type Value = KeySlot<'s, 'de>;
    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'s, 'de> Visitor<'de> for Key<'s, 'de> {
    type Value = KeySlot<'s, 'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    #[inline]
    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(match key {
            "seq" => KeySlot::Seq,
            "metadata" => KeySlot::Metadata,
            _ => match self.0.slot(key) {
                Some(slot) => KeySlot::Common(slot),
                None => KeySlot::Other(Cow::Borrowed(key)),
            },
        })
    }
    /// A key with escapes: left to the slow reader.
    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Self::Value, E> {
        Err(E::custom("an escaped key"))
    }
}

/// The fast reader: only for events whose common fields are strings.
struct CommonFieldsReader<'r, 'a>(&'r mut RawEvent<'a>);

impl<'de> DeserializeSeed<'de> for CommonFieldsReader<'_, 'de> {
    type Value = ();
    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for CommonFieldsReader<'_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(raw) = self;
        while let Some(found) = map.next_key_seed(Key(&mut raw.common))? {
            match found {
                KeySlot::Common(slot) => match map.next_value()? {
                    MaybeText(None) => return Err(A::Error::custom("null, not a string")),
                    MaybeText(text) => *slot = text,
                },
                KeySlot::Seq => raw.seq = Some(map.next_value()?),
                KeySlot::Metadata => raw.metadata = Some(map.next_value()?),
                KeySlot::Other(key) => raw.others.push((key, map.next_value()?)),
            }
        }
        Ok(())
    }
}

/// The slow reader: all fields as slices of the text.
struct AllFields<'a>(Vec<(Text<'a>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for AllFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(Text<'de>, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((key, value)) = map.next_entry::<Text<'static>, &'de RawValue>()? {
                    fields.push((key, value));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Object).map(AllFields)
    }
}
