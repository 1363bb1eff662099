//! Reading fields that may be missing, null or of another type than they should be.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

/// A string, borrowed where it can be. A number is its digits; anything else is empty.
#[derive(Debug, Default)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A whole number; anything else is none.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Int(pub(super) Option<i64>);

impl Int {
    pub(super) fn or_zero(self) -> i64 {
        self.0.unwrap_or(0)
    }

    /// As an index; `None` where there is none.
    pub(super) fn index(self) -> Option<u64> {
        self.0.and_then(|number| u64::try_from(number).ok())
    }
}

/// `true`; anything else is not.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Flag(pub(super) bool);

/// Any JSON, unread.
pub(super) type Raw<'a> = Option<&'a RawValue>;

/// The value as `T`, or its default where it is something else.
pub(super) fn of<'a, T: Deserialize<'a> + Default>(raw: &'a RawValue) -> T {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// The same of what may be missing.
pub(super) fn maybe<'a, T: Deserialize<'a> + Default>(raw: Raw<'a>) -> T {
    raw.map(of).unwrap_or_default()
}

struct Any<T>(std::marker::PhantomData<T>);

/// What a value makes of each type of JSON.
trait Lenient<'de>: Default {
    fn borrowed(text: &'de str) -> Self {
        Self::text(text)
    }
    fn text(_: &str) -> Self {
        Self::default()
    }
    fn number(_: i64) -> Self {
        Self::default()
    }
    fn flag(_: bool) -> Self {
        Self::default()
    }
}

impl<'de> Lenient<'de> for Text<'de> {
    fn borrowed(text: &'de str) -> Self {
        Self(Cow::Borrowed(text))
    }
    fn text(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }
    fn number(number: i64) -> Self {
        Self(Cow::Owned(number.to_string()))
    }
}

impl Lenient<'_> for Int {
    fn text(text: &str) -> Self {
        Self(text.parse().ok())
    }
    fn number(number: i64) -> Self {
        Self(Some(number))
    }
}

impl Lenient<'_> for Flag {
    fn flag(flag: bool) -> Self {
        Self(flag)
    }
}

impl<'de, T: Lenient<'de>> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    #[inline]
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<T, E> {
        Ok(T::borrowed(text))
    }
    #[inline]
    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::text(text))
    }
    #[inline]
    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok(i64::try_from(number).map_or_else(|_| T::default(), T::number))
    }
    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok(T::number(number))
    }
    #[expect(clippy::cast_possible_truncation, reason = "what is too large becomes the largest")]
    fn visit_f64<E>(self, number: f64) -> Result<T, E> {
        Ok(T::number(number as i64))
    }
    fn visit_bool<E>(self, flag: bool) -> Result<T, E> {
        Ok(T::flag(flag))
    }
    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<T, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(T::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(T::default())
    }
}

macro_rules! lenient {
    ($($type:ty),+) => {$(
        impl<'de> Deserialize<'de> for $type {
            #[inline]
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Any(std::marker::PhantomData))
            }
        }
    )+};
}

lenient!(Int, Flag);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any::<Text<'de>>(std::marker::PhantomData))
    }
}
