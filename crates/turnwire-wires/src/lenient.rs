//! Lenient JSON fields for the frames and messages of model providers: a field that is missing, null or of another
//! type than the protocol says counts as absent, and the rest of the object is read all the same.
//!
//! The types here are fields of structs with `#[serde(default, bound(deserialize = "'de: 'a"))]`. Text borrows from the
//! frame where it can. A type with a rule of its own implements [`Lenient`].

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

/// A string; anything else is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text<'a>(pub Cow<'a, str>);

/// A string, or a number as its digits; anything else is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TextOrNumber<'a>(pub Cow<'a, str>);

/// A string; anything else is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OptionalText<'a>(pub Option<Cow<'a, str>>);

/// A whole number; anything else is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Int(pub Option<i64>);

/// A whole number, or a string that is one; anything else is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct IntOrText(pub Option<i64>);

/// `true`; anything else is `false`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flag(pub bool);

/// Whether the field is there at all, also as null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Present(pub bool);

/// An object; anything else is `None`. Boxed, because serde moves values around while it reads, and moving a large
/// struct costs more than the allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Object<T>(pub Option<Box<T>>);

/// An object; anything else is the default. Not boxed, for small structs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectOrDefault<T>(pub T);

/// The objects of a list; its other items are skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct List<T>(pub Vec<T>);

/// A string, or a list; anything else is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum TextOrList<'a, T> {
    #[default]
    None,
    Text(Cow<'a, str>),
    List(Vec<T>),
}

/// Of a list of alternatives the first whose index is 0 or missing; the others are skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct First<T>(pub Option<Box<T>>);

/// Any JSON, not parsed yet.
pub(crate) type Raw<'a> = Option<&'a RawValue>;

/// One of several answers to the same request, as in `choices` or `candidates`.
pub(crate) trait Alternative {
    /// Its `index`, if it has one.
    fn index(&self) -> Option<i64>;
}

/// What a JSON value of each type becomes; by default it is skipped.
pub(crate) trait Lenient<'de>: Default {
    fn from_text(_: Cow<'de, str>) -> Self {
        Self::default()
    }
    fn from_int(_: i64) -> Self {
        Self::default()
    }
    fn from_bool(_: bool) -> Self {
        Self::default()
    }
    fn from_map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

/// Reads a value of any type, for implementations of `Deserialize`.
#[inline]
pub(crate) fn read<'de, D: Deserializer<'de>, T: Lenient<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(LenientVisitor(PhantomData))
}

/// Parses a value; what cannot be read is the default.
pub(crate) fn parse<'a, T: Deserialize<'a> + Default>(raw: &'a RawValue) -> T {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// The same for a field that may be missing.
pub(crate) fn parse_optional<'a, T: Deserialize<'a> + Default>(raw: Raw<'a>) -> T {
    raw.map(parse).unwrap_or_default()
}

/// Parses the text of an object; what cannot be read is the default.
pub(crate) fn parse_text<'a, T: Deserialize<'a> + Default>(text: &'a str) -> T {
    serde_json::from_str::<ObjectOrDefault<T>>(text).map(|object| object.0).unwrap_or_default()
}

/// Parses an object; `None` if it is missing or something else.
pub(crate) fn parse_object<'a, T: Deserialize<'a> + Default>(raw: Raw<'a>) -> Option<T> {
    serde_json::from_str::<Object<T>>(raw?.get()).ok()?.0.map(|value| *value)
}

struct LenientVisitor<T>(PhantomData<T>);

impl<'de, T: Lenient<'de>> Visitor<'de> for LenientVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }
    #[inline]
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<T, E> {
        Ok(T::from_text(Cow::Borrowed(text)))
    }
    #[inline]
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Ok(T::from_text(Cow::Owned(text.to_owned())))
    }
    #[inline]
    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Ok(i64::try_from(number).map_or_else(|_| T::default(), T::from_int))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Ok(T::from_int(number))
    }
    #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        Ok(T::from_int(number as i64))
    }
    fn visit_bool<E: Error>(self, flag: bool) -> Result<T, E> {
        Ok(T::from_bool(flag))
    }
    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Ok(T::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::from_map(map)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::from_list(list)
    }
}

/// Implements `Deserialize` for types that are [`Lenient`].
macro_rules! deserialize_leniently {
    ($($name:ident $(<$life:lifetime>)?),+) => {$(
        impl<'de $(: $life, $life)?> serde::Deserialize<'de> for $name $(<$life>)? {
            #[inline]
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::lenient::read(from)
            }
        }
    )+};
}
pub(crate) use deserialize_leniently;

deserialize_leniently!(Text<'a>, TextOrNumber<'a>, OptionalText<'a>, Int, IntOrText, Flag);

impl<'de: 'a, 'a> Lenient<'de> for Text<'a> {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self(text)
    }
}

impl<'de: 'a, 'a> Lenient<'de> for TextOrNumber<'a> {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self(text)
    }
    fn from_int(number: i64) -> Self {
        Self(Cow::Owned(number.to_string()))
    }
}

impl<'de: 'a, 'a> Lenient<'de> for OptionalText<'a> {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self(Some(text))
    }
}

impl Lenient<'_> for Int {
    fn from_int(number: i64) -> Self {
        Self(Some(number))
    }
}

impl Lenient<'_> for IntOrText {
    fn from_text(text: Cow<'_, str>) -> Self {
        Self(text.parse().ok())
    }
    fn from_int(number: i64) -> Self {
        Self(Some(number))
    }
}

impl Lenient<'_> for Flag {
    fn from_bool(flag: bool) -> Self {
        Self(flag)
    }
}

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(from).map(|_| Self(true))
    }
}

impl<'de, T: Deserialize<'de> + Default> Lenient<'de> for Object<T> {
    fn from_map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|object| Self(Some(Box::new(object))))
    }
}

impl<'de, T: Deserialize<'de> + Default> Lenient<'de> for ObjectOrDefault<T> {
    fn from_map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Self)
    }
}

impl<'de, T: Deserialize<'de> + Default> Lenient<'de> for List<T> {
    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut all = Vec::new();
        while let Some(Object(item)) = list.next_element()? {
            all.extend(item.map(|item| *item));
        }
        Ok(Self(all))
    }
}

impl<'de, T: Deserialize<'de> + Default + Alternative> Lenient<'de> for First<T> {
    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut first = None;
        while let Some(Object(item)) = list.next_element::<Object<T>>()? {
            first = first.or(item.filter(|item| item.index().unwrap_or(0) == 0));
        }
        Ok(Self(first))
    }
}

macro_rules! deserialize_containers_leniently {
    ($($name:ident)+) => {$(
        impl<'de, T> Deserialize<'de> for $name<T>
        where
            Self: Lenient<'de>,
        {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                read(from)
            }
        }
    )+};
}

deserialize_containers_leniently!(Object ObjectOrDefault List First);

impl<'de: 'a, 'a, T: Deserialize<'de>> Lenient<'de> for TextOrList<'a, T> {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self::Text(text)
    }
    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Self::List(items))
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for TextOrList<'a, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from)
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Deref for TextOrNumber<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl OptionalText<'_> {
    pub(crate) fn as_deref(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The text, or the empty one.
    pub(crate) fn or_empty(&self) -> &str {
        self.as_deref().unwrap_or_default()
    }
}

impl IntOrText {
    pub(crate) fn or_zero(self) -> i64 {
        self.0.unwrap_or(0)
    }

    /// As an index; `None` if it is missing or negative.
    pub(crate) fn index(self) -> Option<u64> {
        self.0.and_then(|number| u64::try_from(number).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(default, bound(deserialize = "'de: 'a"))]
    struct All<'a> {
        text: Text<'a>,
        optional: OptionalText<'a>,
        digits: TextOrNumber<'a>,
        int: Int,
        parsed: IntOrText,
        flag: Flag,
        list: List<Inner>,
        object: Object<Inner>,
        first: First<Inner>,
    }

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(default)]
    struct Inner {
        n: Int,
        index: Int,
    }

    impl Alternative for Inner {
        fn index(&self) -> Option<i64> {
            self.index.0
        }
    }

    #[test]
    fn a_value_of_another_type_counts_as_missing() {
        let values = ["null", "true", "-1.5e300", "\"x\"", "[1,[2]]", "{\"a\":{}}"];
        let to_accepted: [(&str, &[usize]); 9] = [
            ("text", &[3]),
            ("optional", &[3]),
            ("digits", &[2, 3]),
            ("int", &[2]),
            ("parsed", &[2]),
            ("flag", &[1]),
            ("list", &[]),
            ("object", &[5]),
            ("first", &[]),
        ];
        for (field, to_accepted) in to_accepted {
            for (at, value) in values.iter().enumerate() {
                let text = format!("{{\"{field}\":{value}}}");
                let read: All<'_> = serde_json::from_str(&text).unwrap();
                assert_eq!(read == All::default(), !to_accepted.contains(&at), "{text}");
            }
        }
    }

    #[test]
    fn a_value_of_the_type_is_read_and_text_is_borrowed() {
        let text = r#"{"text":"w","optional":"","digits":7,"int":7,"parsed":"8","flag":true,
            "list":[null,{"n":1}],"object":{"n":2.0},"first":[5,{"index":1},{"n":3},{"n":4}]}"#;
        let read: All<'_> = serde_json::from_str(text).unwrap();
        let inner = |n| Inner { n: Int(Some(n)), index: Int(None) };
        let expected = All {
            text: Text("w".into()),
            optional: OptionalText(Some("".into())),
            digits: TextOrNumber("7".into()),
            int: Int(Some(7)),
            parsed: IntOrText(Some(8)),
            flag: Flag(true),
            list: List(vec![inner(1)]),
            object: Object(Some(Box::new(inner(2)))),
            first: First(Some(Box::new(inner(3)))),
        };
        assert_eq!(read, expected);
        assert!(matches!(read.text.0, Cow::Borrowed("w")));
    }
}
